// Plotly with the page's colours; every text that comes from the data goes through `plain`.

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const drawn = new Map();

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

/** A number as people like to read it: four significant digits. */
function figure(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return value.toExponential(2).replace("e+", "e");
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
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
  if (column.steps) return { tickmode: "array", tickvals: column.steps.map((_, k) => k), ticktext: column.steps.map((s) => plain(s, 9)) };
  if (column.origin === null) return {};
  const at = [0, 1, 2, 3].map((k) => low + (k * (high - low)) / 3);
  return { tickmode: "array", tickvals: at, ticktext: at.map((v) => valueText({ ...column, daily: high - low > 3 || column.daily }, v)) };
}

function axis(extra) {
  return {
    gridcolor: css("--line"), zerolinecolor: css("--faint"), linecolor: css("--line"), fixedrange: true,
    automargin: true, tickfont: { size: 11.5 }, ...extra,
  };
}

/** Draw, and remember how, so that a change of theme can draw again. */
function draw(id, build) {
  drawn.set(id, build);
  const { data, layout } = build();
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, dragmode: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: css("--soft") },
    margin: { l: 44, r: 12, t: 8, b: 34 }, height: 240, hovermode: "closest",
    hoverlabel: { bgcolor: css("--ink"), bordercolor: css("--ink"), font: { color: css("--paper"), size: 12 }, align: "left", namelength: -1 },
  };
  const place = typeof id === "string" ? document.getElementById(id) : id;
  Plotly.react(place, data, { ...base, ...layout }, { displayModeBar: false, responsive: true });
}

function redraw() {
  for (const [id, build] of drawn) draw(id, build);
}

/** Horizontal bars with a label each; positions are numbers, so no label is ever taken for a date or a tag. */
function bars(labels, values, options = {}) {
  const at = labels.map((_, k) => labels.length - 1 - k);
  const narrow = window.innerWidth < 600;
  return {
    data: [{
      type: "bar", orientation: "h", y: at, x: values, marker: { color: options.colors || css("--accent") },
      hovertext: labels.map((label, k) => `${plain(label, 60)}: ${figure(values[k])}`), hoverinfo: "text",
      base: options.base, width: 0.62,
      text: values.map((v) => figure(v, 3)), textposition: options.base ? "none" : "outside", cliponaxis: false,
    }],
    layout: {
      height: 60 + 30 * labels.length, bargap: 0.3, margin: { l: 10, r: 54, t: 6, b: 34 },
      xaxis: axis({ title: options.title ? { text: plain(options.title, 60), font: { size: 12 } } : undefined }),
      yaxis: axis({ tickmode: "array", tickvals: at, ticktext: labels.map((l) => plain(l, narrow ? 16 : 28)), showgrid: false, zeroline: false, range: [-0.7, labels.length - 0.3] }),
    },
  };
}

