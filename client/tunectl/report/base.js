/* What the page's other scripts stand on: words and numbers, elements, colours, the data of a
 * group and of a view, and the parts of charts. The data's form is told in
 * client/tunectl/report.h.
 *
 * The scripts are parts of one function, in the order that page.html names them.
 *
 * Texts in the data come from foreign files: they go into the page as text only, never as HTML. */

/* --- words and numbers --------------------------------------------------------------------- */

const THREE_DIGITS = new Intl.NumberFormat('en-US', {maximumSignificantDigits: 3});
const WHOLE = new Intl.NumberFormat('en-US');

// No exponent where a person reads it.
function digits(value) {
    if (!Number.isFinite(value)) {
        return '–';
    }
    return THREE_DIGITS.format(value);
}

function scaled(value, units) {
    let i = 0;
    let rounded = Number(value.toPrecision(3));
    while (i + 1 < units.length && Math.abs(rounded) >= 1000) {
        rounded /= 1000;
        i++;
    }
    return digits(rounded) + '\u00a0' + units[i];
}

const timeText = (ns) => scaled(ns, ['ns', 'µs', 'ms', 's']);
const flopsText = (rate) =>
    scaled(rate, ['flop/s', 'Kflop/s', 'Mflop/s', 'Gflop/s', 'Tflop/s', 'Pflop/s']);
const bandText = (rate) => scaled(rate, ['B/s', 'KB/s', 'MB/s', 'GB/s', 'TB/s', 'PB/s']);
const timesText = (ratio) => digits(ratio) + '×';
const percentText = (share) => digits(100 * share) + '\u00a0%';
const countText = (count) => WHOLE.format(count);

function plural(count, one, many) {
    return countText(count) + ' ' + (count === 1 ? one : many || one + 's');
}

// UTC, so that two readers of one file see the same.
function dateText(unixMs) {
    const date = new Date(unixMs === null ? NaN : unixMs);
    return Number.isNaN(date.getTime())
        ? '–'
        : date.toISOString().slice(0, 16).replace('T', ' ') + ' UTC';
}

function median(sorted) {
    const middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/* --- elements ------------------------------------------------------------------------------ */

// Children that are no elements become text, whatever is in them.
function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
        element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
}

function makeTip(title, lines) {
    const rest = lines.filter(Boolean).map((line) => make('span', null, line));
    return make('div', {class: 'tip'}, make('b', null, title), ...rest);
}

