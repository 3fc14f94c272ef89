/* The charts of all that was measured: roofline, two parameters, all parameters, distribution.
 * Each is a function from (view, choices) to what its section shows; page.js says what that may
 * be. */

/* --- 1: roofline --------------------------------------------------------------------------- */

const LIMITS_MISSING =
    'No ceilings are drawn: the limits of this GPU are not known here. "tunectl devices ' +
    '--measure" measures them on a machine with this GPU; a new report then has them.';
const BYTES_MISSING =
    'The bytes of this kernel are not known here: its manifest is not installed, or is another ' +
    'version.';

function drawRoofline(view, choices) {
    const shapes = view.shapes.map((i) => view.group.shapes[i]);
    if (!shapes.some((shape) => shape.flops > 0)) {
        return drawBandwidth(view);
    }
    const rows = view.group.rows;
    const flops = (row) => view.group.shapes[view.ready.shape[row]].flops;
    const bytes =
        choices.bytes === 'requested'
            ? (row) => rows.requested_bytes[row]
            : (row) => view.group.shapes[view.ready.shape[row]].bytes;
    const drawn = view.ok.filter((row) => flops(row) > 0 && bytes(row) > 0);
    if (drawn.length === 0) {
        return {say: [BYTES_MISSING]};
    }
    return rooflineOf(
        view,
        drawn,
        (row) => flops(row) / bytes(row),
        (row) => (1e9 * flops(row)) / view.ready.ns[row],
    );
}

function rooflineOf(view, drawn, x, y) {
    const limits = view.group.limits;
    const inDrawn = (row) => drawn.includes(row);
    const best = markedRows(view, 'best').filter(inDrawn);
    const standard = markedRows(view, 'default').filter(inDrawn);
    const ridge = limits ? [limits.flops / limits.dram_bytes_per_s] : [];
    const spanX = extent(Array.from(drawn, x).concat(ridge));
    const spanY = extent(Array.from(drawn, y).concat(limits ? [limits.flops] : []));
    spanX[0] = limits ? Math.min(spanX[0] / 1.3, ridge[0] / 4) : spanX[0] / 1.3;
    spanX[1] *= limits && spanX[1] === ridge[0] ? 4 : 1.3;
    const series = [
        cloud(drawn, x, y),
        marks('best', best, x, y),
        marks('default', standard, x, y),
    ];
    const names = ['measured', 'best', 'default'];
    if (limits) {
        series.push(ceiling(limits, spanX));
        names.push('ceilings');
    }
    const option = {
        grid: grid({top: 58}),
        legend: legend(names),
        title: nameOfY('speed', 28),
        series,
        tooltip: tooltip((at) => rooflineTip(view, series[at.seriesIndex], at.dataIndex, x, y)),
        xAxis: logAxis(
            spanX[0],
            spanX[1],
            digits,
            'arithmetic intensity, flop per byte of DRAM traffic',
        ),
        yAxis: logAxis(spanY[0], 1.2 * spanY[1], flopsText),
    };
    const extra = {
        head: ['#Speed', '#Intensity'],
        cells: (row) => [flopsText(y(row)), digits(x(row))],
    };
    return {
        option,
        height: 440,
        table: () => rowsTable(view, drawn, extra),
        say: rooflineWords(view, drawn, best, x, y),
    };
}

// The lower of the two limits at each intensity, each named on its own part.
function ceiling(limits, span) {
    const slope = Math.log10(limits.dram_bytes_per_s);
    const flat = Math.log10(limits.flops);
    const ridge = flat - slope;
    const from = Math.log10(span[0]);
    const to = Math.log10(span[1]);
    const label = (text, position) => ({
        show: true,
        formatter: () => text,
        position,
        color: colour('text'),
        fontSize: 12,
    });
    const onSlope = from + 0.45 * (ridge - from);
    return {
        type: 'line',
        name: 'ceilings',
        symbolSize: 0.1,
        symbol: 'circle',
        showAllSymbol: true,
        z: 4,
        silent: true,
        lineStyle: {color: colour('text'), width: 1.5},
        itemStyle: {color: colour('text')},
        data: [
            {value: [from, from + slope]},
            {
                value: [onSlope, onSlope + slope],
                label: label('DRAM ' + bandText(limits.dram_bytes_per_s), 'right'),
            },
            {value: [ridge, flat]},
            {
                value: [ridge + 0.5 * (to - ridge), flat],
                label: label(flopsText(limits.flops), 'top'),
            },
            {value: [to, flat]},
        ],
    };
}

