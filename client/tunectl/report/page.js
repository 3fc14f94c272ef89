/* The page of `tunectl report`: which sections there are, when they are drawn, and what is picked.
 *
 * Design: a table of sections, each with a draw function from (view, choices) to what it shows:
 * {option, height, least} for a chart, {say} sentences, {table} a function that gives one,
 * {element}, {after} the drawing. The view is the group and the shape that are picked. A section
 * is drawn when it comes into sight, and again when something changes; before printing all of them
 * are drawn, in light colours and for the width of paper.
 * To add a section: write its draw function in explore.js or results.js, and name it in
 * SECTIONS. */

/* --- the sections -------------------------------------------------------------------------- */

// controls: each a select; `initial` and `options` may depend on the view.
const SECTIONS = [
    {
        id: 'roofline',
        title: 'Roofline',
        draw: drawRoofline,
        controls: [
            {
                id: 'bytes',
                label: 'Bytes',
                initial: () => 'once',
                options: () => [
                    ['once', 'each operand once'],
                    ['requested', 'as the configuration requests'],
                ],
            },
        ],
    },
    {
        id: 'heat',
        title: 'Two parameters',
        draw: drawHeat,
        controls: [
            {
                id: 'x',
                label: 'Across',
                options: paramOptions,
                initial: (view) => String(byImportance(view)[0]),
            },
            {
                id: 'y',
                label: 'Down',
                options: paramOptions,
                initial: (view) => String(byImportance(view)[1] || 0),
            },
            {
                id: 'of',
                label: 'Over the rest',
                initial: () => 'best',
                options: () => [
                    ['best', 'best'],
                    ['median', 'median'],
                ],
            },
        ],
    },
    {
        id: 'parallel',
        title: 'All parameters',
        draw: drawParallel,
        controls: [
            {
                id: 'keep',
                label: 'Keep',
                initial: () => 'all',
                options: () => [
                    ['all', 'all, or what is brushed'],
                    ['0.1', 'the fastest 10 %'],
                    ['0.01', 'the fastest 1 %'],
                ],
            },
        ],
    },
    {id: 'distribution', title: 'Distribution of times', draw: drawDistribution},
    {id: 'importance', title: 'Importance of each parameter', draw: drawImportance},
    {
        id: 'convergence',
        title: 'Convergence',
        draw: drawConvergence,
        controls: [
            {
                id: 'over',
                label: 'Over',
                initial: () => 'evaluations',
                options: () => [
                    ['evaluations', 'evaluations'],
                    ['seconds', 'seconds'],
                ],
            },
        ],
    },
    {id: 'outcomes', title: 'Outcomes', draw: drawOutcomes},
    {id: 'ties', title: 'Ties and intervals', draw: drawTies},
    {id: 'loss', title: 'One configuration for all shapes', draw: drawLoss},
    {id: 'provenance', title: 'Provenance', draw: drawProvenance},
];

const PAPER_WIDTH = 680;
const state = {
    report: null,
    ready: new Map(),
    group: 0,
    shape: -1,
    theme: '',
    view: null,
    cards: [],
    isPaper: false,
};

function makeCard(section) {
    const card = {section, choices: {}, isSeen: false, isStale: true, chart: null};
    card.controls = make('div', {class: 'controls'});
    card.plot = make('div', {class: 'chart', role: 'img'});
    card.plot.style.height = '300px';
    card.frame = make('div', {class: 'scroll frame'}, card.plot);
    card.say = make('p', {class: 'say soft'});
    card.extra = make('div', {class: 'extra'});
    card.table = make('details', null, make('summary', null, 'As a table'));
    card.table.addEventListener('toggle', () => card.table.open && fillTable(card));
    card.element = make(
        'section',
        {class: 'card', id: section.id, 'aria-labelledby': section.id + '-title'},
        make('h2', {id: section.id + '-title'}, section.title),
        card.say,
        card.controls,
        card.frame,
        card.extra,
        card.table,
    );
    return card;
}

function fillTable(card) {
    if (card.table.children.length === 1 && card.shown && card.shown.table) {
        card.table.append(makeScroll(makeTable(card.shown.table())));
    }
}