// head: texts, with a leading '#' for columns of numbers. Cells: texts, or {text, colour}.
function makeTable(table) {
    const isNumber = table.head.map((text) => text.startsWith('#'));
    const kind = (i) =>
        isNumber[i] ? {class: 'number'} : {class: table.wide === i ? 'wide' : 'text'};
    const heads = table.head.map((text, i) =>
        make('th', Object.assign({scope: 'col'}, kind(i)), text.replace(/^#/, '')),
    );
    const body = make('tbody');
    for (const row of table.rows) {
        body.append(make('tr', null, ...row.map((cell, i) => makeCell(cell, kind(i)))));
    }
    return make(
        'table',
        {class: table.kind || 'plain'},
        make('caption', null, table.caption),
        make('thead', null, make('tr', null, ...heads)),
        body,
    );
}

// Wide tables move inside their frame; the keyboard can move them too.
function makeScroll(element) {
    return make('div', {class: 'scroll', tabindex: '0'}, element);
}

function makeCell(cell, attributes) {
    if (typeof cell !== 'object' || cell === null) {
        return make('td', attributes, cell === null ? '–' : String(cell));
    }
    const element = make('td', attributes, cell.text);
    element.style.background = cell.colour;
    element.style.color = inkOn(cell.colour);
    return element;
}

/* --- colours ------------------------------------------------------------------------------- */

// Viridis, fast to slow: even steps of lightness, also for those who see fewer colours.
const SCALE = ['#fde725', '#7ad151', '#22a884', '#2a788e', '#414487', '#440154'];

function colour(name) {
    return getComputedStyle(document.documentElement)
        .getPropertyValue('--' + name)
        .trim();
}

function scaleColour(share) {
    const at = Math.min(Math.max(share, 0), 1) * (SCALE.length - 1);
    const low = Math.min(Math.floor(at), SCALE.length - 2);
    const channel = (text, k) => parseInt(text.slice(1 + 2 * k, 3 + 2 * k), 16);
    const mix = (k) =>
        Math.round(
            channel(SCALE[low], k) * (low + 1 - at) + channel(SCALE[low + 1], k) * (at - low),
        );
    return '#' + [0, 1, 2].map((k) => mix(k).toString(16).padStart(2, '0')).join('');
}

// Black or white, whichever reads better on this colour (WCAG's relative luminance).
function inkOn(hex) {
    const linear = [1, 3, 5].map((i) => Math.pow(parseInt(hex.slice(i, i + 2), 16) / 255, 2.2));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.18
        ? '#000000'
        : '#ffffff';
}

/* --- the data ------------------------------------------------------------------------------ */

// What the sections ask of a group again and again, computed once when it is first picked.
function prepare(group) {
    const rows = group.rows;
    const okOutcome = group.outcomes.indexOf('ok');
    const ready = {
        group,
        count: rows.outcome.length,
        shape: Int32Array.from(rows.shape),
        config: Int32Array.from(rows.config),
        outcome: Int32Array.from(rows.outcome),
        ns: Float64Array.from(rows.median_ns, (ns) => (ns === null ? NaN : ns)),
    };
    ready.isOk = (row) => ready.outcome[row] === okOutcome && ready.ns[row] > 0;
    ready.ok = Int32Array.from(Array.from(ready.ns.keys()).filter(ready.isOk));
    ready.rowOf = representatives(ready);
    ready.speaks = (row) => ready.rowOf(ready.shape[row], ready.config[row]) === row;
    ready.bestNs = group.shapes.map((shape, i) => bestOfShape(ready, shape, i));
    return ready;
}

// The row that speaks for a configuration of a shape: at most one, none when it failed since.
function representatives(ready) {
    const found = new Map();
    const stands = ready.group.rows.stands;
    const key = (shape, config) => shape * ready.group.configs.length + config;
    for (const row of ready.ok) {
        if (stands[row]) {
            found.set(key(ready.shape[row], ready.config[row]), row);
        }
    }
    return (shape, config) =>
        config === null || config === undefined ? undefined : found.get(key(shape, config));
}

function bestOfShape(ready, shape, index) {
    const row = ready.rowOf(index, shape.best);
    if (row !== undefined) {
        return ready.ns[row];
    }
    return ready.ok.reduce(
        (best, at) => (ready.shape[at] === index ? Math.min(best, ready.ns[at]) : best),
        Infinity,
    );
}

// A view: one row per configuration of one shape, measured in time; or of all shapes, in multiples
// of their shape's best.
function viewOf(ready, shape) {
    const isAll = shape < 0;
    return {
        ready,
        group: ready.group,
        shape,
        isAll,
        ok: ready.ok.filter((row) => ready.speaks(row) && (isAll || ready.shape[row] === shape)),
        shapes: isAll ? ready.group.shapes.map((_, i) => i) : [shape],
        value: isAll
            ? (row) => ready.ns[row] / ready.bestNs[ready.shape[row]]
            : (row) => ready.ns[row],
        noun: isAll ? 'measurement' : 'configuration',
        text: isAll ? timesText : timeText,
        measure: isAll ? 'time, as a multiple of the best of its shape' : 'time',
    };
}

function valueText(group, param, value) {
    const name = (group.params[param].names || {})[String(value)];
    return name === undefined ? String(value) : value + ' ' + name;
}

// params: which ones to name; all of them when left out.
function configText(group, config, params) {
    const which = params || group.params.map((_, i) => i);
    return which
        .map((i) => group.params[i].name + '=' + valueText(group, i, group.configs[config][i]))
        .join(' ');
}

// The parameters that tell these configurations apart.
function differing(group, configs) {
    const params = group.params.map((_, i) => i);
    return params.filter((i) =>
        configs.some((config) => group.configs[config][i] !== group.configs[configs[0]][i]),
    );
}

function distinctValues(view, param) {
    const values = new Set();
    for (let row = 0; row < view.ready.count; row++) {
        if (view.isAll || view.ready.shape[row] === view.shape) {
            values.add(view.group.configs[view.ready.config[row]][param]);
        }
    }
    return Array.from(values).sort((a, b) => a - b);
}

function rowTip(view, row, title) {
    const rows = view.group.rows;
    const has = (column) =>
        rows[column] && rows[column][row] !== null && rows[column][row] !== undefined;
    const shared = has('shared_bytes')
        ? ', ' + countText(rows.shared_bytes[row]) + ' B shared'
        : '';
    const spill =
        rows.spill_bytes && rows.spill_bytes[row]
            ? ', ' + rows.spill_bytes[row] + ' B spilled'
            : '';
    return makeTip(title || timeText(view.ready.ns[row]), [
        configText(view.group, view.ready.config[row]),
        view.isAll && view.group.shapes[view.ready.shape[row]].label,
        timeText(view.ready.ns[row]) +
            intervalText(rows, row) +
            (rows.confirmed[row] ? ', confirmed' : ''),
        has('registers') && rows.registers[row] + ' registers' + spill + shared,
        view.group.runs[rows.run[row]],
    ]);
}

function intervalText(rows, row) {
    const low = rows.lo_ns[row];
    const high = rows.hi_ns[row];
    return low > 0 && high > 0 ? ' (95 %: ' + timeText(low) + ' to ' + timeText(high) + ')' : '';
}

function fastestFirst(view, rows) {
    return Array.from(rows).sort((a, b) => view.value(a) - view.value(b));
}

// The rows as a table, with the fastest only where there are many.
function rowsTable(view, rows, extra, limit) {
    const most = limit || (state.isPaper ? 20 : 100);
    const shown = fastestFirst(view, rows).slice(0, most);
    const head = ['#Time', '#95 % interval'].concat(
        view.isAll ? ['#× best', 'Shape'] : [],
        extra ? extra.head : [],
        ['Configuration'],
    );
    const cells = (row) =>
        [
            timeText(view.ready.ns[row]),
            intervalText(view.group.rows, row).slice(8, -1) || null,
        ].concat(
            view.isAll
                ? [view.text(view.value(row)), view.group.shapes[view.ready.shape[row]].label]
                : [],
            extra ? extra.cells(row) : [],
            [configText(view.group, view.ready.config[row])],
        );
    const caption =
        rows.length > most
            ? 'The fastest ' + most + ' of ' + countText(rows.length)
            : plural(rows.length, view.noun);
    return {caption, head, wide: head.length - 1, rows: shown.map(cells)};
}

/* --- parts of charts ----------------------------------------------------------------------- */

// Steps of 1, 2, 5 over decades; plain even steps where low and high are close.
function logTicks(low, high) {
    const decades = Math.log10(high / low);
    const ticks = [];
    if (decades < 0.6) {
        const rough = (high - low) / 4;
        const power = Math.pow(10, Math.floor(Math.log10(rough)));
        const step = power * [1, 2, 5, 10].find((m) => m * power >= rough);
        for (let k = Math.ceil(low / step); k * step <= high; k++) {
            ticks.push(Math.log10(k * step));
        }
        return ticks;
    }
    const inDecade = decades < (isNarrow() ? 1.3 : 2.2) ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil(decades / 8));
    for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); k++) {
        inDecade.filter(() => k % every === 0).forEach((m) => ticks.push(k + Math.log10(m)));
    }
    return ticks.filter((tick) => tick >= Math.log10(low) && tick <= Math.log10(high));
}