function rooflineTip(view, series, index, x, y) {
    const row = series.rows[index];
    const title =
        (series.name === 'measured' ? '' : series.name + ': ') +
        flopsText(y(row)) +
        ' at ' +
        digits(x(row)) +
        ' flop/B';
    return rowTip(view, row, title);
}

function rooflineWords(view, drawn, best, x, y) {
    const words = [plural(drawn.length, view.noun) + ' drawn.'];
    if (drawn.length < view.ok.length) {
        words.push(countText(view.ok.length - drawn.length) + ' without known bytes left out.');
    }
    const limits = view.group.limits;
    if (!limits) {
        return words.concat(LIMITS_MISSING);
    }
    if (best.length === 1) {
        const roof = Math.min(x(best[0]) * limits.dram_bytes_per_s, limits.flops);
        const which = roof < limits.flops ? 'DRAM bandwidth' : 'arithmetic';
        words.push(
            'The best reaches ' + percentText(y(best[0]) / roof) + ' of what ' + which + ' allows.',
        );
    }
    return words.concat(limitsWords(view));
}

function limitsWords(view) {
    const from =
        view.group.limits.from === 'measured'
            ? 'measured on this GPU model here'
            : 'measured on this GPU model elsewhere, and shipped with tunerd';
    return 'The ceilings are ' + from + '.';
}

// A kernel without arithmetic that counts: how near it comes to a copy, shape by shape.
function drawBandwidth(view) {
    const limits = view.group.limits;
    const known = view.shapes.filter((i) => view.group.shapes[i].bytes > 0);
    if (known.length === 0) {
        return {say: [BYTES_MISSING]};
    }
    const scale = limits ? 1 / limits.dram_bytes_per_s : 1;
    const text = limits ? percentText : bandText;
    const reached = (i, name) => {
        const row = view.ready.rowOf(i, view.group.shapes[i][name]);
        return row === undefined
            ? null
            : (scale * 1e9 * view.group.shapes[i].bytes) / view.ready.ns[row];
    };
    const labels = known.map((i) => view.group.shapes[i].label);
    const bar = (name) => ({
        type: 'bar',
        name,
        data: known.map((i) => reached(i, name)),
        barMaxWidth: 22,
        itemStyle: {color: colour(name)},
        markLine: name === 'best' && limits ? fullLine() : undefined,
    });
    const value = axis(
        'value',
        limits ? 'share of the bandwidth of a copy' : 'bytes moved per second',
    );
    value.axisLabel.formatter = text;
    value.max = limits ? (at) => Math.max(1.05, at.max) : undefined;
    const option = {
        grid: grid({top: 40}),
        legend: legend(['best', 'default']),
        series: [bar('best'), bar('default')],
        tooltip: tooltip((at) =>
            makeTip(at.seriesName + ': ' + text(at.value), [labels[at.dataIndex]]),
        ),
        xAxis: value,
        yAxis: Object.assign(axis('category'), {data: labels, inverse: true}),
    };
    const table = () => ({
        caption: 'Bytes each operand once, per second',
        head: ['Shape', '#Best', '#Default'],
        rows: known.map((i, k) =>
            [labels[k]].concat(
                ['best', 'default'].map((name) =>
                    reached(i, name) === null ? null : text(reached(i, name)),
                ),
            ),
        ),
    });
    const say = [
        'This kernel computes little: what counts is how near it comes to a plain copy.',
        limits ? limitsWords(view) : LIMITS_MISSING,
    ];
    return {option, height: 110 + 46 * known.length, table, say};
}

function fullLine() {
    return {
        silent: true,
        symbol: 'none',
        data: [{xAxis: 1}],
        label: {show: false},
        lineStyle: {color: colour('text'), type: 'solid'},
    };
}

