/* The charts of what came of it: importance, convergence, outcomes, ties, one configuration for
 * all shapes; and provenance and headline, which are text. */

/* --- 5: importance ------------------------------------------------------------------------- */

function importanceOf(view) {
    return (view.group.importance || []).find((entry) =>
        view.isAll ? entry.shape === null : entry.shape === view.shape,
    );
}

function drawImportance(view) {
    const known = importanceOf(view);
    if (!known) {
        return {
            say: ['Too few configurations were measured here to tell the parameters apart.'],
        };
    }
    const order = byImportance(view);
    const names = order.map((i) => view.group.params[i].name).concat('rest');
    const shares = order.map((i) => known.shares[i]).concat(known.rest);
    const value = axis('value', 'share of the variance of log(time)');
    Object.assign(value, {min: 0, max: (at) => Math.min(1, Math.max(0.1, at.max * 1.15))});
    Object.assign(value.axisLabel, {formatter: percentText, showMaxLabel: false});
    const option = {
        grid: grid({top: 8, right: 56}),
        tooltip: tooltip((at) =>
            makeTip(names[at.dataIndex] + ': ' + percentText(shares[at.dataIndex]), [
                at.dataIndex < order.length
                    ? view.group.params[order[at.dataIndex]].meaning
                    : 'what no parameter explains alone',
            ]),
        ),
        xAxis: value,
        yAxis: Object.assign(axis('category'), {
            data: names,
            inverse: true,
            axisLabel: {color: colour('text')},
        }),
        series: [
            {
                type: 'bar',
                barMaxWidth: 18,
                label: {
                    show: true,
                    position: 'right',
                    color: colour('text'),
                    formatter: (at) => percentText(at.value),
                },
                data: shares.map((share, k) => ({
                    value: share,
                    itemStyle: {color: colour(k < order.length ? 'accent' : 'line')},
                })),
            },
        ],
    };
    const table = () => ({
        caption: 'From ' + plural(known.rows, 'measurement'),
        head: ['Parameter', '#Share', 'Meaning'],
        wide: 2,
        rows: names.map((name, k) => [
            name,
            percentText(shares[k]),
            k < order.length ? view.group.params[order[k]].meaning || '' : '',
        ]),
    });
    return {
        option,
        height: 60 + 26 * names.length,
        table,
        say: [
            'From ' +
                plural(known.rows, 'measurement') +
                '. "rest": what no parameter explains alone, ' +
                'that is, combinations of parameters, and noise.',
        ].concat(sharesWords(known)),
    };
}

// What was measured is seldom a full grid: constraints and the search tie parameters together.
function sharesWords(known) {
    return known.shares.reduce((sum, share) => sum + share, 0) > 1.01
        ? [
              'The shares add up to more than 100 %: parameters changed together here, and what ' +
                  'they explain together counts for each.',
          ]
        : [];
}

/* --- 6: convergence ------------------------------------------------------------------------ */

const LINES_MOST = 40;

// A job's search, what it measured again, and its confirmation are one line for each shape.
function runsOf(view) {
    const runs = new Map();
    for (let row = 0; row < view.ready.count; row++) {
        if (!view.isAll && view.ready.shape[row] !== view.shape) {
            continue;
        }
        const name = view.group.runs[view.group.rows.run[row]].replace(/\/(search|again|confirm)$/, '');
        const key = view.ready.shape[row] + ' ' + name;
        if (!runs.has(key)) {
            runs.set(key, {name, shape: view.ready.shape[row], rows: []});
        }
        runs.get(key).rows.push(row);
    }
    return Array.from(runs.values()).sort((a, b) => b.rows.length - a.rows.length);
}

// Only the steps: where the best changed, and the end. Failures count as evaluations. A row whose
// time of day is not known has no place over seconds.
function staircase(view, run, bySeconds) {
    const clock = view.group.rows.time_ms;
    const rows = bySeconds ? run.rows.filter((row) => clock[row] !== null) : run.rows;
    const steps = [];
    let best = Infinity;
    rows.forEach((row, k) => {
        const at = bySeconds ? (clock[row] - clock[rows[0]]) / 1000 : k + 1;
        if (view.ready.isOk(row) && view.value(row) < best) {
            best = view.value(row);
            steps.push([at, Math.log10(best)]);
        } else if (k + 1 === rows.length && steps.length > 0) {
            steps.push([at, Math.log10(best)]);
        }
    });
    return steps;
}