// ECharts' own log axis knows powers of ten only, too few for times within a factor of three: so
// the data are logarithms, and the axis is labelled here.
function logAxis(low, high, format, name) {
    const pad = Math.max(0.04 * Math.log10(high / low), 0.01);
    const from = Math.log10(low) - pad;
    const to = Math.log10(high) + pad;
    const ticks = logTicks(Math.pow(10, from), Math.pow(10, to));
    return Object.assign(axis('value', name), {
        min: from,
        max: to,
        axisLabel: {
            color: colour('soft'),
            customValues: ticks,
            hideOverlap: true,
            formatter: (at) => format(Math.pow(10, at)),
        },
        axisTick: {show: true, customValues: ticks},
        splitLine: {show: true, customValues: ticks, lineStyle: {color: colour('grid')}},
    });
}

// A phone held upright.
function isNarrow() {
    return document.documentElement.clientWidth < 640 && !state.isPaper;
}

function axis(type, name) {
    return {
        type,
        name,
        nameLocation: 'middle',
        nameGap: 30,
        nameTextStyle: {color: colour('soft'), fontSize: 12},
        axisLine: {show: true, onZero: false, lineStyle: {color: colour('line')}},
        axisLabel: {color: colour('soft'), hideOverlap: true},
        splitNumber: isNarrow() ? 3 : 5,
        splitLine: {show: type === 'value', lineStyle: {color: colour('grid')}},
    };
}