// The selects of a card; a choice that this view does not have falls back to the first sight of it.
function fillControls(card) {
    const made = (card.section.controls || []).map((control) => {
        const options = control.options(state.view);
        if (!options.some(([value]) => value === card.choices[control.id])) {
            card.choices[control.id] = options.length > 0 ? control.initial(state.view) : undefined;
        }
        const select = make(
            'select',
            {id: card.section.id + '-' + control.id},
            ...options.map(([value, text]) => make('option', {value}, text)),
        );
        select.value = card.choices[control.id];
        select.addEventListener('change', () => {
            card.choices[control.id] = select.value;
            render(card);
        });
        return make('div', {class: 'pick'}, make('label', {for: select.id}, control.label), select);
    });
    const held =
        document.activeElement && card.controls.contains(document.activeElement)
            ? document.activeElement.id
            : null;
    card.controls.replaceChildren(...made);
    if (held) {
        document.getElementById(held).focus(); // who picks by keyboard stays where they are
    }
}

function render(card) {
    card.isStale = false;
    fillControls(card);
    const shown = card.section.draw(state.view, card.choices, state.isPaper);
    card.shown = shown;
    card.say.textContent = shown.say.join(' ');
    card.say.hidden = shown.say.length === 0;
    card.extra.replaceChildren(shown.element || '');
    plot(card, shown);
    card.table.hidden = !shown.table;
    card.table.querySelectorAll('.scroll').forEach((old) => old.remove());
    card.table.open = Boolean(shown.table) && (state.isPaper || card.table.open);
    if (card.table.open) {
        fillTable(card);
    }
}

function plot(card, shown) {
    card.frame.hidden = !shown.option;
    if (!shown.option) {
        dropChart(card);
        return;
    }
    card.plot.style.height = shown.height + 'px';
    card.plot.style.minWidth = state.isPaper || !shown.least ? '0' : shown.least + 'px';
    card.plot.setAttribute('aria-label', card.section.title + '. ' + shown.say.join(' '));
    if (!card.chart) {
        card.chart = echarts.init(
            card.plot,
            null,
            state.isPaper ? {width: PAPER_WIDTH, devicePixelRatio: 2} : {},
        );
    } else {
        card.chart.dispatchAction({type: 'hideTip'}); // it is of what was drawn before
        card.chart.resize();
    }
    const option = Object.assign(
        {animation: false, textStyle: {fontFamily: getComputedStyle(document.body).fontFamily}},
        shown.option,
    );
    card.chart.setOption(option, {notMerge: true});
    if (shown.after) {
        shown.after(card.chart, card);
    }
}

function dropChart(card) {
    if (card.chart) {
        card.chart.dispose();
        card.chart = null;
    }
}

// Those in sight now, the others when they come into sight.
function renderAll() {
    showHeadline(state.view);
    for (const card of state.cards) {
        card.isStale = true;
        if (card.isSeen || state.isPaper) {
            render(card);
        }
    }
}

function watchSight() {
    const observer = new IntersectionObserver(
        (entries) => {
            for (const entry of entries) {
                const card = state.cards.find((one) => one.element === entry.target);
                card.isSeen = entry.isIntersecting;
                if (card.isSeen && card.isStale) {
                    render(card);
                }
            }
        },
        {rootMargin: '200px'},
    );
    state.cards.forEach((card) => observer.observe(card.element));
}

function watchSize() {
    let asked = 0;
    new ResizeObserver(() => {
        cancelAnimationFrame(asked);
        asked = requestAnimationFrame(
            () => state.isPaper || state.cards.forEach((card) => card.chart && card.chart.resize()),
        );
    }).observe(document.getElementById('charts'));
}

/* --- what is picked ------------------------------------------------------------------------ */

function groupText(group, groups) {
    const text =
        group.kernel +
        ' ' +
        group.dtype +
        ' on ' +
        group.device +
        ' (' +
        group.arch +
        '), ' +
        group.mode;
    const same = (other) =>
        ['kernel', 'dtype', 'device', 'arch', 'mode'].every((key) => other[key] === group[key]);
    return (
        text +
        (groups.filter(same).length > 1 ? ', source ' + String(group.fingerprint).slice(0, 8) : '')
    );
}

