// Plotly with the page's colours; every text that comes from the data goes through `plain`.

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const drawn = new Map(), seen = new Set();
// A chart is drawn when it comes near the window: a page of many columns opens at once.
const watcher = typeof IntersectionObserver === "undefined" ? null : new IntersectionObserver((entries) => {
  entries.filter((entry) => entry.isIntersecting).forEach((entry) => render(entry.target));
}, { rootMargin: "500px" });

/** Cut a text to so many characters. */
function short(text, maxLength = 26) {
  const letters = Array.from(text);
  return letters.length > maxLength ? letters.slice(0, maxLength - 1).join("") + "…" : text;
}

/** Plotly reads tags and entities in its labels; this leaves none to read. */
function plain(text, maxLength) {
  const shown = short(String(text).replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g, " "), maxLength);
  return shown.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

/** A number as people like to read it: four significant digits; whole ones with all of theirs, as years and ids have them. */
function figure(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value < 0) return `−${figure(-value, digits)}`; // the sign that the axes have
  if (value === 0) return "0";
  if (Number.isInteger(value) && value < 1e15) return String(value);
  if (value >= 1e7 || value < 1e-4) return value.toExponential(Math.min(2, digits - 1)).replace("e+", "e").replace("e-", "e−");
  return value >= 10 ** digits ? String(Math.round(value)) : String(Number(value.toPrecision(digits)));
}

/** A number for a narrow place: two or three digits, thousands as k and M. */
function brief(value) {
  const size = Math.abs(value);
  const [by, unit] = size >= 999.5e3 ? [1e6, "M"] : size >= 9999.5 ? [1e3, "k"] : [1, ""];
  return size >= 999.5e6 ? figure(value, 2) : figure(Number((value / by).toPrecision(size / by >= 100 ? 3 : 2)), 2) + unit;
}

/** A number of things: these have thousands separators. */
function counted(value) {
  return Number.isInteger(value) ? value.toLocaleString("en") : figure(value);
}

/** Digits of a number beside others: three, and one of what is small beside the largest. */
function digitsBeside(value, values) {
  return Math.abs(value) < 0.01 * Math.max(...values.map(Math.abs)) ? 1 : 3;
}

/** A number with its sign. */
function signed(value, digits = 3) {
  return value === 0 ? "0" : (value > 0 ? "+" : "−") + figure(Math.abs(value), digits);
}

/** A column's number as people read it: a date, a step of an order, a length of time, or the number. */
function valueText(column, value) {
  if (column.steps && Number.isInteger(value) && column.steps[value] !== undefined) return column.steps[value];
  if (column.origin !== null) {
    const moment = new Date(column.origin + value * 864e5 + (column.daily ? 0 : 3e4)); // to the nearest minute
    if (!Number.isFinite(moment.getTime())) return figure(value);
    const [day, time] = moment.toLocaleString("sv-SE", { timeZone: column.zone }).split(" ");
    return column.daily || time.slice(0, 5) === "00:00" ? day : `${day} ${time.slice(0, 5)}`;
  }
  return column.unit ? `${figure(value)} ${column.unit}` : figure(value);
}

/** Labels for an axis whose numbers are not shown as numbers. */
function scaleTicks(column, low, high) {
  if (column.steps) return named(column.steps.map((_, k) => k), column.steps, 9);
  // Years and ids have all their digits and no thousands separators, which Plotly gives to five digits and more.
  const size = Math.max(Math.abs(low), Math.abs(high));
  if (column.origin === null) return size < 1e7 ? { tickformat: ".12~g" } : size < 1e10 ? longTicks(low, high) : fewTicks(low, high);
  const starts = calendarTicks(column, low, high);
  if (starts) return starts;
  const daily = high - low > 3 || column.daily; // inside: labels at the ends would be cut
  const at = (daily ? [0.12, 0.5, 0.88] : [0.2, 0.8]).map((share) => low + share * (high - low));
  return { tickmode: "array", tickvals: at, ticktext: at.map((v) => valueText({ ...column, daily }, v)) };
}

/** Fewer ticks where numbers have powers of ten. */
function fewTicks(...values) {
  const size = Math.max(...values.map(Math.abs));
  return size >= 1e7 || (size > 0 && size < 1e-4) ? { nticks: 3, exponentformat: "e" } : {};
}