// The name of a vertical axis stands above it, level, where it costs no width.
function nameOfY(text, top) {
    return {
        text,
        left: 0,
        top: top || 0,
        padding: [3, 0],
        textStyle: {color: colour('soft'), fontSize: 12, fontWeight: 'normal'},
    };
}

function grid(over) {
    return Object.assign({left: 8, right: 24, top: 34, bottom: 36, containLabel: true}, over);
}

function legend(names) {
    return {
        data: names,
        top: 0,
        right: 0,
        type: 'scroll',
        textStyle: {color: colour('text')},
        itemWidth: 14,
        itemHeight: 10,
        pageTextStyle: {color: colour('soft')},
        inactiveColor: colour('line'),
    };
}

function tooltip(formatter) {
    return {
        trigger: 'item',
        confine: true,
        formatter,
        backgroundColor: colour('raised'),
        borderColor: colour('line'),
        textStyle: {color: colour('text'), fontSize: 13},
    };
}

function extent(values) {
    let low = Infinity;
    let high = -Infinity;
    for (const value of values) {
        low = Math.min(low, value);
        high = Math.max(high, value);
    }
    return [low, high];
}

// Points as one typed array: 20,000 of them are drawn without an object each.
function cloud(rows, x, y) {
    const flat = new Float64Array(2 * rows.length);
    rows.forEach((row, i) => {
        flat[2 * i] = Math.log10(x(row));
        flat[2 * i + 1] = Math.log10(y(row));
    });
    return {
        type: 'scatter',
        name: 'measured',
        dimensions: ['x', 'y'],
        data: flat,
        symbolSize: rows.length > 2000 ? 3 : 6,
        rows,
        large: rows.length > 2000,
        largeThreshold: 2000,
        progressive: 0,
        itemStyle: {color: colour('point'), opacity: rows.length > 2000 ? 0.45 : 0.65},
    };
}

const MARKS = {best: 'triangle', default: 'diamond'};

function marks(name, rows, x, y) {
    return {
        type: 'scatter',
        name,
        symbol: MARKS[name],
        symbolSize: 14,
        z: name === 'best' ? 6 : 5,
        rows,
        data: rows.map((row) => [Math.log10(x(row)), Math.log10(y(row))]),
        itemStyle: {color: colour(name), borderColor: colour('panel'), borderWidth: 1},
    };
}

// The rows of the shapes' best or default configurations, in the view's order.
function markedRows(view, name) {
    return view.shapes
        .map((i) => view.ready.rowOf(i, view.group.shapes[i][name]))
        .filter((row) => row !== undefined);
}

const NOTHING = 'No configuration was measured here.';