/** One column's effect: density below, the spline and the network above, the knots on the spline. */
function effectChart(effect, output) {
  const category = effect.categories !== null;
  const x = effect.grid;
  const line = (values, extra) => ({ x, y: values[output], yaxis: "y2", type: "scatter", mode: "lines", ...extra });
  const data = [];
  if (effect.counts && !category) {
    const maxCount = Math.max(...effect.counts);
    const centres = effect.counts.map((_, k) => (effect.edges[k] + effect.edges[k + 1]) / 2);
    data.push({
      type: "bar", x: centres, y: effect.counts.map((n) => n / maxCount), width: centres.map((_, k) => effect.edges[k + 1] - effect.edges[k]),
      marker: { color: css("--line"), line: { width: 0 } }, hoverinfo: "skip",
    });
  }
  const both = effect.spline && effect.network;
  if (category) {
    const bar = (values, color, name) => ({
      type: "bar", x, y: values[output], yaxis: "y2", marker: { color }, hoverinfo: "text",
      hovertext: effect.categories.map((label, k) => `${plain(label, 60)}<br>${name} ${figure(values[output][k])}` + (effect.counts ? `<br>${figure(effect.counts[k])} rows` : "")),
    });
    if (effect.spline) data.push(bar(effect.spline, both ? css("--faint") : css("--accent"), "spline"));
    if (effect.network) data.push(bar(effect.network, css("--accent"), "network"));
  } else {
    if (effect.spline) {
      data.push(line(effect.spline, { line: { color: both ? css("--soft") : css("--accent"), width: 2, dash: both ? "dash" : "solid" }, hovertemplate: "spline %{y:.4~g}<extra></extra>" }));
      const heights = effect.knots.map((t) => interpolate(effect.grid, effect.spline[output], t));
      data.push({
        type: "scatter", mode: "markers", x: effect.knots, y: heights, yaxis: "y2", hovertemplate: "knot at %{text}<extra></extra>", text: effect.knots.map((t) => effect.origin === null && !effect.steps && !effect.unit ? figure(t, 6) : plain(valueText(effect, t), 30)),
        marker: { size: 8, color: css("--paper"), line: { width: 2, color: both ? css("--soft") : css("--accent") } },
      });
    }
    if (effect.network) data.push(line(effect.network, { line: { color: css("--accent"), width: 2.5 }, hovertemplate: "network %{y:.4~g}<extra></extra>" }));
    if (effect.missing) { // a line across: it belongs to no value of the column
      const height = (effect.missing.network || effect.missing.spline)[output];
      const rows = effect.missing.count === null ? "" : `, ${figure(effect.missing.count)} rows`;
      data.push(line({ [output]: x.map(() => height) }, { line: { color: css("--warm"), width: 1.5, dash: "dot" }, hovertemplate: `missing %{y:.4~g}${rows}<extra></extra>` }));
    }
  }
  return {
    data,
    layout: {
      height: 215, hovermode: category ? "closest" : "x unified", hoverdistance: category ? 20 : -1, barmode: category ? "group" : "overlay", bargap: category ? 0.35 : 0, margin: { l: 40, r: 8, t: 10, b: 30 },
      hoverlabel: { bgcolor: css("--paper"), bordercolor: css("--faint"), font: { color: css("--ink"), size: 12 } },
      xaxis: axis(category ? { tickmode: "array", tickvals: x, ticktext: effect.categories.map((c) => plain(c, 12)), showgrid: false, zeroline: false } : { showgrid: false, zeroline: false, hoverformat: ".4~g", nticks: 6, ...scaleTicks(effect, x[0], x[x.length - 1]) }),
      yaxis: { range: [0, 4], visible: false, fixedrange: true }, // the density lies under the curves
      yaxis2: axis({ tickmode: "auto", nticks: 6, overlaying: "y", side: "left" }),
    },
  };
}

function surfaceChart(surface, output) {
  const values = surface.values[output];
  const maxSize = Math.max(1e-300, ...values.flat().map(Math.abs));
  const ticks = (c) => surface.categories[c] ? { tickmode: "array", tickvals: surface.grids[c], ticktext: surface.categories[c].map((t) => plain(t, 12)) } : {};
  return {
    data: [heat(surface.grids[1], surface.grids[0], values, maxSize, { hovertemplate: "%{y:.4~g}, %{x:.4~g}<br>%{z:.4~g}<extra></extra>", xgap: 0, ygap: 0 })],
    layout: {
      height: 330, margin: { l: 56, r: 8, t: 10, b: 44 },
      xaxis: axis({ title: { text: plain(surface.columns[1], 40) }, ...ticks(1) }), yaxis: axis({ title: { text: plain(surface.columns[0], 40) }, ...ticks(0) }),
    },
  };
}

/** A heat map around zero. */
function heat(x, y, z, maxSize, extra) {
  return {
    type: "heatmap", x, y, z, zmin: -maxSize, zmax: maxSize, xgap: 1, ygap: 1,
    colorscale: [[0, css("--warm")], [0.5, css("--sheet")], [1, css("--accent")]],
    colorbar: { thickness: 10, outlinewidth: 0, tickfont: { size: 11 }, len: 0.9, nticks: 5 }, ...extra,
  };
}