/* --- 2: heat map --------------------------------------------------------------------------- */

// The parameters, those that matter most first, as far as that is known.
function byImportance(view) {
    const params = view.group.params.map((_, i) => i);
    const known = importanceOf(view);
    return known ? params.sort((a, b) => known.shares[b] - known.shares[a] || a - b) : params;
}

function paramOptions(view) {
    return view.group.params.map((param, i) => [String(i), param.name]);
}

function drawHeat(view, choices) {
    const x = Number(choices.x);
    const y = Number(choices.y);
    const isLine = x === y;
    const valuesX = distinctValues(view, x);
    const valuesY = isLine ? [null] : distinctValues(view, y);
    const cells = heatCells(view, x, y, valuesX, valuesY);
    const measured = cells.filter((cell) => cell.values.length > 0);
    if (measured.length === 0) {
        return {say: [NOTHING]};
    }
    measured.forEach((cell) => {
        cell.values.sort((a, b) => a - b);
        cell.value = choices.of === 'best' ? cell.values[0] : median(cell.values);
    });
    const names = {
        x: view.group.params[x].name,
        y: isLine ? '' : view.group.params[y].name,
        textsX: valuesX.map((value) => valueText(view.group, x, value)),
        textsY: isLine ? [''] : valuesY.map((value) => valueText(view.group, y, value)),
    };
    const option = heatOption(view, cells, measured, names);
    return {
        option,
        height: Math.min(Math.max(150 + 38 * valuesY.length, 220), 640),
        table: () => heatTable(view, measured, names),
        say: heatWords(cells, measured, view, names),
    };
}

function heatCells(view, x, y, valuesX, valuesY) {
    const cells = valuesY.flatMap((_, j) =>
        valuesX.map((__, i) => ({i, j, values: [], failed: 0, value: NaN})),
    );
    const placeX = new Map(valuesX.map((value, i) => [value, i]));
    const placeY = new Map(valuesY.map((value, j) => [value, j]));
    for (let row = 0; row < view.ready.count; row++) {
        if (!view.isAll && view.ready.shape[row] !== view.shape) {
            continue;
        }
        const config = view.group.configs[view.ready.config[row]];
        const j = valuesY[0] === null ? 0 : placeY.get(config[y]);
        const cell = cells[j * valuesX.length + placeX.get(config[x])];
        if (!view.ready.isOk(row)) {
            cell.failed++;
        } else if (view.ready.speaks(row)) {
            cell.values.push(view.value(row));
        }
    }
    return cells;
}

function heatOption(view, cells, measured, names) {
    const [low, high] = extent(measured.map((cell) => Math.log10(cell.value)));
    // A few percent are no reason for all colours.
    const width = Math.max(high - low, Math.log10(1.1));
    const hasRoom = names.textsX.length <= (isNarrow() ? 5 : 14);
    const data = measured.map((cell) => ({
        value: [cell.i, cell.j, Math.log10(cell.value)],
        cell,
        label: {
            show: hasRoom,
            color: inkOn(scaleColour((Math.log10(cell.value) - low) / width)),
            formatter: () => view.text(cell.value),
        },
    }));
    const empty = cells.filter((cell) => cell.values.length === 0);
    return {
        grid: grid({bottom: 78, top: 26}),
        title: nameOfY(names.y),
        tooltip: tooltip((at) => heatTip(view, at.data.cell, names)),
        visualMap: {
            type: 'continuous',
            min: low,
            max: low + width,
            dimension: 2,
            seriesIndex: 0,
            calculable: false,
            orient: 'horizontal',
            left: 'center',
            bottom: 0,
            itemHeight: 160,
            itemWidth: 12,
            inRange: {color: SCALE},
            text: [view.text(Math.pow(10, low + width)), view.text(Math.pow(10, low))],
            textStyle: {color: colour('soft')},
            hoverLink: false,
        },
        xAxis: Object.assign(axis('category', names.x), {data: names.textsX}),
        yAxis: Object.assign(axis('category'), {data: names.textsY}),
        series: [
            {
                type: 'heatmap',
                data,
                itemStyle: {borderColor: colour('panel'), borderWidth: 1},
                progressive: 0,
            },
            emptyCells(
                'failed',
                empty.filter((cell) => cell.failed > 0),
            ),
            emptyCells(
                'untried',
                empty.filter((cell) => cell.failed === 0),
            ),
        ],
    };
}

