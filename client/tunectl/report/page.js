/* The page of `tunectl report`: draws what the data in the page says, and lets the reader pick and
 * brush. The data's form is told in client/tunectl/report.h.
 *
 * Design: a table of sections, each with a function from (view, choices) to what it shows: an ECharts
 * option, sentences, a table. The view is the group and the shape that are picked. A section is drawn
 * when it comes into sight, and again when something changes; before printing all of them are drawn,
 * in light colours and for the width of paper.
 * To add a section: write its draw function and name it in SECTIONS.
 *
 * Texts in the data come from foreign files: they go into the page as text only, never as HTML. */
(function () {
'use strict';

/* --- words and numbers ------------------------------------------------------------------------- */

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
const flopsText = (rate) => scaled(rate, ['flop/s', 'Kflop/s', 'Mflop/s', 'Gflop/s', 'Tflop/s', 'Pflop/s']);
const bandText = (rate) => scaled(rate, ['B/s', 'KB/s', 'MB/s', 'GB/s', 'TB/s', 'PB/s']);
const timesText = (ratio) => digits(ratio) + '×';
const percentText = (share) => digits(100 * share) + '\u00a0%';
const countText = (count) => WHOLE.format(count);

function plural(count, one, many) {
    return countText(count) + ' ' + (count === 1 ? one : many || one + 's');
}

// UTC, so that two readers of one file see the same.
function dateText(unixMs) {
    const date = new Date(unixMs);
    return Number.isNaN(date.getTime()) ? '–' : date.toISOString().slice(0, 16).replace('T', ' ') + ' UTC';
}

function median(sorted) {
    const middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/* --- elements ---------------------------------------------------------------------------------- */

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
    const kind = (i) => isNumber[i] ? {class: 'number'} : {class: table.wide === i ? 'wide' : 'text'};
    const heads = table.head.map((text, i) =>
        make('th', Object.assign({scope: 'col'}, kind(i)), text.replace(/^#/, '')));
    const body = make('tbody');
    for (const row of table.rows) {
        body.append(make('tr', null, ...row.map((cell, i) => makeCell(cell, kind(i)))));
    }
    return make('table', {class: table.kind || 'plain'}, make('caption', null, table.caption),
        make('thead', null, make('tr', null, ...heads)), body);
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

/* --- colours ----------------------------------------------------------------------------------- */

// Viridis, fast to slow: even steps of lightness, also for those who see fewer colours.
const SCALE = ['#fde725', '#7ad151', '#22a884', '#2a788e', '#414487', '#440154'];

function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
}

function scaleColour(share) {
    const at = Math.min(Math.max(share, 0), 1) * (SCALE.length - 1);
    const low = Math.min(Math.floor(at), SCALE.length - 2);
    const channel = (text, k) => parseInt(text.slice(1 + 2 * k, 3 + 2 * k), 16);
    const mix = (k) => Math.round(channel(SCALE[low], k) * (low + 1 - at) + channel(SCALE[low + 1], k) * (at - low));
    return '#' + [0, 1, 2].map((k) => mix(k).toString(16).padStart(2, '0')).join('');
}

// Black or white, whichever reads better on this colour (WCAG's relative luminance).
function inkOn(hex) {
    const linear = [1, 3, 5].map((i) => Math.pow(parseInt(hex.slice(i, i + 2), 16) / 255, 2.2));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.18 ? '#000000' : '#ffffff';
}

/* --- the data ---------------------------------------------------------------------------------- */

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
        ns: Float64Array.from(rows.median_ns, (ns) => ns === null ? NaN : ns),
    };
    ready.isOk = (row) => ready.outcome[row] === okOutcome && ready.ns[row] > 0;
    ready.ok = Int32Array.from(Array.from(ready.ns.keys()).filter(ready.isOk));
    ready.rowOf = representatives(ready);
    ready.speaks = (row) => ready.rowOf(ready.shape[row], ready.config[row]) === row;
    ready.bestNs = group.shapes.map((shape, i) => bestOfShape(ready, shape, i));
    return ready;
}

// The row that speaks for a configuration of a shape: a confirmed one, and the last of those.
function representatives(ready) {
    const found = new Map();
    const confirmed = ready.group.rows.confirmed;
    const key = (shape, config) => shape * ready.group.configs.length + config;
    for (const row of ready.ok) {
        const at = key(ready.shape[row], ready.config[row]);
        if (!found.has(at) || confirmed[row] || !confirmed[found.get(at)]) {
            found.set(at, row);
        }
    }
    return (shape, config) => config === null || config === undefined ? undefined : found.get(key(shape, config));
}

function bestOfShape(ready, shape, index) {
    const row = ready.rowOf(index, shape.best);
    if (row !== undefined) {
        return ready.ns[row];
    }
    return ready.ok.reduce((best, at) => ready.shape[at] === index ? Math.min(best, ready.ns[at]) : best, Infinity);
}

// A view: one row per configuration of one shape, measured in time; or of all shapes, in multiples of
// their shape's best.
function viewOf(ready, shape) {
    const isAll = shape < 0;
    return {
        ready, group: ready.group, shape, isAll,
        ok: ready.ok.filter((row) => ready.speaks(row) && (isAll || ready.shape[row] === shape)),
        shapes: isAll ? ready.group.shapes.map((_, i) => i) : [shape],
        value: isAll ? (row) => ready.ns[row] / ready.bestNs[ready.shape[row]] : (row) => ready.ns[row],
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
    return which.map((i) => group.params[i].name + '=' + valueText(group, i, group.configs[config][i])).join(' ');
}

// The parameters that tell these configurations apart.
function differing(group, configs) {
    const params = group.params.map((_, i) => i);
    return params.filter((i) => configs.some((config) => group.configs[config][i] !== group.configs[configs[0]][i]));
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
    const has = (column) => rows[column] && rows[column][row] !== null && rows[column][row] !== undefined;
    const shared = has('shared_bytes') ? ', ' + countText(rows.shared_bytes[row]) + ' B shared' : '';
    const spill = rows.spill_bytes && rows.spill_bytes[row] ? ', ' + rows.spill_bytes[row] + ' B spilled' : '';
    return makeTip(title || timeText(view.ready.ns[row]), [
        configText(view.group, view.ready.config[row]),
        view.isAll && view.group.shapes[view.ready.shape[row]].label,
        timeText(view.ready.ns[row]) + intervalText(rows, row) + (rows.confirmed[row] ? ', confirmed' : ''),
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
    const head = ['#Time', '#95 % interval'].concat(view.isAll ? ['#× best', 'Shape'] : [], extra ? extra.head : [], ['Configuration']);
    const cells = (row) => [timeText(view.ready.ns[row]), intervalText(view.group.rows, row).slice(8, -1) || null].concat(
        view.isAll ? [view.text(view.value(row)), view.group.shapes[view.ready.shape[row]].label] : [],
        extra ? extra.cells(row) : [], [configText(view.group, view.ready.config[row])]);
    const caption = rows.length > most ? 'The fastest ' + most + ' of ' + countText(rows.length) : plural(rows.length, view.noun);
    return {caption, head, wide: head.length - 1, rows: shown.map(cells)};
}

/* --- parts of charts --------------------------------------------------------------------------- */

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

// ECharts' own log axis knows powers of ten only, too few for times within a factor of three: so the
// data are logarithms, and the axis is labelled here.
function logAxis(low, high, format, name) {
    const pad = Math.max(0.04 * Math.log10(high / low), 0.01);
    const from = Math.log10(low) - pad;
    const to = Math.log10(high) + pad;
    const ticks = logTicks(Math.pow(10, from), Math.pow(10, to));
    return Object.assign(axis('value', name), {
        min: from, max: to,
        axisLabel: {color: colour('soft'), customValues: ticks, hideOverlap: true, formatter: (at) => format(Math.pow(10, at))},
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
        type, name, nameLocation: 'middle', nameGap: 30,
        nameTextStyle: {color: colour('soft'), fontSize: 12},
        axisLine: {show: true, onZero: false, lineStyle: {color: colour('line')}},
        axisLabel: {color: colour('soft'), hideOverlap: true},
        splitNumber: isNarrow() ? 3 : 5,
        splitLine: {show: type === 'value', lineStyle: {color: colour('grid')}},
    };
}

// The name of a vertical axis stands above it, level, where it costs no width.
function nameOfY(text, top) {
    return {text, left: 0, top: top || 0, padding: [3, 0], textStyle: {color: colour('soft'), fontSize: 12, fontWeight: 'normal'}};
}

function grid(over) {
    return Object.assign({left: 8, right: 24, top: 34, bottom: 36, containLabel: true}, over);
}

function legend(names) {
    return {data: names, top: 0, right: 0, type: 'scroll', textStyle: {color: colour('text')},
        itemWidth: 14, itemHeight: 10, pageTextStyle: {color: colour('soft')},
        inactiveColor: colour('line')};
}

function tooltip(formatter) {
    return {trigger: 'item', confine: true, formatter, backgroundColor: colour('raised'),
        borderColor: colour('line'), textStyle: {color: colour('text'), fontSize: 13}};
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
    return {type: 'scatter', name: 'measured', dimensions: ['x', 'y'], data: flat, symbolSize: rows.length > 2000 ? 3 : 6, rows,
        large: rows.length > 2000, largeThreshold: 2000, progressive: 0,
        itemStyle: {color: colour('point'), opacity: rows.length > 2000 ? 0.45 : 0.65}};
}

const MARKS = {best: 'triangle', default: 'diamond'};

function marks(name, rows, x, y) {
    return {type: 'scatter', name, symbol: MARKS[name], symbolSize: 14, z: name === 'best' ? 6 : 5, rows,
        data: rows.map((row) => [Math.log10(x(row)), Math.log10(y(row))]),
        itemStyle: {color: colour(name), borderColor: colour('panel'), borderWidth: 1}};
}

// The rows of the shapes' best or default configurations, in the view's order.
function markedRows(view, name) {
    return view.shapes.map((i) => view.ready.rowOf(i, view.group.shapes[i][name])).filter((row) => row !== undefined);
}

const NOTHING = 'No configuration was measured here.';

/* --- 1: roofline ------------------------------------------------------------------------------- */

const LIMITS_MISSING = 'No ceilings are drawn: the limits of this GPU are not known here. "tunectl limits" measures them ' +
    'on a machine with this GPU, in about a second; a new report then has them.';

function drawRoofline(view, choices) {
    const shapes = view.shapes.map((i) => view.group.shapes[i]);
    if (!shapes.some((shape) => shape.flops > 0)) {
        return drawBandwidth(view);
    }
    const rows = view.group.rows;
    const flops = (row) => view.group.shapes[view.ready.shape[row]].flops;
    const bytes = choices.bytes === 'requested' ? (row) => rows.requested_bytes[row]
        : (row) => view.group.shapes[view.ready.shape[row]].bytes;
    const drawn = view.ok.filter((row) => flops(row) > 0 && bytes(row) > 0);
    if (drawn.length === 0) {
        return {say: ['The bytes of this kernel are not known here: its manifest is not installed, or is another version.']};
    }
    return rooflineOf(view, drawn, (row) => flops(row) / bytes(row), (row) => 1e9 * flops(row) / view.ready.ns[row]);
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
    const series = [cloud(drawn, x, y), marks('best', best, x, y), marks('default', standard, x, y)];
    const names = ['measured', 'best', 'default'];
    if (limits) {
        series.push(ceiling(limits, spanX));
        names.push('ceilings');
    }
    const option = {
        grid: grid({top: 58}), legend: legend(names), title: nameOfY('speed', 28), series,
        tooltip: tooltip((at) => rooflineTip(view, series[at.seriesIndex], at.dataIndex, x, y)),
        xAxis: logAxis(spanX[0], spanX[1], digits, 'arithmetic intensity, flop per byte of DRAM traffic'),
        yAxis: logAxis(spanY[0], 1.2 * spanY[1], flopsText),
    };
    const extra = {head: ['#Speed', '#Intensity'], cells: (row) => [flopsText(y(row)), digits(x(row))]};
    return {option, height: 440, table: () => rowsTable(view, drawn, extra), say: rooflineWords(view, drawn, best, x, y)};
}

// The lower of the two limits at each intensity, each named on its own part.
function ceiling(limits, span) {
    const slope = Math.log10(limits.dram_bytes_per_s);
    const flat = Math.log10(limits.flops);
    const ridge = flat - slope;
    const from = Math.log10(span[0]);
    const to = Math.log10(span[1]);
    const label = (text, position) => ({show: true, formatter: () => text, position, color: colour('text'), fontSize: 12});
    const onSlope = from + 0.45 * (ridge - from);
    return {
        type: 'line', name: 'ceilings', symbolSize: 0.1, symbol: 'circle', showAllSymbol: true, z: 4, silent: true,
        lineStyle: {color: colour('text'), width: 1.5}, itemStyle: {color: colour('text')},
        data: [
            {value: [from, from + slope]},
            {value: [onSlope, onSlope + slope], label: label('DRAM ' + bandText(limits.dram_bytes_per_s), 'right')},
            {value: [ridge, flat]},
            {value: [ridge + 0.5 * (to - ridge), flat], label: label(flopsText(limits.flops), 'top')},
            {value: [to, flat]},
        ],
    };
}

function rooflineTip(view, series, index, x, y) {
    const row = series.rows[index];
    const title = (series.name === 'measured' ? '' : series.name + ': ') + flopsText(y(row)) + ' at ' + digits(x(row)) + ' flop/B';
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
        words.push('The best reaches ' + percentText(y(best[0]) / roof) + ' of what ' + which + ' allows.');
    }
    return words.concat(limitsWords(view));
}

function limitsWords(view) {
    const from = view.group.limits.from === 'measured' ? 'measured on this GPU model here'
        : 'measured on this GPU model elsewhere, and shipped with tunerd';
    return 'The ceilings are ' + from + '.';
}

// A kernel without arithmetic that counts: how near it comes to a copy, shape by shape.
function drawBandwidth(view) {
    const limits = view.group.limits;
    const known = view.shapes.filter((i) => view.group.shapes[i].bytes > 0);
    if (known.length === 0) {
        return {say: ['The bytes of this kernel are not known here: its manifest is not installed, or is another version.']};
    }
    const scale = limits ? 1 / limits.dram_bytes_per_s : 1;
    const text = limits ? percentText : bandText;
    const reached = (i, name) => {
        const row = view.ready.rowOf(i, view.group.shapes[i][name]);
        return row === undefined ? null : scale * 1e9 * view.group.shapes[i].bytes / view.ready.ns[row];
    };
    const labels = known.map((i) => view.group.shapes[i].label);
    const bar = (name) => ({type: 'bar', name, data: known.map((i) => reached(i, name)), barMaxWidth: 22,
        itemStyle: {color: colour(name)}, markLine: name === 'best' && limits ? fullLine() : undefined});
    const value = axis('value', limits ? 'share of the bandwidth of a copy' : 'bytes moved per second');
    value.axisLabel.formatter = text;
    value.max = limits ? (at) => Math.max(1.05, at.max) : undefined;
    const option = {
        grid: grid({top: 40}), legend: legend(['best', 'default']), series: [bar('best'), bar('default')],
        tooltip: tooltip((at) => makeTip(at.seriesName + ': ' + text(at.value), [labels[at.dataIndex]])),
        xAxis: value, yAxis: Object.assign(axis('category'), {data: labels, inverse: true}),
    };
    const table = () => ({caption: 'Bytes each operand once, per second', head: ['Shape', '#Best', '#Default'],
        rows: known.map((i, k) => [labels[k]].concat(['best', 'default'].map((name) => reached(i, name) === null ? null : text(reached(i, name)))))});
    const say = ['This kernel computes little: what counts is how near it comes to a plain copy.', limits ? limitsWords(view) : LIMITS_MISSING];
    return {option, height: 110 + 46 * known.length, table, say};
}

function fullLine() {
    return {silent: true, symbol: 'none', data: [{xAxis: 1}], label: {show: false}, lineStyle: {color: colour('text'), type: 'solid'}};
}

/* --- 2: heat map ------------------------------------------------------------------------------- */

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
    const names = {x: view.group.params[x].name, y: isLine ? '' : view.group.params[y].name,
        textsX: valuesX.map((value) => valueText(view.group, x, value)),
        textsY: isLine ? [''] : valuesY.map((value) => valueText(view.group, y, value))};
    const option = heatOption(view, cells, measured, names);
    return {option, height: Math.min(Math.max(150 + 38 * valuesY.length, 220), 640),
        table: () => heatTable(view, measured, names), say: heatWords(cells, measured, view, names)};
}

function heatCells(view, x, y, valuesX, valuesY) {
    const cells = valuesY.flatMap((_, j) => valuesX.map((__, i) => ({i, j, values: [], failed: 0, value: NaN})));
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
    const width = Math.max(high - low, Math.log10(1.1)); // a few percent are no reason for all colours
    const hasRoom = names.textsX.length <= (isNarrow() ? 5 : 14);
    const data = measured.map((cell) => ({value: [cell.i, cell.j, Math.log10(cell.value)], cell,
        label: {show: hasRoom, color: inkOn(scaleColour((Math.log10(cell.value) - low) / width)), formatter: () => view.text(cell.value)}}));
    const empty = cells.filter((cell) => cell.values.length === 0);
    return {
        grid: grid({bottom: 78, top: 26}), title: nameOfY(names.y),
        tooltip: tooltip((at) => heatTip(view, at.data.cell, names)),
        visualMap: {type: 'continuous', min: low, max: low + width, dimension: 2, seriesIndex: 0, calculable: false,
            orient: 'horizontal', left: 'center', bottom: 0, itemHeight: 160, itemWidth: 12, inRange: {color: SCALE},
            text: [view.text(Math.pow(10, low + width)), view.text(Math.pow(10, low))], textStyle: {color: colour('soft')}, hoverLink: false},
        xAxis: Object.assign(axis('category', names.x), {data: names.textsX}),
        yAxis: Object.assign(axis('category'), {data: names.textsY}),
        series: [
            {type: 'heatmap', data, itemStyle: {borderColor: colour('panel'), borderWidth: 1}, progressive: 0},
            emptyCells('failed', empty.filter((cell) => cell.failed > 0)),
            emptyCells('untried', empty.filter((cell) => cell.failed === 0)),
        ],
    };
}

// Not a colour of the scale: a cross where all failed, a dot where nothing was tried.
function emptyCells(name, cells) {
    const isFailed = name === 'failed';
    const text = isFailed ? '×' : '·';
    return {type: 'scatter', name, symbol: 'rect', symbolSize: 22, itemStyle: {color: 'transparent'},
        label: {show: true, formatter: () => text, color: colour(isFailed ? 'failed' : 'soft'), fontSize: isFailed ? 16 : 14},
        data: cells.map((cell) => ({value: [cell.i, cell.j], cell}))};
}

function heatTip(view, cell, names) {
    const title = cell.values.length > 0 ? view.text(cell.value) : cell.failed > 0 ? 'all failed' : 'not tried';
    return makeTip(title, [names.x + '=' + names.textsX[cell.i], names.y && names.y + '=' + names.textsY[cell.j],
        cell.values.length + ' measured, ' + cell.failed + ' failed']);
}

function heatTable(view, measured, names) {
    return {caption: 'Cells, fastest first', head: [names.x, names.y || '–', '#Time', '#Measured', '#Failed'],
        rows: measured.slice().sort((a, b) => a.value - b.value).slice(0, state.isPaper ? 20 : 100).map((cell) =>
            [names.textsX[cell.i], names.textsY[cell.j], view.text(cell.value), cell.values.length, cell.failed])};
}

function heatWords(cells, measured, view, names) {
    const best = measured.reduce((a, b) => a.value <= b.value ? a : b);
    const where = names.x + '=' + names.textsX[best.i] + (names.y ? ' ' + names.y + '=' + names.textsY[best.j] : '');
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

/* --- 3: parallel coordinates ------------------------------------------------------------------- */

const CATEGORIES_MOST = 40;
const PAPER_LINES_MOST = 2000; // each is a path in the document; 20,000 take 10 seconds to print

function drawParallel(view, choices, paper) {
    const params = view.group.params.map((_, i) => i).filter((i) => distinctValues(view, i).length > 1);
    if (view.ok.length === 0) {
        return {say: [NOTHING]};
    }
    const fastest = fastestFirst(view, view.ok).slice(0, paper ? PAPER_LINES_MOST : undefined);
    const rows = fastest.reverse(); // the fastest are drawn last, above the others
    const axes = params.map((i) => parallelAxis(view, i));
    const [low, high] = extent(rows.map(view.value));
    axes.push(logAxis(low, high, view.text, view.isAll ? '× best' : 'time'));
    const data = rows.map((row) => axes.map((at) => at.of ? at.of(row) : Math.log10(view.value(row))));
    const tenth = Math.log10(view.value(rows[Math.floor(0.9 * (rows.length - 1))]));
    const isMany = rows.length > 2000;
    const option = {
        tooltip: {show: false},
        parallel: {left: 34, right: 74, top: 54, bottom: 22, parallelAxisDefault: {areaSelectStyle: {width: 18, color: colour('accent')}, realtime: !isMany}},
        parallelAxis: axes.map((at, k) => parallelLook(at, k, k + 1 === axes.length)),
        visualMap: {show: false, type: 'piecewise', dimension: axes.length - 1, pieces: [
            {lte: tenth, color: colour('best')}, {gt: tenth, color: colour('point')}]},
        series: [{type: 'parallel', data, inactiveOpacity: 0.03, activeOpacity: isMany ? 0.5 : 0.7,
            lineStyle: {width: 1.2, opacity: isMany ? 0.25 : 0.5}, progressive: paper ? 0 : 500, progressiveThreshold: 2000}],
    };
    return {option, height: 380, least: 56 * axes.length, say: parallelWords(view, params, rows.length),
        after: (chart, card) => watchBrush(view, rows, axes.length - 1, choices.keep, chart, card)};
}

// A few values stand at even distances, as they mostly are powers of two; many stand where they are.
function parallelAxis(view, param) {
    const values = distinctValues(view, param);
    const valueOf = (row) => view.group.configs[view.ready.config[row]][param];
    if (values.length > CATEGORIES_MOST) {
        const [low, high] = extent(values);
        return Object.assign(axis('value', view.group.params[param].name), {min: low, max: high, of: valueOf});
    }
    const place = new Map(values.map((value, i) => [value, i]));
    return Object.assign(axis('category', view.group.params[param].name),
        {data: values.map((value) => valueText(view.group, param, value)), of: (row) => place.get(valueOf(row))});
}

// Names stand in two rows, so that long ones do not run into their neighbours.
function parallelLook(at, index, isTime) {
    return Object.assign({}, at, {dim: index, nameLocation: 'end', nameTruncate: {maxWidth: 160}, nameGap: index % 2 ? 10 : 26, nameTextStyle: {color: colour(isTime ? 'best' : 'text'), fontSize: 12},
        axisLabel: Object.assign({}, at.axisLabel, {color: colour('text'), fontSize: 11, textBorderColor: colour('panel'), textBorderWidth: 2}),
        splitLine: {show: false}, axisLine: {show: true, onZero: false, lineStyle: {color: colour('soft')}}});
}

function parallelWords(view, params, count) {
    const fixed = view.group.params.map((_, i) => i).filter((i) => !params.includes(i));
    const words = ['The fastest tenth stands out. Drag along an axis to keep the configurations that pass there.'];
    if (count < view.ok.length) {
        words.push('The fastest ' + countText(count) + ' are drawn.');
    }
    if (fixed.length > 0) {
        words.push('The same everywhere: ' + configText(view.group, view.ready.config[view.ok[0]], fixed) + '.');
    }
    return words;
}

// Lists what is brushed; `keep` is the share of the fastest, the brush for those without a pointer.
function watchBrush(view, rows, timeAxis, keep, chart, card) {
    const list = () => {
        const series = chart.getModel().getSeries()[0];
        const isBrushed = chart.getModel().queryComponents({mainType: 'parallelAxis'}).some((at) => at.activeIntervals.length > 0);
        showBrushed(view, isBrushed ? series.getRawIndicesByActiveState('active').map((i) => rows[i]) : rows, isBrushed, card);
    };
    chart.off('axisareaselected');
    chart.on('axisareaselected', list);
    if (keep !== 'all') {
        const last = view.value(rows[rows.length - Math.max(1, Math.floor(rows.length * Number(keep)))]);
        const span = [chart.getOption().parallelAxis[timeAxis].min, Math.log10(last) + 1e-9];
        chart.dispatchAction({type: 'axisAreaSelect', parallelAxisIndex: timeAxis, intervals: [span]});
        chart.resize(); // draws the brush itself, which an action leaves alone
    }
    list();
}

function showBrushed(view, chosen, isBrushed, card) {
    const words = isBrushed ? plural(chosen.length, view.noun) + ' of ' + countText(view.ok.length) + ' brushed' : 'All ' + plural(chosen.length, view.noun);
    const times = chosen.map(view.value).sort((a, b) => a - b);
    const about = chosen.length > 0 ? ': best ' + view.text(times[0]) + ', median ' + view.text(median(times)) + '.' : ': nothing passes there.';
    const clear = make('button', {type: 'button', class: 'clear'}, 'Clear the brush');
    clear.disabled = !isBrushed;
    clear.addEventListener('click', () => {
        card.choices.keep = 'all';
        render(card);
    });
    const table = makeTable(rowsTable(view, chosen, null, 12));
    card.extra.replaceChildren(make('p', {class: 'brushed', role: 'status'}, words + about), clear,
        makeScroll(table));
}

/* --- 4: distribution of times ------------------------------------------------------------------ */

function drawDistribution(view) {
    if (view.ok.length === 0) {
        return {say: [NOTHING]};
    }
    const logs = Float64Array.from(view.ok, (row) => Math.log10(view.value(row))).sort();
    const low = logs[0];
    const width = Math.max(logs[logs.length - 1] - low, 1e-6);
    const count = Math.min(Math.max(Math.round(Math.sqrt(logs.length)), 8), 60);
    const bins = new Array(count).fill(0);
    logs.forEach((at) => bins[Math.min(Math.floor((at - low) / width * count), count - 1)]++);
    const edge = (k) => Math.pow(10, low + width * k / count);
    const option = {
        grid: grid({top: 58}), title: nameOfY(view.noun + 's'),
        tooltip: tooltip((at) => at.seriesType !== 'custom' ? makeTip(at.name, []) :
            makeTip(plural(bins[at.dataIndex], view.noun), [view.text(edge(at.dataIndex)) + ' to ' + view.text(edge(at.dataIndex + 1))])),
        xAxis: logAxis(edge(0), edge(count), view.text, view.measure),
        yAxis: Object.assign(axis('value'), {minInterval: 1}),
        series: [histogram(bins, low, width / count, distributionLines(view))],
    };
    const table = () => ({caption: 'By time', head: ['#From', '#To', '#' + view.noun + 's'],
        rows: bins.map((n, k) => [view.text(edge(k)), view.text(edge(k + 1)), n]).filter((cells) => cells[2] > 0)});
    const middle = Math.pow(10, median(logs));
    const near = logs.filter((at) => at <= low + Math.log10(1.1)).length;
    return {option, height: 320, table, say: ['Half of the ' + view.noun + 's take less than ' + view.text(middle) + '; ' +
        plural(near, 'lies', 'lie') + ' within 10 % of the fastest.']};
}

// Bars from edge to edge; the library's own stand on categories, where no line can be put between.
function histogram(bins, low, step, lines) {
    return {
        type: 'custom', name: 'measured', data: bins.map((n, k) => [low + step * (k + 0.5), n, k]), encode: {x: 0, y: 1},
        itemStyle: {color: colour('point')}, markLine: lines, clip: true,
        renderItem: (params, api) => {
            const n = api.value(1);
            const [left, top] = api.coord([low + step * api.value(2), n]);
            const [right, bottom] = api.coord([low + step * (api.value(2) + 1), 0]);
            return {type: 'rect', shape: {x: left, y: top, width: Math.max(right - left - 1, 1), height: bottom - top}, style: {fill: colour('point')}};
        },
    };
}

function distributionLines(view) {
    const line = (name, position) => markedRows(view, name).slice(0, view.isAll ? 0 : 1).map((row) => ({
        name: name + ' ' + view.text(view.value(row)), xAxis: Math.log10(view.value(row)), lineStyle: {color: colour(name)},
        label: {color: colour(name), formatter: () => name, position, distance: name === 'best' ? 4 : 16}}));
    return {symbol: 'none', data: line('best', 'end').concat(line('default', 'end')), lineStyle: {width: 2, type: 'solid'}};
}

/* --- 5: importance ----------------------------------------------------------------------------- */

function importanceOf(view) {
    return (view.group.importance || []).find((entry) => view.isAll ? entry.shape === null : entry.shape === view.shape);
}

function drawImportance(view) {
    const known = importanceOf(view);
    if (!known) {
        return {say: ['Too few configurations were measured here to tell the parameters apart; a sweep of more of them would.']};
    }
    const order = byImportance(view);
    const names = order.map((i) => view.group.params[i].name).concat('rest');
    const shares = order.map((i) => known.shares[i]).concat(known.rest);
    const value = axis('value', 'share of the variance of log(time)');
    Object.assign(value, {min: 0, max: (at) => Math.min(1, Math.max(0.1, at.max * 1.15))});
    Object.assign(value.axisLabel, {formatter: percentText, showMaxLabel: false});
    const option = {
        grid: grid({top: 8, right: 56}),
        tooltip: tooltip((at) => makeTip(names[at.dataIndex] + ': ' + percentText(shares[at.dataIndex]),
            [at.dataIndex < order.length ? view.group.params[order[at.dataIndex]].meaning : 'what no parameter explains alone'])),
        xAxis: value, yAxis: Object.assign(axis('category'), {data: names, inverse: true, axisLabel: {color: colour('text')}}),
        series: [{type: 'bar', barMaxWidth: 18, label: {show: true, position: 'right', color: colour('text'), formatter: (at) => percentText(at.value)},
            data: shares.map((share, k) => ({value: share, itemStyle: {color: colour(k < order.length ? 'accent' : 'line')}}))}],
    };
    const table = () => ({caption: 'From ' + plural(known.rows, 'measurement'), head: ['Parameter', '#Share', 'Meaning'], wide: 2,
        rows: names.map((name, k) => [name, percentText(shares[k]), k < order.length ? view.group.params[order[k]].meaning || '' : ''])});
    return {option, height: 60 + 26 * names.length, table, say: ['From ' + plural(known.rows, 'measurement') + '. "rest": what no parameter explains alone, ' +
        'that is, combinations of parameters, and noise.']};
}

/* --- 6: convergence ---------------------------------------------------------------------------- */

const LINES_MOST = 40;

// A search and the confirmation that ended it are one line.
function runsOf(view) {
    const runs = new Map();
    for (let row = 0; row < view.ready.count; row++) {
        if (!view.isAll && view.ready.shape[row] !== view.shape) {
            continue;
        }
        const name = view.group.runs[view.group.rows.run[row]].replace(/\/confirm$/, '');
        const key = view.ready.shape[row] + ' ' + name;
        if (!runs.has(key)) {
            runs.set(key, {name, shape: view.ready.shape[row], rows: []});
        }
        runs.get(key).rows.push(row);
    }
    return Array.from(runs.values()).sort((a, b) => b.rows.length - a.rows.length);
}

// Only the steps: where the best changed, and the end. Failures count as evaluations.
function staircase(view, run, bySeconds) {
    const began = view.group.rows.time_ms[run.rows[0]];
    const steps = [];
    let best = Infinity;
    run.rows.forEach((row, k) => {
        const at = bySeconds ? (view.group.rows.time_ms[row] - began) / 1000 : k + 1;
        if (view.ready.isOk(row) && view.value(row) < best) {
            best = view.value(row);
            steps.push([at, Math.log10(best)]);
        } else if (k + 1 === run.rows.length && steps.length > 0) {
            steps.push([at, Math.log10(best)]);
        }
    });
    return steps;
}

function drawConvergence(view, choices) {
    const bySeconds = choices.over === 'seconds';
    const runs = runsOf(view).map((run) => Object.assign(run, {steps: staircase(view, run, bySeconds)})).filter((run) => run.steps.length > 0);
    if (runs.length === 0) {
        return {say: [NOTHING]};
    }
    const shown = runs.slice(0, LINES_MOST);
    const label = (run) => run.name + (view.isAll ? ', ' + view.group.shapes[run.shape].label : '');
    const [low, high] = extent(shown.flatMap((run) => run.steps.map((step) => Math.pow(10, step[1]))));
    const option = {
        grid: grid({top: 28}), title: nameOfY(view.isAll ? 'best so far, × best of its shape' : 'best so far'),
        color: ['accent', 'best', 'tie', 'default', 'point', 'failed'].map(colour),
        tooltip: tooltip((at) => makeTip(view.text(Math.pow(10, at.value[1])), [
            bySeconds ? 'after ' + digits(at.value[0]) + ' s' : 'after ' + plural(at.value[0], 'evaluation'), label(shown[at.seriesIndex])])),
        xAxis: Object.assign(axis('value', bySeconds ? 'seconds since the first evaluation of the run' : 'evaluations'), {min: 0}),
        yAxis: logAxis(low, high, view.text),
        series: shown.map((run) => ({type: 'line', name: label(run), step: 'end', data: run.steps, symbolSize: shown.length > 8 ? 3 : 6, lineStyle: {width: 1.8}})),
    };
    const table = () => ({caption: 'Runs', head: ['Run', '#Evaluations', '#First', '#Best', bySeconds ? '#Best after, s' : '#Best after'],
        rows: shown.map((run) => [label(run), run.rows.length, view.text(Math.pow(10, run.steps[0][1])),
            view.text(Math.pow(10, run.steps[run.steps.length - 1][1])), digits(lastGain(run.steps))])});
    const more = runs.length > shown.length ? [' The ' + LINES_MOST + ' longest of ' + runs.length + ' runs.'] : [];
    return {option, height: 340, table, say: [plural(runs.length, 'run') + '; failed evaluations count, as they take their time too.'].concat(more)};
}

function lastGain(steps) {
    const last = steps[steps.length - 1][1];
    return steps.find((step) => step[1] === last)[0];
}

/* --- 7: outcomes ------------------------------------------------------------------------------- */

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
    const table = () => ({caption: 'Outcomes', head: ['Outcome', '#Evaluations'], rows: sorted.map(([name, count]) => [name, countText(count)])});
    return {option: outcomeOption(sorted, total), height: 66 + 32 * sorted.length, table, element: detailTable(details),
        say: [countText(counts.get('ok') || 0) + ' of ' + plural(total, 'evaluation') + ' gave a time.']};
}

function outcomeOption(sorted, total) {
    const text = (at) => countText(at.value) + ' (' + percentText(at.value / total) + ')';
    return {
        grid: grid({top: 8, right: 96}),
        tooltip: tooltip((at) => makeTip(at.name, [text(at)])),
        xAxis: Object.assign(axis('value', 'evaluations'), {minInterval: 1}),
        yAxis: Object.assign(axis('category'), {data: sorted.map((entry) => entry[0]), inverse: true, axisLabel: {color: colour('text')}}),
        series: [{type: 'bar', barMaxWidth: 20, label: {show: true, position: 'right', color: colour('text'), formatter: text},
            data: sorted.map(([name, count]) => ({value: count, itemStyle: {color: colour(name === 'ok' ? 'accent' : 'failed')}}))}],
    };
}

function detailTable(details) {
    const commonest = Array.from(details).sort((a, b) => b[1] - a[1]).slice(0, 20);
    if (commonest.length === 0) {
        return null;
    }
    return makeScroll(makeTable({caption: 'Why they failed, the commonest first', head: ['#Times', 'Outcome', 'Reason'], wide: 2,
        rows: commonest.map(([key, count]) => [countText(count), JSON.parse(key)[0], JSON.parse(key)[1] || '–'])}));
}

/* --- 8: ties and intervals --------------------------------------------------------------------- */

const TIES_MOST = 30; // lines, each with a configuration, or with the best and the default of a shape

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
    const scaleOf = (row) => view.isAll ? 1 / view.ready.bestNs[view.ready.shape[row]] : 1;
    shown.forEach((one, k) => {
        one.line = view.isAll ? view.shapes.indexOf(one.shape) : k;
        one.low = (rows.lo_ns[one.row] || view.ready.ns[one.row]) * scaleOf(one.row);
        one.high = (rows.hi_ns[one.row] || view.ready.ns[one.row]) * scaleOf(one.row);
    });
    const [low, high] = extent(shown.flatMap((one) => [one.low, one.high, view.value(one.row)]));
    const labels = tieLabels(view, shown);
    const option = {
        grid: grid({top: 34}), legend: legend(['best', 'tie', 'default'].filter((role) => shown.some((one) => one.role === role))),
        tooltip: tooltip((at) => rowTip(view, (at.data.one || shown[at.dataIndex]).row)),
        xAxis: logAxis(low, high, view.text, view.measure + ', with its 95 % interval'),
        yAxis: Object.assign(axis('category'), {data: labels.map((_, k) => String(k)), inverse: true,
            axisLabel: {color: colour('text'), width: isNarrow() ? 130 : 320, overflow: 'truncate', formatter: (k) => labels[Number(k)]}}),
        series: [errorBars(shown)].concat(['best', 'tie', 'default'].map((role) => tiePoints(view, shown, role))),
    };
    return {option, height: 100 + 26 * labels.length, table: () => rowsTable(view, shown.map((one) => one.row)), say: tieWords(view, all, shown)};
}

function tieLabels(view, shown) {
    if (view.isAll) {
        return view.shapes.slice(0, TIES_MOST).map((i) => view.group.shapes[i].label);
    }
    if (isNarrow()) {
        return shown.map((one, k) => one.role === 'tie' ? 'tie ' + k : one.role);
    }
    const params = differing(view.group, shown.map((one) => view.ready.config[one.row]));
    return shown.map((one) => configText(view.group, view.ready.config[one.row], params) || one.role);
}

function errorBars(shown) {
    return {
        type: 'custom', name: 'interval', z: 2, data: shown.map((one) => [Math.log10(one.low), one.line, Math.log10(one.high)]), encode: {x: [0, 2], y: 1},
        renderItem: (params, api) => {
            const [left, y] = api.coord([api.value(0), api.value(1)]);
            const right = api.coord([api.value(2), api.value(1)])[0];
            const line = (x1, y1, x2, y2) => ({type: 'line', shape: {x1, y1, x2, y2}, style: {stroke: colour('soft'), lineWidth: 1.5}});
            return {type: 'group', children: [line(left, y, right, y), line(left, y - 5, left, y + 5), line(right, y - 5, right, y + 5)]};
        },
    };
}

function tiePoints(view, shown, role) {
    const data = shown.map((one) => ({value: [Math.log10(view.value(one.row)), one.line], one})).filter((point) => point.one.role === role);
    return {type: 'scatter', name: role, z: 3, symbol: MARKS[role] || 'circle', symbolSize: role === 'default' ? 9 : 11, data, itemStyle: {color: colour(role)}};
}

function tieWords(view, all, shown) {
    if (view.isAll) {
        return ['The best and the default of each shape; pick one shape to see what ties with its best.'];
    }
    const ties = all.filter((one) => one.role === 'tie').length;
    const method = view.group.shapes[view.shape].method;
    const words = [ties === 0 ? 'No other configuration ties with the best.' :
        plural(ties, 'configuration ties', 'configurations tie') + ' with the best: their intervals overlap.'];
    if (shown.length < all.length) {
        words.push(countText(shown.length) + ' of ' + countText(all.length) + ' are drawn.');
    }
    return method ? words.concat('Timed by: ' + method + '.') : words;
}

/* --- 9: one configuration for all shapes ------------------------------------------------------- */

// Text and colour do this better than a picture of them: it is a table.
function drawLoss(view) {
    const loss = view.group.loss;
    if (!loss || loss.configs.length === 0 || view.group.shapes.length < 2) {
        return {say: ['This needs two shapes or more with configurations in common.']};
    }
    const params = differing(view.group, loss.configs);
    const most = Math.log10(1 + Math.min(Math.max(...loss.matrix.flat().filter((x) => x !== null), 0.1), 3));
    const cell = (x) => x === null ? null : {text: lossText(x), colour: scaleColour(Math.log10(1 + Math.max(x, 0)) / most)};
    const rows = loss.configs.map((config, k) => [configText(view.group, config, params),
        loss.matrix[k].filter((x) => x !== null).length, cell(loss.worst[k]), cell(loss.mean[k])]
        .concat(loss.matrix[k].map(cell)));
    const table = {kind: 'matrix', caption: 'Time lost against the best of the shape; "–": not measured there', wide: 0,
        head: ['Configuration', '#Shapes', '#Worst', '#Mean'].concat(view.group.shapes.map((shape) => '#' + shape.label)), rows};
    const words = lossText(loss.worst[0]) + ' at worst, ' + lossText(loss.mean[0]) + ' in the geometric mean, over ' +
        plural(rows[0][1], 'shape') + '.';
    return {element: makeScroll(makeTable(table)), say: ['Use one configuration everywhere and lose this much. The first row is the best of these: ' + words]};
}

function lossText(x) {
    return x === null || x === undefined ? '–' : (x > 0 ? '+' : '') + percentText(x);
}

/* --- 10: provenance, and the headline ---------------------------------------------------------- */

function drawProvenance(view) {
    const from = view.group.provenance;
    const list = (texts) => texts && texts.length > 0 ? texts.join(', ') : 'not recorded';
    const facts = [['Driver', list(from.drivers)], ['NVRTC', list(from.nvrtc)], ['Hosts', list(from.hosts)], ['GPUs', list(from.uuids)],
        ['First measured', dateText(from.first_unix_ms)], ['Last measured', dateText(from.last_unix_ms)],
        ['Rows', countText(from.rows) + ', of which ' + countText(from.ok) + ' ok'],
        ['Throttled samples', countText(from.throttled || 0)],
        ['Set aside', countText(from.set_aside || 0) + ' (never compared: timed by another method, or refused)'],
        ['Fingerprint', view.group.fingerprint || 'not recorded']];
    const parts = facts.flatMap(([name, text]) => [make('dt', null, name), make('dd', null, text)]);
    return {element: make('dl', {class: 'facts'}, ...parts), say: []};
}

function tile(name, value, note) {
    return make('div', {class: 'tile'}, make('dt', null, name), make('dd', null, value, note ? make('span', {class: 'soft'}, note) : null));
}

function showHeadline(view) {
    const group = view.group;
    const from = group.provenance;
    const where = [group.device, group.arch, group.mode && group.mode + ' cache', 'measured ' + dateText(from.first_unix_ms) + ' to ' + dateText(from.last_unix_ms)];
    const tiles = view.isAll ? tilesOfAll(view) : tilesOfShape(view);
    const failed = from.rows - from.ok;
    tiles.push(tile('Evaluations', countText(from.rows), failed > 0 ? countText(failed) + ' without a time' : 'all with a time'));
    tiles.push(tile('Configurations', countText(group.configs.length), 'in ' + plural(group.shapes.length, 'shape')));
    document.getElementById('headline').replaceChildren(
        make('h1', null, group.kernel, ' ', make('small', null, group.dtype)),
        make('p', {class: 'soft'}, where.filter(Boolean).join(' · ')),
        group.summary ? make('p', null, group.summary) : '', make('dl', {class: 'tiles'}, ...tiles));
    document.title = group.kernel + ' ' + group.dtype + ' on ' + group.device + ' – tunerd report';
}

function tilesOfShape(view) {
    const [best] = markedRows(view, 'best');
    const [standard] = markedRows(view, 'default');
    const tiles = [];
    if (best !== undefined) {
        const flops = view.group.shapes[view.shape].flops;
        tiles.push(tile('Best', timeText(view.ready.ns[best]), flops > 0 ? flopsText(1e9 * flops / view.ready.ns[best]) : ''));
    }
    if (best !== undefined && standard !== undefined) {
        tiles.push(tile('Default', timeText(view.ready.ns[standard]), timesText(view.ready.ns[standard] / view.ready.ns[best]) + ' the best'));
    }
    return tiles;
}

function tilesOfAll(view) {
    const gains = markedRows(view, 'default').map(view.value).filter(Number.isFinite);
    if (gains.length === 0) {
        return [];
    }
    const mean = Math.exp(gains.reduce((sum, gain) => sum + Math.log(gain), 0) / gains.length);
    return [tile('Best over default', timesText(mean), 'faster, geometric mean of ' + plural(gains.length, 'shape')),
        tile('Largest gain', timesText(extent(gains)[1]), 'faster than the default')];
}

/* --- the sections ------------------------------------------------------------------------------ */

// controls: each a select; `initial` and `options` may depend on the view.
const SECTIONS = [
    {id: 'roofline', title: 'Roofline', draw: drawRoofline, controls: [{id: 'bytes', label: 'Bytes', initial: () => 'once',
        options: () => [['once', 'each operand once'], ['requested', 'as the configuration requests']]}]},
    {id: 'heat', title: 'Two parameters', draw: drawHeat, controls: [
        {id: 'x', label: 'Across', options: paramOptions, initial: (view) => String(byImportance(view)[0])},
        {id: 'y', label: 'Down', options: paramOptions, initial: (view) => String(byImportance(view)[1] || 0)},
        {id: 'of', label: 'Over the rest', initial: () => 'best', options: () => [['best', 'best'], ['median', 'median']]}]},
    {id: 'parallel', title: 'All parameters', draw: drawParallel, controls: [{id: 'keep', label: 'Keep', initial: () => 'all',
        options: () => [['all', 'all, or what is brushed'], ['0.1', 'the fastest 10 %'], ['0.01', 'the fastest 1 %']]}]},
    {id: 'distribution', title: 'Distribution of times', draw: drawDistribution},
    {id: 'importance', title: 'Importance of each parameter', draw: drawImportance},
    {id: 'convergence', title: 'Convergence', draw: drawConvergence, controls: [{id: 'over', label: 'Over', initial: () => 'evaluations',
        options: () => [['evaluations', 'evaluations'], ['seconds', 'seconds']]}]},
    {id: 'outcomes', title: 'Outcomes', draw: drawOutcomes},
    {id: 'ties', title: 'Ties and intervals', draw: drawTies},
    {id: 'loss', title: 'One configuration for all shapes', draw: drawLoss},
    {id: 'provenance', title: 'Provenance', draw: drawProvenance},
];

const PAPER_WIDTH = 680;
const state = {report: null, ready: new Map(), group: 0, shape: -1, theme: '', view: null, cards: [], isPaper: false};

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
    card.element = make('section', {class: 'card', id: section.id, 'aria-labelledby': section.id + '-title'},
        make('h2', {id: section.id + '-title'}, section.title), card.say, card.controls, card.frame, card.extra, card.table);
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
        const select = make('select', {id: card.section.id + '-' + control.id}, ...options.map(([value, text]) => make('option', {value}, text)));
        select.value = card.choices[control.id];
        select.addEventListener('change', () => {
            card.choices[control.id] = select.value;
            render(card);
        });
        return make('div', {class: 'pick'}, make('label', {for: select.id}, control.label), select);
    });
    const held = document.activeElement && card.controls.contains(document.activeElement) ? document.activeElement.id : null;
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
        card.chart = echarts.init(card.plot, null, state.isPaper ? {width: PAPER_WIDTH, devicePixelRatio: 2} : {});
    } else {
        card.chart.dispatchAction({type: 'hideTip'}); // it is of what was drawn before
        card.chart.resize();
    }
    const option = Object.assign({animation: false, textStyle: {fontFamily: getComputedStyle(document.body).fontFamily}}, shown.option);
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
    const observer = new IntersectionObserver((entries) => {
        for (const entry of entries) {
            const card = state.cards.find((one) => one.element === entry.target);
            card.isSeen = entry.isIntersecting;
            if (card.isSeen && card.isStale) {
                render(card);
            }
        }
    }, {rootMargin: '200px'});
    state.cards.forEach((card) => observer.observe(card.element));
}