function drawConvergence(view, choices) {
    const bySeconds = choices.over === 'seconds';
    const runs = runsOf(view)
        .map((run) => Object.assign(run, {steps: staircase(view, run, bySeconds)}))
        .filter((run) => run.steps.length > 0);
    if (runs.length === 0) {
        return {say: [NOTHING]};
    }
    const shown = runs.slice(0, LINES_MOST);
    const label = (run) => run.name + (view.isAll ? ', ' + view.group.shapes[run.shape].label : '');
    const [low, high] = extent(
        shown.flatMap((run) => run.steps.map((step) => Math.pow(10, step[1]))),
    );
    const option = {
        grid: grid({top: 28}),
        title: nameOfY(view.isAll ? 'best so far, × best of its shape' : 'best so far'),
        color: ['accent', 'best', 'tie', 'default', 'point', 'failed'].map(colour),
        tooltip: tooltip((at) =>
            makeTip(view.text(Math.pow(10, at.value[1])), [
                bySeconds
                    ? 'after ' + digits(at.value[0]) + ' s'
                    : 'after ' + plural(at.value[0], 'evaluation'),
                label(shown[at.seriesIndex]),
            ]),
        ),
        xAxis: Object.assign(
            axis(
                'value',
                bySeconds ? 'seconds since the first evaluation of the run' : 'evaluations',
            ),
            {min: 0},
        ),
        yAxis: logAxis(low, high, view.text),
        series: shown.map((run) => ({
            type: 'line',
            name: label(run),
            step: 'end',
            data: run.steps,
            symbolSize: shown.length > 8 ? 3 : 6,
            lineStyle: {width: 1.8},
        })),
    };
    const table = () => ({
        caption: 'Runs',
        head: [
            'Run',
            '#Evaluations',
            '#First',
            '#Best',
            bySeconds ? '#Best after, s' : '#Best after',
        ],
        rows: shown.map((run) => [
            label(run),
            run.rows.length,
            view.text(Math.pow(10, run.steps[0][1])),
            view.text(Math.pow(10, run.steps[run.steps.length - 1][1])),
            bySeconds ? digits(lastGain(run.steps)) : countText(lastGain(run.steps)),
        ]),
    });
    const more =
        runs.length > shown.length
            ? [' The ' + LINES_MOST + ' longest of ' + runs.length + ' runs.']
            : [];
    return {
        option,
        height: 340,
        table,
        say: [
            plural(runs.length, 'run') + '; failed evaluations count, as they take their time too.',
        ].concat(more),
    };
}

function lastGain(steps) {
    const last = steps[steps.length - 1][1];
    return steps.find((step) => step[1] === last)[0];
}

/* --- 7: outcomes --------------------------------------------------------------------------- */

function drawOutcomes(view) {
    const counts = new Map();
    const details = new Map();
    for (let row = 0; row < view.ready.count; row++) {
        if (!view.isAll && view.ready.shape[row] !== view.shape) {
            continue;
        }
        const name = view.group.outcomes[view.ready.outcome[row]];
        counts.set(name, (counts.get(name) || 0) + 1);
        if (name !== 'ok') {
            const key = JSON.stringify([name, view.group.rows.detail[row] || '']);
            details.set(key, (details.get(key) || 0) + 1);
        }
    }
    const sorted = Array.from(counts).sort((a, b) => b[1] - a[1]);
    if (sorted.length === 0) {
        return {say: ['Nothing was tried here.']};
    }
    const total = sorted.reduce((sum, entry) => sum + entry[1], 0);
    const table = () => ({
        caption: 'Outcomes',
        head: ['Outcome', '#Measurements'],
        rows: sorted.map(([name, count]) => [name, countText(count)]),
    });
    return {
        option: outcomeOption(sorted, total),
        height: 66 + 32 * sorted.length,
        table,
        element: detailTable(details),
        say: [
            countText(counts.get('ok') || 0) +
                ' of ' +
                plural(total, 'measurement') +
                ' gave a time; those that confirm the best count too.',
        ],
    };
}