// Not a colour of the scale: a cross where all failed, a dot where nothing was tried.
function emptyCells(name, cells) {
    const isFailed = name === 'failed';
    const text = isFailed ? '×' : '·';
    return {
        type: 'scatter',
        name,
        symbol: 'rect',
        symbolSize: 22,
        itemStyle: {color: 'transparent'},
        label: {
            show: true,
            formatter: () => text,
            color: colour(isFailed ? 'failed' : 'soft'),
            fontSize: isFailed ? 16 : 14,
        },
        data: cells.map((cell) => ({value: [cell.i, cell.j], cell})),
    };
}

function heatTip(view, cell, names) {
    const title =
        cell.values.length > 0
            ? view.text(cell.value)
            : cell.failed > 0
              ? 'all failed'
              : 'not tried';
    return makeTip(title, [
        names.x + '=' + names.textsX[cell.i],
        names.y && names.y + '=' + names.textsY[cell.j],
        cell.values.length + ' measured, ' + cell.failed + ' failed',
    ]);
}

function heatTable(view, measured, names) {
    return {
        caption: 'Cells, fastest first',
        head: [names.x, names.y || '–', '#Time', '#Measured', '#Failed'],
        rows: measured
            .slice()
            .sort((a, b) => a.value - b.value)
            .slice(0, state.isPaper ? 20 : 100)
            .map((cell) => [
                names.textsX[cell.i],
                names.textsY[cell.j],
                view.text(cell.value),
                cell.values.length,
                cell.failed,
            ]),
    };
}

function heatWords(cells, measured, view, names) {
    const best = measured.reduce((a, b) => (a.value <= b.value ? a : b));
    const where =
        names.x +
        '=' +
        names.textsX[best.i] +
        (names.y ? ' ' + names.y + '=' + names.textsY[best.j] : '');
    const failed = cells.filter((cell) => cell.values.length === 0 && cell.failed > 0).length;
    const untried = cells.length - measured.length - failed;
    const words = ['Fastest cell: ' + where + ', ' + view.text(best.value) + '.'];
    if (failed > 0) {
        words.push('×: all failed (' + plural(failed, 'cell') + ').');
    }
    if (untried > 0) {
        words.push('·: not tried (' + plural(untried, 'cell') + ').');
    }
    return words;
}

/* --- 3: parallel coordinates --------------------------------------------------------------- */

const CATEGORIES_MOST = 40;
const PAPER_LINES_MOST = 2000; // each is a path in the document; 20,000 take 10 seconds to print

function drawParallel(view, choices, paper) {
    const params = view.group.params
        .map((_, i) => i)
        .filter((i) => distinctValues(view, i).length > 1);
    if (view.ok.length === 0) {
        return {say: [NOTHING]};
    }
    const fastest = fastestFirst(view, view.ok).slice(0, paper ? PAPER_LINES_MOST : undefined);
    const rows = fastest.reverse(); // the fastest are drawn last, above the others
    const axes = params.map((i) => parallelAxis(view, i));
    const [low, high] = extent(rows.map(view.value));
    axes.push(logAxis(low, high, view.text, view.isAll ? '× best' : 'time'));
    const data = rows.map((row) =>
        axes.map((at) => (at.of ? at.of(row) : Math.log10(view.value(row)))),
    );
    const tenth = Math.log10(view.value(rows[Math.floor(0.9 * (rows.length - 1))]));
    const isMany = rows.length > 2000;
    const option = {
        tooltip: {show: false},
        parallel: {
            left: 34,
            right: 74,
            top: 54,
            bottom: 22,
            parallelAxisDefault: {
                areaSelectStyle: {width: 18, color: colour('accent')},
                realtime: !isMany,
            },
        },
        parallelAxis: axes.map((at, k) => parallelLook(at, k, k + 1 === axes.length)),
        visualMap: {
            show: false,
            type: 'piecewise',
            dimension: axes.length - 1,
            pieces: [
                {lte: tenth, color: colour('best')},
                {gt: tenth, color: colour('point')},
            ],
        },
        series: [
            {
                type: 'parallel',
                data,
                inactiveOpacity: 0.03,
                activeOpacity: isMany ? 0.5 : 0.7,
                lineStyle: {width: 1.2, opacity: isMany ? 0.25 : 0.5},
                progressive: paper ? 0 : 500,
                progressiveThreshold: 2000,
            },
        ],
    };
    return {
        option,
        height: 380,
        least: 56 * axes.length,
        say: parallelWords(view, params, rows.length),
        after: (chart, card) => watchBrush(view, rows, axes.length - 1, choices.keep, chart, card),
    };
}