/** Few ticks, for numbers of many digits. */
function longTicks(low, high) {
  const power = 10 ** Math.floor(Math.log10(high - low || 1)), inside = (step) => Math.floor(high / step) - Math.ceil(low / step) + 1;
  const step = [5 * power, 2 * power, power, power / 2].find((s) => inside(s) >= 2) || power / 5;
  const every = inside(step) > 3 ? 2 : 1; // three have room
  const at = Array.from({ length: inside(step) }, (_, k) => (Math.ceil(low / step) + k) * step).filter((_, k) => k % every === 0);
  return { tickmode: "array", tickvals: at, ticktext: at.map((v) => figure(v, 10)), tickangle: 0 };
}

/** Ticks at the starts of years or months, null where there are too few of them. */
function calendarTicks(column, low, high) {
  const month = (value) => { const day = new Date(column.origin + value * 864e5); return 12 * day.getUTCFullYear() + day.getUTCMonth(); };
  const first = month(low), months = month(high) - first;
  if (!(months >= 3 && first >= 1200)) return null; // browsers take years below 100 for those of a century
  const step = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200].find((s) => months / s <= (s < 12 ? 4 : 6));
  if (!step) return null;
  const at = [];
  for (let m = step * Math.ceil((first + 1) / step); m <= first + months; m += step) at.push(m);
  return {
    tickmode: "array", tickvals: at.map((m) => (Date.UTC(Math.floor(m / 12), m % 12) - column.origin) / 864e5),
    ticktext: at.map((m) => String(Math.floor(m / 12)) + (step < 12 ? `-${String(1 + (m % 12)).padStart(2, "0")}` : "")),
  };
}

/** Ticks with names; long ones hang to the left of their ticks, so that the last does not leave the picture. */
function named(values, names, maxLength) {
  const shown = names.map((name) => short(String(name), maxLength));
  const slanted = shown.reduce((sum, name) => sum + name.length + 2, 0) > 34;
  return { tickmode: "array", tickvals: values, ticktext: shown.map((name) => plain(name)), tickangle: slanted ? -45 : 0, ticklabeloverflow: "allow" };
}

function axis(extra) {
  return {
    gridcolor: css("--line"), zerolinecolor: css("--faint"), linecolor: css("--line"), fixedrange: true,
    automargin: true, tickfont: { size: 11.5 }, exponentformat: "power", minexponent: 7, separatethousands: false, ...extra,
  };
}

/** What an axis measures. */
function titled(text, maxLength = 44) {
  return { text: plain(text, maxLength), font: { size: 12 }, standoff: 6 };
}

/** Draw, and remember how, so that a change of theme can draw again; `label` says to screen readers what it is. */
function draw(id, build, label) {
  const place = typeof id === "string" ? document.getElementById(id) : id;
  drawn.set(place, build);
  if (label) {
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", label);
  }
  if (seen.has(place) || !watcher) return render(place);
  place.style.minHeight = `${build().layout.height || 240}px`;
  watcher.observe(place);
}

function render(place) {
  const { data, layout } = drawn.get(place)();
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, dragmode: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--soft") },
    margin: { l: 44, r: 12, t: 8, b: 34 }, height: 240, hovermode: "closest",
    hoverlabel: { bgcolor: css("--ink"), bordercolor: css("--ink"), font: { color: css("--paper"), size: 12 }, align: "left", namelength: -1 },
  };
  if (watcher) watcher.unobserve(place);
  seen.add(place);
  place.style.minHeight = "";
  Plotly.react(place, data, { ...base, ...layout }, { displayModeBar: false, responsive: true });
}

/** Draw again what has been drawn. */
function redraw() {
  for (const place of seen) render(place);
}

/** Draw everything, for paper. */
function drawAll() {
  for (const place of drawn.keys()) if (!seen.has(place)) render(place);
}

/** Room for the labels of bars beyond their ends. */
function roomy(values, share = 0.16) {
  const low = Math.min(0, ...values), high = Math.max(0, ...values), room = share * (high - low || 1);
  return [low < 0 ? low - room : low - 0.02 * room, high > 0 ? high + room : high + 0.02 * room];
}

/** The range of an axis of so many pixels in which bars have room for their labels: `from` and `to` of each bar. */
function rangeWithLabels(from, to, text, pixels) {
  let low = Math.min(...from, ...to), high = Math.max(...from, ...to);
  const ends = [low, high];
  for (let k = 0; k < 8; k++) { // labels take a share of the range that they make wider
    const pixel = (high - low || 1) / Math.max(pixels, 80);
    const reach = to.map((end, i) => end + (end < from[i] ? -1 : 1) * (7 * text[i].length + 12) * pixel);
    low = Math.min(ends[0], ...reach);
    high = Math.max(ends[1], ...reach);
  }
  return [low, high];
}