function outcomeOption(sorted, total) {
    const text = (at) => countText(at.value) + ' (' + percentText(at.value / total) + ')';
    return {
        grid: grid({top: 8, right: 96}),
        tooltip: tooltip((at) => makeTip(at.name, [text(at)])),
        xAxis: Object.assign(axis('value', 'measurements'), {minInterval: 1}),
        yAxis: Object.assign(axis('category'), {
            data: sorted.map((entry) => entry[0]),
            inverse: true,
            axisLabel: {color: colour('text')},
        }),
        series: [
            {
                type: 'bar',
                barMaxWidth: 20,
                label: {show: true, position: 'right', color: colour('text'), formatter: text},
                data: sorted.map(([name, count]) => ({
                    value: count,
                    itemStyle: {color: colour(name === 'ok' ? 'accent' : 'failed')},
                })),
            },
        ],
    };
}

function detailTable(details) {
    const commonest = Array.from(details)
        .sort((a, b) => b[1] - a[1])
        .slice(0, 20);
    if (commonest.length === 0) {
        return null;
    }
    return makeScroll(
        makeTable({
            caption: 'Why they failed, the commonest first',
            head: ['#Times', 'Outcome', 'Reason'],
            wide: 2,
            rows: commonest.map(([key, count]) => [
                countText(count),
                JSON.parse(key)[0],
                JSON.parse(key)[1] || '–',
            ]),
        }),
    );
}

/* --- 8: ties and intervals ----------------------------------------------------------------- */

// Lines, each with a configuration, or with the best and the default of a shape.
const TIES_MOST = 30;

// Of one shape: best, ties, default. Of all shapes: each shape's best and default.
function contenders(view) {
    const found = [];
    for (const i of view.shapes.slice(0, TIES_MOST)) {
        const shape = view.group.shapes[i];
        const add = (role, config) => {
            const row = view.ready.rowOf(i, config);
            if (row !== undefined && !found.some((other) => other.row === row)) {
                found.push({role, row, shape: i});
            }
        };
        add('best', shape.best);
        (view.isAll ? [] : shape.ties || []).forEach((config) => add('tie', config));
        add('default', shape.default);
    }
    return found;
}

function drawTies(view) {
    const all = contenders(view);
    if (all.length === 0) {
        return {say: ['No best configuration is known here.']};
    }
    const isLong = !view.isAll && all.length > TIES_MOST;
    const shown = isLong ? all.slice(0, TIES_MOST - 1).concat(all[all.length - 1]) : all;
    const rows = view.group.rows;
    const scaleOf = (row) => (view.isAll ? 1 / view.ready.bestNs[view.ready.shape[row]] : 1);
    shown.forEach((one, k) => {
        one.line = view.isAll ? view.shapes.indexOf(one.shape) : k;
        one.low = (rows.lo_ns[one.row] || view.ready.ns[one.row]) * scaleOf(one.row);
        one.high = (rows.hi_ns[one.row] || view.ready.ns[one.row]) * scaleOf(one.row);
    });
    const [low, high] = extent(shown.flatMap((one) => [one.low, one.high, view.value(one.row)]));
    const labels = tieLabels(view, shown);
    const option = {
        grid: grid({top: 34}),
        legend: legend(
            ['best', 'tie', 'default'].filter((role) => shown.some((one) => one.role === role)),
        ),
        tooltip: tooltip((at) => rowTip(view, (at.data.one || shown[at.dataIndex]).row)),
        xAxis: logAxis(low, high, view.text, view.measure + ', with its 95 % interval'),
        yAxis: Object.assign(axis('category'), {
            data: labels.map((_, k) => String(k)),
            inverse: true,
            axisLabel: {
                color: colour('text'),
                width: isNarrow() ? 130 : 320,
                overflow: 'truncate',
                formatter: (k) => labels[Number(k)],
            },
        }),
        series: [errorBars(shown)].concat(
            ['best', 'tie', 'default'].map((role) => tiePoints(view, shown, role)),
        ),
    };
    return {
        option,
        height: 100 + 26 * labels.length,
        table: () =>
            rowsTable(
                view,
                shown.map((one) => one.row),
            ),
        say: tieWords(view, all, shown),
    };
}