// A few values stand at even distances, as they mostly are powers of two; many, where they are.
function parallelAxis(view, param) {
    const values = distinctValues(view, param);
    const valueOf = (row) => view.group.configs[view.ready.config[row]][param];
    if (values.length > CATEGORIES_MOST) {
        const [low, high] = extent(values);
        return Object.assign(axis('value', view.group.params[param].name), {
            min: low,
            max: high,
            of: valueOf,
        });
    }
    const place = new Map(values.map((value, i) => [value, i]));
    return Object.assign(axis('category', view.group.params[param].name), {
        data: values.map((value) => valueText(view.group, param, value)),
        of: (row) => place.get(valueOf(row)),
    });
}

// Names stand in two rows, so that long ones do not run into their neighbours.
function parallelLook(at, index, isTime) {
    return Object.assign({}, at, {
        dim: index,
        nameLocation: 'end',
        nameTruncate: {maxWidth: 160},
        nameGap: index % 2 ? 10 : 26,
        nameTextStyle: {color: colour(isTime ? 'best' : 'text'), fontSize: 12},
        axisLabel: Object.assign({}, at.axisLabel, {
            color: colour('text'),
            fontSize: 11,
            textBorderColor: colour('panel'),
            textBorderWidth: 2,
        }),
        splitLine: {show: false},
        axisLine: {show: true, onZero: false, lineStyle: {color: colour('soft')}},
    });
}

function parallelWords(view, params, count) {
    const fixed = view.group.params.map((_, i) => i).filter((i) => !params.includes(i));
    const words = ['The fastest tenth stands out. Drag along an axis to keep what passes there.'];
    if (count < view.ok.length) {
        words.push('The fastest ' + countText(count) + ' are drawn.');
    }
    if (fixed.length > 0) {
        words.push(
            'The same everywhere: ' +
                configText(view.group, view.ready.config[view.ok[0]], fixed) +
                '.',
        );
    }
    return words;
}

// Lists what is brushed; `keep` is the share of the fastest, the brush for those without a pointer.
function watchBrush(view, rows, timeAxis, keep, chart, card) {
    const list = () => {
        const series = chart.getModel().getSeries()[0];
        const isBrushed = chart
            .getModel()
            .queryComponents({mainType: 'parallelAxis'})
            .some((at) => at.activeIntervals.length > 0);
        showBrushed(
            view,
            isBrushed ? series.getRawIndicesByActiveState('active').map((i) => rows[i]) : rows,
            isBrushed,
            card,
        );
    };
    chart.off('axisareaselected');
    chart.on('axisareaselected', list);
    if (keep !== 'all') {
        const last = view.value(
            rows[rows.length - Math.max(1, Math.floor(rows.length * Number(keep)))],
        );
        const span = [chart.getOption().parallelAxis[timeAxis].min, Math.log10(last) + 1e-9];
        chart.dispatchAction({
            type: 'axisAreaSelect',
            parallelAxisIndex: timeAxis,
            intervals: [span],
        });
        chart.resize(); // draws the brush itself, which an action leaves alone
    }
    list();
}