/** Horizontal bars with a label each; positions are numbers, so no label is ever taken for a date or a tag. */
function bars(labels, values, options = {}) {
  const at = labels.map((_, k) => labels.length - 1 - k);
  const narrow = window.innerWidth < 600;
  const names = labels.map((label) => short(String(label), narrow ? 16 : 28));
  const text = options.text || values.map((v) => figure(v, digitsBeside(v, values)));
  const from = options.base || values.map(() => 0);
  const page = Math.min(window.innerWidth, 1120) - (narrow ? 64 : 110);
  const pixels = (narrow ? page : page * (options.share || 1)) - 6.5 * Math.max(...names.map((name) => name.length));
  const range = options.range || rangeWithLabels(from, values.map((v, k) => from[k] + v), text, pixels);
  return {
    data: [{
      type: "bar", orientation: "h", y: at, x: values, marker: { color: options.colors || css("--accent") },
      hovertext: labels.map((label, k) => `${plain(label, 60)}: ${text[k]}`), hoverinfo: "text",
      base: options.base, width: 0.62, text, textposition: "outside", cliponaxis: false, textfont: { color: css("--ink"), size: 11.5 }, constraintext: "none",
    }],
    layout: {
      height: 64 + 30 * labels.length, bargap: 0.3, margin: { l: 10, r: 24, t: 6, b: 40 },
      xaxis: axis({ range, title: options.title ? titled(options.title, narrow ? 44 : 90) : undefined, nticks: narrow ? 5 : 10, ...fewTicks(...range) }),
      yaxis: axis({ tickmode: "array", tickvals: at, ticktext: names.map((name) => plain(name)), showgrid: false, zeroline: false, range: [-0.7, labels.length - 0.3] }),
    },
  };
}

/** The labels of a column that is drawn as bars: of categories, or of 0 and 1. */
function barLabels(effect) {
  return effect.categories || (effect.binary ? ["0", "1"] : null);
}

/** A colour of the theme, see-through. */
function faded(name, alpha) {
  const color = css(name), parts = [1, 3, 5].map((k) => parseInt(color.slice(k, k + 2), 16));
  return `rgba(${parts.join(",")},${alpha})`;
}

/** One column's effect: density below, the spline and the network above, the knots on the spline, a band around. */
function effectChart(effect, output, name) {
  const labels = barLabels(effect), title = `effect on ${name}`;
  const many = labels && (labels.length > 6 || labels.some((label) => label.length > 14));
  const drawn = many ? effectRows(effect, output, labels, title) : labels ? effectBars(effect, output, labels) : effectLines(effect, output);
  const unit = effect.unit ? ` (${effect.unit})` : "";
  return {
    data: drawn.data,
    layout: {
      height: 250, hovermode: labels ? "closest" : "x unified", hoverdistance: labels ? 20 : -1, barmode: "overlay", bargap: 0, margin: { l: 44, r: 8, t: 10, b: 42 },
      hoverlabel: { bgcolor: css("--paper"), bordercolor: css("--faint"), font: { color: css("--ink"), size: 12 } },
      ...drawn.layout,
      xaxis: many ? drawn.layout.xaxis : axis({ title: titled(effect.column + unit, 36), showgrid: false, zeroline: false, ...drawn.layout.xaxis }),
      yaxis: many ? drawn.layout.yaxis : { range: [0, 4], visible: false, fixedrange: true }, // the density lies under the curves
      ...(many ? {} : { yaxis2: axis({ title: titled(title, 34), tickmode: "auto", nticks: 6, overlaying: "y", side: "left", ...drawn.layout.yaxis2 }) }),
    },
  };
}

/** What bars of an effect show: a bar for each category, for 0 and 1, and for rows without a value. */
function barsOf(effect, output, labels) {
  const gap = effect.missing, models = ["spline", "network"].filter((name) => effect[name]);
  const names = gap ? [...labels, "missing"] : labels, counts = effect.counts && (gap ? [...effect.counts, gap.count] : effect.counts);
  const series = models.map((name, m) => {
    const heights = [...effect[name][output], ...(gap ? [gap[name][output]] : [])];
    const band = effect.band && m === models.length - 1 ? effect.band : null;
    const end = (side, pick) => heights.map((v, k) => (band && k < labels.length ? pick(v, band[side][output][k]) : v));
    return {
      name, heights, low: end("lower", Math.min), high: end("upper", Math.max), banded: Boolean(band), text: heights.map(brief),
      hover: names.map((label, k) => `${plain(label, 60)}<br>${name} ${figure(heights[k])}` + (counts && counts[k] !== null ? `<br>${counted(counts[k])} rows` : "")),
    };
  });
  return { names, series };
}