function tieLabels(view, shown) {
    if (view.isAll) {
        return view.shapes.slice(0, TIES_MOST).map((i) => view.group.shapes[i].label);
    }
    if (isNarrow()) {
        return shown.map((one, k) => (one.role === 'tie' ? 'tie ' + k : one.role));
    }
    const params = differing(
        view.group,
        shown.map((one) => view.ready.config[one.row]),
    );
    return shown.map(
        (one) => configText(view.group, view.ready.config[one.row], params) || one.role,
    );
}

function errorBars(shown) {
    return {
        type: 'custom',
        name: 'interval',
        z: 2,
        data: shown.map((one) => [Math.log10(one.low), one.line, Math.log10(one.high)]),
        encode: {x: [0, 2], y: 1},
        renderItem: (params, api) => {
            const [left, y] = api.coord([api.value(0), api.value(1)]);
            const right = api.coord([api.value(2), api.value(1)])[0];
            const line = (x1, y1, x2, y2) => ({
                type: 'line',
                shape: {x1, y1, x2, y2},
                style: {stroke: colour('soft'), lineWidth: 1.5},
            });
            return {
                type: 'group',
                children: [
                    line(left, y, right, y),
                    line(left, y - 5, left, y + 5),
                    line(right, y - 5, right, y + 5),
                ],
            };
        },
    };
}

function tiePoints(view, shown, role) {
    const data = shown
        .map((one) => ({value: [Math.log10(view.value(one.row)), one.line], one}))
        .filter((point) => point.one.role === role);
    return {
        type: 'scatter',
        name: role,
        z: 3,
        symbol: MARKS[role] || 'circle',
        symbolSize: role === 'default' ? 9 : 11,
        data,
        itemStyle: {color: colour(role)},
    };
}

function tieWords(view, all, shown) {
    if (view.isAll) {
        return [
            'The best and the default of each shape; pick a shape to see what ties with its best.',
        ];
    }
    const ties = all.filter((one) => one.role === 'tie').length;
    const method = view.group.shapes[view.shape].method;
    const words = [
        ties === 0
            ? 'No other configuration ties with the best.'
            : plural(ties, 'configuration ties', 'configurations tie') +
              ' with the best: their intervals overlap.',
    ];
    if (shown.length < all.length) {
        words.push(countText(shown.length) + ' of ' + countText(all.length) + ' are drawn.');
    }
    return method ? words.concat('Timed by: ' + method + '.') : words;
}

/* --- 9: one configuration for all shapes --------------------------------------------------- */

// Text and colour do this better than a picture of them: it is a table.
function drawLoss(view) {
    const loss = view.group.loss;
    if (!loss || loss.configs.length === 0 || view.group.shapes.length < 2) {
        return {say: ['This needs two shapes or more with configurations in common.']};
    }
    const params = differing(view.group, loss.configs);
    const most = Math.log10(
        1 + Math.min(Math.max(...loss.matrix.flat().filter((x) => x !== null), 0.1), 3),
    );
    const cell = (x) =>
        x === null
            ? null
            : {text: lossText(x), colour: scaleColour(Math.log10(1 + Math.max(x, 0)) / most)};
    const rows = loss.configs.map((config, k) =>
        [
            configText(view.group, config, params),
            loss.matrix[k].filter((x) => x !== null).length,
            cell(loss.worst[k]),
            cell(loss.mean[k]),
        ].concat(loss.matrix[k].map(cell)),
    );
    const table = {
        kind: 'matrix',
        caption: 'Time lost against the best of the shape; "–": not measured there',
        wide: 0,
        head: ['Configuration', '#Shapes', '#Worst', '#Mean'].concat(
            view.group.shapes.map((shape) => '#' + shape.label),
        ),
        rows,
    };
    const words =
        lossText(loss.worst[0]) +
        ' at worst, ' +
        lossText(loss.mean[0]) +
        ' in the geometric mean, over ' +
        plural(rows[0][1], 'shape') +
        '.';
    return {
        element: makeScroll(makeTable(table)),
        say: [
            'What one configuration loses when it is used everywhere. The first row is the best: ' +
                words,
        ],
    };
}