function showBrushed(view, chosen, isBrushed, card) {
    const words = isBrushed
        ? plural(chosen.length, view.noun) + ' of ' + countText(view.ok.length) + ' brushed'
        : 'All ' + plural(chosen.length, view.noun);
    const times = chosen.map(view.value).sort((a, b) => a - b);
    const about =
        chosen.length > 0
            ? ': best ' + view.text(times[0]) + ', median ' + view.text(median(times)) + '.'
            : ': nothing passes there.';
    const clear = make('button', {type: 'button', class: 'clear'}, 'Clear the brush');
    clear.disabled = !isBrushed;
    clear.addEventListener('click', () => {
        card.choices.keep = 'all';
        render(card);
    });
    const table = makeTable(rowsTable(view, chosen, null, 12));
    card.extra.replaceChildren(
        make('p', {class: 'brushed', role: 'status'}, words + about),
        clear,
        makeScroll(table),
    );
}

/* --- 4: distribution of times -------------------------------------------------------------- */

function drawDistribution(view) {
    if (view.ok.length === 0) {
        return {say: [NOTHING]};
    }
    const logs = Float64Array.from(view.ok, (row) => Math.log10(view.value(row))).sort();
    const low = logs[0];
    const width = Math.max(logs[logs.length - 1] - low, 0.002); // equal times are a bar too
    const count = Math.min(Math.max(Math.round(Math.sqrt(logs.length)), 8), 60);
    const bins = new Array(count).fill(0);
    logs.forEach((at) => bins[Math.min(Math.floor(((at - low) / width) * count), count - 1)]++);
    const edge = (k) => Math.pow(10, low + (width * k) / count);
    const option = {
        grid: grid({top: 58}),
        title: nameOfY(view.noun + 's'),
        tooltip: tooltip((at) =>
            at.seriesType !== 'custom'
                ? makeTip(at.name, [])
                : makeTip(plural(bins[at.dataIndex], view.noun), [
                      view.text(edge(at.dataIndex)) + ' to ' + view.text(edge(at.dataIndex + 1)),
                  ]),
        ),
        xAxis: logAxis(edge(0), edge(count), view.text, view.measure),
        yAxis: Object.assign(axis('value'), {minInterval: 1}),
        series: [histogram(bins, low, width / count, distributionLines(view))],
    };
    const table = () => ({
        caption: 'By time',
        head: ['#From', '#To', '#' + view.noun + 's'],
        rows: bins
            .map((n, k) => [view.text(edge(k)), view.text(edge(k + 1)), n])
            .filter((cells) => cells[2] > 0),
    });
    const middle = Math.pow(10, median(logs));
    const near = logs.filter((at) => at <= low + Math.log10(1.1)).length;
    return {
        option,
        height: 320,
        table,
        say: [
            'Half of the ' +
                view.noun +
                's take less than ' +
                view.text(middle) +
                '; ' +
                plural(near, 'lies', 'lie') +
                ' within 10 % of the fastest.',
        ],
    };
}

// Bars from edge to edge; the library's own stand on categories, where no line can be put between.
function histogram(bins, low, step, lines) {
    return {
        type: 'custom',
        name: 'measured',
        data: bins.map((n, k) => [low + step * (k + 0.5), n, k]),
        encode: {x: 0, y: 1},
        itemStyle: {color: colour('point')},
        markLine: lines,
        clip: true,
        renderItem: (params, api) => {
            const n = api.value(1);
            const [left, top] = api.coord([low + step * api.value(2), n]);
            const [right, bottom] = api.coord([low + step * (api.value(2) + 1), 0]);
            return {
                type: 'rect',
                shape: {
                    x: left,
                    y: top,
                    width: Math.max(right - left - 1, 1),
                    height: bottom - top,
                },
                style: {fill: colour('point')},
            };
        },
    };
}

function distributionLines(view) {
    const line = (name, position) =>
        markedRows(view, name)
            .slice(0, view.isAll ? 0 : 1)
            .map((row) => ({
                name: name + ' ' + view.text(view.value(row)),
                xAxis: Math.log10(view.value(row)),
                lineStyle: {color: colour(name)},
                label: {
                    color: colour(name),
                    formatter: () => name,
                    position,
                    distance: name === 'best' ? 4 : 16,
                },
            }));
    return {
        symbol: 'none',
        data: line('best', 'end').concat(line('default', 'end')),
        lineStyle: {width: 2, type: 'solid'},
    };
}