function errorBar(s) {
  return s.banded ? { type: "data", symmetric: false, color: css("--soft"), thickness: 1.2, array: s.heights.map((v, k) => s.high[k] - v), arrayminus: s.heights.map((v, k) => v - s.low[k]) } : undefined;
}

/** Pixels between a bar and its number: the cap of a band that touches it would read as one more digit. */
function clear(s) { return s.banded ? 5 : 2; }

/** Few bars stand side by side; their numbers lie beyond the bands. */
function effectBars(effect, output, labels) {
  const { names, series } = barsOf(effect, output, labels), both = series.length > 1;
  const width = 0.7 / series.length, data = [], annotations = [];
  const room = (window.innerWidth < 600 ? 230 : 250) / names.length * (both ? 0.35 : 1);
  const upright = 3 + 6.2 * Math.max(...series.flatMap((s) => s.text).map((text) => text.length)) > room;
  series.forEach((s, m) => {
    const x = names.map((_, k) => k + (m - (series.length - 1) / 2) * width);
    data.push({
      type: "bar", x, y: s.heights, width, yaxis: "y2", hoverinfo: "text", hovertext: s.hover, error_y: errorBar(s),
      marker: { color: names.map((_, k) => css(k === labels.length ? "--warm" : both && !m ? "--mute" : "--accent")), opacity: names.map((_, k) => (k === labels.length && both && !m ? 0.5 : 1)) },
    });
    s.heights.forEach((v, k) => annotations.push({
      x: x[k], y: v < 0 ? s.low[k] : s.high[k], yref: "y2", text: s.text[k], showarrow: false, textangle: upright ? -90 : 0,
      yanchor: v < 0 ? "top" : "bottom", yshift: s.banded ? (v < 0 ? -1 : 1) * clear(s) : 0, font: { size: 10.5, color: css("--ink") }, borderpad: 0,
    }));
  });
  return { data, layout: {
    annotations, xaxis: { ...named(names.map((_, k) => k), names, 12), range: [-0.5, names.length - 0.5] },
    yaxis2: { range: roomy(series.flatMap((s) => [...s.low, ...s.high]), upright ? 0.3 : 0.18) },
  } };
}

/** Many bars, or long names, lie below each other: the model's bars, and marks where the spline is. */
function effectRows(effect, output, labels, title) {
  const { names, series } = barsOf(effect, output, labels), s = series[series.length - 1];
  const shown = distinct(names, 18), at = names.map((_, k) => names.length - 1 - k), narrow = window.innerWidth < 600;
  const pixels = (narrow ? window.innerWidth - 64 : 310) - 6.5 * Math.max(...shown.map((name) => name.length));
  const to = s.heights.map((v, k) => (v < 0 ? s.low[k] : s.high[k])), ends = [...s.low, ...s.high, ...series[0].heights];
  const range = rangeWithLabels(to.map(() => 0), to, s.text, pixels);
  const data = [{
    type: "bar", orientation: "h", y: at, x: s.heights, width: 0.7, hoverinfo: "text", hovertext: s.hover, error_x: errorBar(s),
    marker: { color: names.map((_, k) => css(k === labels.length ? "--warm" : "--accent")) },
  }];
  if (series.length > 1) data.push({ type: "scatter", mode: "markers", y: at, x: series[0].heights, hoverinfo: "text", hovertext: series[0].hover, marker: { symbol: "line-ns", size: 11, line: { width: 2, color: css("--ink") } } });
  return { data, layout: {
    height: Math.max(250, 66 + 19 * names.length), margin: { l: 10, r: 8, t: 10, b: 42 },
    annotations: s.heights.map((v, k) => ({ x: to[k], y: at[k], text: s.text[k], showarrow: false, xanchor: v < 0 ? "right" : "left", xshift: (v < 0 ? -1 : 1) * clear(s), font: { size: 10.5, color: css("--ink") }, borderpad: 0 })),
    xaxis: axis({ title: titled(title, 40), nticks: 5, range: [Math.min(range[0], ...ends), Math.max(range[1], ...ends)] }),
    yaxis: axis({ tickmode: "array", tickvals: at, ticktext: shown.map((name) => plain(name)), tickfont: { size: 11 }, showgrid: false, zeroline: false, range: [-0.7, names.length - 0.3] }),
  } };
}

/** Names cut to so many letters, in the middle where their beginnings are the same. */
function distinct(names, maxLength) {
  const cut = names.map((name) => short(String(name), maxLength));
  if (new Set(cut).size === new Set(names).size) return cut;
  return names.map((name) => {
    const letters = Array.from(String(name)), half = Math.floor(maxLength / 2) - 1;
    return letters.length > maxLength ? `${letters.slice(0, half).join("")}…${letters.slice(-half).join("")}` : String(name);
  });
}