function lossText(x) {
    return x === null || x === undefined ? '–' : (x > 0 ? '+' : '') + percentText(x);
}

/* --- 10: provenance, and the headline ------------------------------------------------------ */

function drawProvenance(view) {
    const from = view.group.provenance;
    const list = (texts) => (texts && texts.length > 0 ? texts.join(', ') : 'not recorded');
    const facts = [
        ['Driver', list(from.drivers)],
        ['NVRTC', list(from.nvrtc)],
        ['Hosts', list(from.hosts)],
        ['GPUs', list(from.uuids)],
        ['First measured', dateText(from.first_unix_ms)],
        ['Last measured', dateText(from.last_unix_ms)],
        ['Rows', countText(from.rows) + ', of which ' + countText(from.ok) + ' ok'],
        ['Throttled samples', countText(from.throttled || 0)],
        [
            'Set aside',
            countText(from.set_aside || 0) +
                ' (never compared: timed by another method, or refused)',
        ],
        ['Fingerprint', view.group.fingerprint || 'not recorded'],
    ];
    const parts = facts.flatMap(([name, text]) => [make('dt', null, name), make('dd', null, text)]);
    return {element: make('dl', {class: 'facts'}, ...parts), say: []};
}

function tile(name, value, note) {
    return make(
        'div',
        {class: 'tile'},
        make('dt', null, name),
        make('dd', null, value, note ? make('span', {class: 'soft'}, note) : null),
    );
}

function showHeadline(view) {
    const group = view.group;
    const from = group.provenance;
    const where = [
        group.device,
        group.arch,
        group.mode && group.mode + ' cache',
        'measured ' + dateText(from.first_unix_ms) + ' to ' + dateText(from.last_unix_ms),
    ];
    const tiles = view.isAll ? tilesOfAll(view) : tilesOfShape(view);
    const failed = from.rows - from.ok;
    tiles.push(
        tile(
            'Measurements',
            countText(from.rows),
            failed > 0 ? countText(failed) + ' without a time' : 'all with a time',
        ),
    );
    tiles.push(
        tile(
            'Configurations',
            countText(group.configs.length),
            'in ' + plural(group.shapes.length, 'shape'),
        ),
    );
    document
        .getElementById('headline')
        .replaceChildren(
            make('h1', null, group.kernel, ' ', make('small', null, group.dtype)),
            make('p', {class: 'soft'}, where.filter(Boolean).join(' · ')),
            group.summary ? make('p', null, group.summary) : '',
            make('dl', {class: 'tiles'}, ...tiles),
        );
    const name = group.kernel + ' ' + group.dtype + ' on ' + group.device;
    document.title = name + ' – tunerd report';
}

function tilesOfShape(view) {
    const [best] = markedRows(view, 'best');
    const [standard] = markedRows(view, 'default');
    const tiles = [];
    if (best !== undefined) {
        const flops = view.group.shapes[view.shape].flops;
        tiles.push(
            tile(
                'Best',
                timeText(view.ready.ns[best]),
                flops > 0 ? flopsText((1e9 * flops) / view.ready.ns[best]) : '',
            ),
        );
    }
    if (best !== undefined && standard !== undefined) {
        tiles.push(
            tile(
                'Default',
                timeText(view.ready.ns[standard]),
                timesText(view.ready.ns[standard] / view.ready.ns[best]) + ' the best',
            ),
        );
    }
    return tiles;
}

function tilesOfAll(view) {
    const gains = markedRows(view, 'default').map(view.value).filter(Number.isFinite);
    if (gains.length === 0) {
        return [];
    }
    const mean = Math.exp(gains.reduce((sum, gain) => sum + Math.log(gain), 0) / gains.length);
    return [
        tile(
            'Best over default',
            timesText(mean),
            'faster, geometric mean of ' + plural(gains.length, 'shape'),
        ),
        tile('Largest gain', timesText(extent(gains)[1]), 'faster than the default'),
    ];
}