function fillPickers() {
    const groups = state.report.groups;
    const group = document.getElementById('group');
    group.replaceChildren(
        ...groups.map((one, i) => make('option', {value: i}, groupText(one, groups))),
    );
    group.value = state.group;
    const shapes = groups[state.group].shapes;
    const shape = document.getElementById('shape');
    const each = shapes.map((one, i) => make('option', {value: i}, one.label));
    shape.replaceChildren(
        ...(shapes.length > 1
            ? [make('option', {value: -1}, 'all ' + shapes.length + ' shapes')]
            : []),
        ...each,
    );
    shape.value = state.shape;
    document.getElementById('group-pick').hidden = groups.length < 2;
}

function pick(group, shape) {
    const groups = state.report.groups;
    state.group = groups[group] ? group : 0;
    const shapes = groups[state.group].shapes;
    state.shape = shapes.length === 1 ? 0 : shapes[shape] ? shape : -1;
    if (!state.ready.has(state.group)) {
        state.ready.set(state.group, prepare(groups[state.group]));
    }
    state.view = viewOf(state.ready.get(state.group), state.shape);
    fillPickers();
    renderAll();
}

function readHash() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const number = (name) => (asked.has(name) ? Number.parseInt(asked.get(name), 10) : -1);
    return {group: number('group'), shape: number('shape'), theme: asked.get('theme')};
}

function writeHash() {
    const kept = new URLSearchParams({group: state.group, shape: state.shape});
    if (state.theme) {
        kept.set('theme', state.theme);
    }
    history.replaceState(null, '', '#' + kept);
}

// '' follows the system.
function setTheme(theme) {
    state.theme = theme === 'dark' || theme === 'light' ? theme : '';
    showTheme(
        state.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'),
    );
}

function showTheme(theme) {
    document.documentElement.dataset.theme = theme;
    document.getElementById('theme').textContent = theme === 'dark' ? 'Light' : 'Dark';
}

function isDark() {
    return document.documentElement.dataset.theme === 'dark';
}

function watchPickers() {
    const choose = (group, shape) => {
        pick(group, shape);
        writeHash();
    };
    document
        .getElementById('group')
        .addEventListener('change', (event) => choose(Number(event.target.value), -1));
    document
        .getElementById('shape')
        .addEventListener('change', (event) => choose(state.group, Number(event.target.value)));
    document.getElementById('theme').addEventListener('click', () => {
        setTheme(isDark() ? 'light' : 'dark');
        choose(state.group, state.shape);
    });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
        setTheme(state.theme);
        renderAll();
    });
    window.addEventListener('hashchange', () => {
        const asked = readHash();
        setTheme(asked.theme);
        pick(asked.group, asked.shape);
    });
}

/* --- paper --------------------------------------------------------------------------------- */

function watchPrinting() {
    const turn = (isPaper) => {
        state.isPaper = isPaper;
        if (isPaper) {
            showTheme('light');
        } else {
            setTheme(state.theme);
            state.cards.forEach((card) => card.table.removeAttribute('open'));
        }
        state.cards.forEach(dropChart);
        renderAll();
        state.cards.forEach(
            (card) => isPaper && card.chart && card.chart.getZr().refreshImmediately(),
        );
    };
    window.addEventListener('beforeprint', () => turn(true));
    window.addEventListener('afterprint', () => turn(false));
}

/* --- start --------------------------------------------------------------------------------- */

function start() {
    state.report = JSON.parse(document.getElementById('data').textContent);
    const asked = readHash();
    setTheme(asked.theme);
    document.getElementById('foot').textContent =
        'Written by tunerd ' +
        state.report.tunerd +
        ' on ' +
        dateText(state.report.created_unix_ms) +
        ', from ' +
        [].concat(state.report.from).join(', ') +
        '. Charts by Apache ECharts, under the Apache License 2.0.';
    if (state.report.groups.length === 0) {
        document
            .getElementById('headline')
            .append(make('p', null, 'There are no measurements in this report.'));
        return;
    }
    state.cards = SECTIONS.map(makeCard);
    document.getElementById('charts').append(...state.cards.map((card) => card.element));
    pick(asked.group, asked.shape);
    watchSight();
    watchSize();
    watchPickers();
    watchPrinting();
}

start();