function watchSize() {
    let asked = 0;
    new ResizeObserver(() => {
        cancelAnimationFrame(asked);
        asked = requestAnimationFrame(() => state.isPaper || state.cards.forEach((card) => card.chart && card.chart.resize()));
    }).observe(document.getElementById('charts'));
}

/* --- what is picked ---------------------------------------------------------------------------- */

function groupText(group, groups) {
    const text = group.kernel + ' ' + group.dtype + ' on ' + group.device + ' (' + group.arch + '), ' + group.mode;
    const same = (other) => ['kernel', 'dtype', 'device', 'arch', 'mode'].every((key) => other[key] === group[key]);
    return text + (groups.filter(same).length > 1 ? ', source ' + String(group.fingerprint).slice(0, 8) : '');
}

function fillPickers() {
    const groups = state.report.groups;
    const group = document.getElementById('group');
    group.replaceChildren(...groups.map((one, i) => make('option', {value: i}, groupText(one, groups))));
    group.value = state.group;
    const shapes = groups[state.group].shapes;
    const shape = document.getElementById('shape');
    const each = shapes.map((one, i) => make('option', {value: i}, one.label));
    shape.replaceChildren(...(shapes.length > 1 ? [make('option', {value: -1}, 'all ' + shapes.length + ' shapes')] : []), ...each);
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
    const number = (name) => asked.has(name) ? Number.parseInt(asked.get(name), 10) : -1;
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
    showTheme(state.theme || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
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
    document.getElementById('group').addEventListener('change', (event) => choose(Number(event.target.value), -1));
    document.getElementById('shape').addEventListener('change', (event) => choose(state.group, Number(event.target.value)));
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

/* --- paper ------------------------------------------------------------------------------------- */

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
        state.cards.forEach((card) => isPaper && card.chart && card.chart.getZr().refreshImmediately());
    };
    window.addEventListener('beforeprint', () => turn(true));
    window.addEventListener('afterprint', () => turn(false));
}

/* --- start ------------------------------------------------------------------------------------- */

function start() {
    state.report = JSON.parse(document.getElementById('data').textContent);
    const asked = readHash();
    setTheme(asked.theme);
    document.getElementById('foot').textContent = 'Written by tunerd ' + state.report.tunerd + ' on ' + dateText(state.report.created_unix_ms) +
        ', from ' + [].concat(state.report.from).join(', ') + '. Charts by Apache ECharts, under the Apache License 2.0.';
    if (state.report.groups.length === 0) {
        document.getElementById('headline').append(make('p', null, 'There are no measurements in this report.'));
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
}());