/** A line across: it belongs to no value of the column. */
function missingLine(effect, output, x) {
  const height = (effect.missing.network || effect.missing.spline)[output];
  const rows = effect.missing.count === null ? "" : `, ${counted(effect.missing.count)} rows`;
  return { x, y: x.map(() => height), yaxis: "y2", type: "scatter", mode: "lines", line: { color: css("--warm"), width: 1.5, dash: "dot" }, hovertemplate: `missing %{y:.4~g}${rows}<extra></extra>` };
}

function effectLines(effect, output) {
  const x = effect.grid, both = effect.spline && effect.network, data = [];
  const line = (y, extra) => ({ x, y, yaxis: "y2", type: "scatter", mode: "lines", ...extra });
  if (effect.counts) {
    const widths = effect.counts.map((_, k) => effect.edges[k + 1] - effect.edges[k]);
    const heights = effect.counts.map((n, k) => n / (widths[k] || 1)), highest = Math.max(...heights);
    const centres = effect.counts.map((_, k) => (effect.edges[k] + effect.edges[k + 1]) / 2);
    data.push({
      type: "bar", x: centres, y: heights.map((h) => h / highest), width: widths,
      marker: { color: css("--line"), line: { width: 0 } }, hoverinfo: "skip",
    });
  }
  if (effect.band) {
    data.push(line(effect.band.lower[output], { line: { width: 0 }, hoverinfo: "skip" }));
    data.push(line(effect.band.upper[output], { line: { width: 0 }, fill: "tonexty", fillcolor: faded("--accent", 0.2), hoverinfo: "skip" }));
  }
  if (effect.spline) {
    data.push(line(effect.spline[output], { line: { color: both ? css("--soft") : css("--accent"), width: 2, dash: both ? "dash" : "solid" }, hovertemplate: "spline %{y:.4~g}<extra></extra>" }));
    const heights = effect.knots.map((t) => interpolate(effect.grid, effect.spline[output], t));
    data.push({
      type: "scatter", mode: "markers", x: effect.knots, y: heights, yaxis: "y2", hovertemplate: "knot at %{text}<extra></extra>", text: effect.knots.map((t) => effect.origin === null && !effect.steps && !effect.unit ? figure(t, 6) : plain(valueText(effect, t), 30)),
      marker: { size: 8, color: css("--paper"), line: { width: 2, color: both ? css("--soft") : css("--accent") } },
    });
  }
  if (effect.network) data.push(line(effect.network[output], { line: { color: css("--accent"), width: 2.5 }, hovertemplate: "network %{y:.4~g}<extra></extra>" }));
  if (effect.missing) data.push(missingLine(effect, output, x));
  return { data, layout: { xaxis: { hoverformat: ".4~g", nticks: 6, ...scaleTicks(effect, x[0], x[x.length - 1]) } } };
}

function surfaceChart(surface, output, name) {
  const values = surface.values[output];
  const maxSize = Math.max(1e-300, ...values.flat().map(Math.abs));
  const ticks = (c) => surface.categories[c] ? { ...named(surface.grids[c], surface.categories[c], 12), ...(c ? {} : { tickangle: 0 }) } : scaleTicks(surface.scales[c], surface.grids[c][0], surface.grids[c][surface.grids[c].length - 1]);
  return {
    data: [heat(surface.grids[1], surface.grids[0], values, maxSize, { hovertemplate: "%{y:.4~g}, %{x:.4~g}<br>%{z:.4~g}<extra></extra>", xgap: 0, ygap: 0, title: `effect on ${name}` })],
    layout: {
      height: 340, margin: { l: 56, r: 8, t: 10, b: 44 },
      xaxis: axis({ title: titled(surface.columns[1], 40), ...ticks(1) }), yaxis: axis({ title: titled(surface.columns[0], 40), ...ticks(0) }),
    },
  };
}

/** A heat map around zero. */
function heat(x, y, z, maxSize, { title, ...extra }) {
  return {
    type: "heatmap", x, y, z, zmin: -maxSize, zmax: maxSize, xgap: 1, ygap: 1,
    colorscale: [[0, css("--warm")], [0.5, css("--sheet")], [1, css("--accent")]],
    colorbar: { thickness: 10, outlinewidth: 0, tickfont: { size: 11 }, len: 0.9, nticks: 5, title: { text: plain(title, 34), side: "right", font: { size: 12 } } }, ...extra,
  };
}
