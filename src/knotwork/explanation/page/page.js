// The sections, filled from the data; text goes in as text.

const data = JSON.parse(document.getElementById("data").textContent);
const at = (id) => document.getElementById(id);
let output = 0;

function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function hide(id) { at(id).hidden = true; }

function table(id, head, rows, choose) {
  const place = at(id);
  place.replaceChildren();
  const top = make("tr");
  head.forEach((text) => top.append(make("th", text, { scope: "col", title: text })));
  const thead = make("thead"), body = make("tbody");
  thead.append(top);
  rows.forEach(({ cells, kind }, k) => {
    const line = make("tr", null, kind ? { class: kind } : {});
    cells.forEach((text) => line.append(make("td", text, String(text).length > 24 ? { title: text } : {})));
    if (choose) {
      line.classList.add("choice");
      line.tabIndex = 0;
      const pick = () => {
        body.querySelectorAll("tr").forEach((other) => other.setAttribute("aria-selected", String(other === line)));
        choose(k);
      };
      line.addEventListener("click", pick);
      line.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(); } });
    }
    body.append(line);
  });
  place.append(thead, body);
}

function tabs(id, names, choose) {
  const buttons = names.map((name, k) => {
    const button = make("button", name, { type: "button", role: "tab", "aria-selected": String(k === 0) });
    button.addEventListener("click", () => {
      buttons.forEach((other) => other.setAttribute("aria-selected", String(other === button)));
      choose(k);
    });
    return button;
  });
  at(id).replaceChildren(...buttons);
  if (names.length < 2) hide(id);
}

function overview() {
  const m = data.meta;
  document.title = `${m.response}: knotwork report`;
  at("kind").textContent = m.kind;
  at("headline").textContent = m.headline;
  m.figures.forEach(({ label, value }) => {
    const box = make("div", null, { class: "figure" });
    box.append(make("b", typeof value === "number" ? figure(value) : value), make("span", label));
    at("figures").append(box);
  });
  if (m.formula) {
    at("formula-box").hidden = false;
    at("formula").textContent = m.formula;
  }
  at("made-by").textContent = `Made by knotwork ${m.version}. Everything on this page is in this file.`;
}

function quality() {
  const q = data.quality;
  if (!q) return hide("quality");
  at("quality-lead").textContent = q.lead;
  const key = q.columns.findIndex((c) => c.startsWith("validation"));
  const judged = q.rows.map((r) => r.values[key < 0 ? 0 : key] ?? Infinity);
  const best = Math.min(...judged);
  table("quality-table", ["", ...q.columns], q.rows.map((r, k) => ({ cells: [r.name, ...r.values.map((v) => figure(v))], kind: judged[k] === best ? "best" : "" })));
}

function importance() {
  const measures = data.importances;
  if (!measures.length) return hide("importance");
  const show = (k) => {
    const shown = measures[k].columns.slice(0, 20), values = measures[k].values.slice(0, 20);
    at("importance-lead").textContent = measures[k].lead + (measures[k].columns.length > 20 ? ` The first 20 of ${measures[k].columns.length} columns.` : "");
    draw("importance-chart", () => bars(shown, values, { title: measures[k].unit }));
  };
  tabs("importance-tabs", measures.map((m) => m.name), show);
  show(0);
}

function effects() {
  if (!data.effects.length) return hide("effects");
  at("effects-lead").textContent = data.meta.effects;
  const both = data.effects.some((e) => e.spline && e.network);
  const legend = [[both ? "dash" : "", both ? "--soft" : "--accent", "spline", data.effects.some((e) => e.spline)], ["dot", both ? "--soft" : "--accent", "knot", data.effects.some((e) => e.spline)],
    ["", "--accent", "trained network", data.effects.some((e) => e.network)], ["block", "--faint", "how many rows have the value", data.effects.some((e) => e.counts)]];
  legend.filter((l) => l[3]).forEach(([shape, color, text]) => {
    const item = make("span"), mark = make("i", null, { class: shape });
    mark.style.color = `var(${color})`;
    item.append(mark, text);
    at("effects-legend").append(item);
  });
  const show = (from, to) => data.effects.slice(from, to).forEach((effect) => {
    const card = make("div", null, { class: "card" }), chart = make("div", null, { class: "chart effect" });
    card.append(make("h3", effect.column, { title: effect.column }), chart);
    at("effects-grid").append(card);
    draw(chart, () => effectChart(effect, output));
  });
  const first = 12;
  show(0, first);
  if (data.effects.length > first) {
    const more = at("effects-more");
    more.hidden = false;
    more.textContent = `Show the other ${data.effects.length - first} columns`;
    more.addEventListener("click", () => { show(first); more.hidden = true; });
  }
}

function interactions() {
  if (!data.surfaces.length) return hide("interactions");
  data.surfaces.forEach((surface) => {
    const name = surface.columns.join(" × ");
    const card = make("div", null, { class: "card" }), chart = make("div", null, { class: "chart" });
    card.append(make("h3", name, { title: name }), chart);
    at("interactions-grid").append(card);
    draw(chart, () => surfaceChart(surface, output));
  });
}

function knots() {
  if (!data.knots.length) return hide("knots");
  const show = (k) => {
    const knot = data.knots[k];
    const more = knot.count > knot.rows.length ? `, the first ${knot.rows.length} of ${knot.count} rows` : "";
    at("knot-title").textContent = `${knot.feature} = ${knot.shown ?? figure(knot.value, 7)}${more}`;
    table("knot-rows", ["row", ...data.rowColumns], knot.rows.map((r) => ({ cells: [String(r.row), ...r.values.map((v) => typeof v === "number" ? figure(v, 6) : v)] })));
  };
  table("knots-table", ["feature", "knot", "rows"], data.knots.map((k) => ({ cells: [k.feature, k.shown ?? figure(k.value, 7), figure(k.count)] })), show);
  at("knots-table").querySelector("tbody tr").setAttribute("aria-selected", "true");
  show(0);
}

function training() {
  const h = data.history;
  if (!h) return hide("training");
  at("training-lead").textContent = h.lead;
  draw("training-chart", () => {
    const curve = (values, name, extra) => ({ type: "scatter", mode: "lines", x: values.map((_, k) => k), y: values, name, line: { width: 2, ...extra }, hovertemplate: `${name} %{y:.4~g}<extra></extra>` });
    const traces = [curve(h.train, "training rows", { color: css("--faint") }), curve(h.validation, "validation rows", { color: css("--accent"), width: 2.5 })];
    if (h.random) traces.push(curve(h.random, "validation rows, random start", { color: css("--warm"), dash: "dash" }));
    traces.push({ type: "scatter", mode: "markers", x: [h.best], y: [h.validation[h.best]], name: "kept", marker: { size: 9, color: css("--accent") }, hovertemplate: "kept<extra></extra>" });
    return { data: traces, layout: {
      height: 300, hovermode: "x unified", hoverdistance: -1, showlegend: true, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, margin: { l: 50, r: 12, t: 30, b: 40 },
      hoverlabel: { bgcolor: css("--paper"), bordercolor: css("--faint"), font: { color: css("--ink"), size: 12 } },
      xaxis: axis({ title: { text: "epoch" }, showgrid: false, rangemode: "tozero" }), yaxis: axis({ title: { text: h.unit } }),
    } };
  });
}

function drift() {
  const d = data.drift;
  if (!d) return hide("drift");
  at("drift-lead").textContent = d.lead;
  const kinds = ["change", "before", "after"];
  const show = (k) => draw("drift-chart", () => {
    const z = d[kinds[k]];
    const maxSize = Math.max(1e-300, ...z.flat().map(Math.abs));
    const x = d.inputs.map((_, i) => i), y = d.units.map((_, i) => i);
    const narrow = window.innerWidth < 600;
    const text = z.map((row, i) => row.map((v, j) => `${plain(d.units[i], 40)}<br>reads ${plain(d.inputs[j], 40)}<br>${kinds[k]} ${figure(v, 3)}`));
    return { data: [heat(x, y, z, maxSize, { text, hoverinfo: "text" })], layout: {
      height: 120 + 15 * y.length, margin: { l: 10, r: 8, t: 6, b: 40 },
      xaxis: axis({ tickmode: "array", tickvals: x, ticktext: d.inputs.map((n) => plain(n, 14)), tickangle: -45, showgrid: false, zeroline: false }),
      yaxis: axis({ tickmode: "array", tickvals: y, ticktext: d.units.map((n) => plain(n, narrow ? 14 : 24)), autorange: "reversed", tickfont: { size: 10.5 }, showgrid: false, zeroline: false }),
    } };
  });
  tabs("drift-tabs", ["Change", "Before training", "After training"], show);
  show(0);
  draw("inputs-chart", () => {
    const y = d.inputs.map((_, i) => d.inputs.length - 1 - i);
    const trace = (values, name, color) => ({ type: "bar", orientation: "h", y, x: values, name, marker: { color }, hoverinfo: "text", hovertext: values.map((v, i) => `${plain(d.inputs[i], 60)}<br>${name}: ${figure(v, 3)}`) });
    return { data: [trace(d.strength_after, "after", css("--accent")), trace(d.strength_before, "before", css("--faint"))], layout: {
      height: Math.max(240, 90 + 26 * y.length), barmode: "group", bargap: 0.35, margin: { l: 10, r: 10, t: 24, b: 40 },
      showlegend: true, legend: { orientation: "h", x: 0, y: 1.01, yanchor: "bottom", traceorder: "reversed" },
      xaxis: axis({ title: { text: "strength of its paths" } }),
      yaxis: axis({ tickmode: "array", tickvals: y, ticktext: d.inputs.map((n) => plain(n, 22)), showgrid: false, zeroline: false }),
    } };
  });
  table("units-table", ["unit", "layer", "change", "before", "after"], d.strongest.map((u) => ({ cells: [u.name, String(u.layer + 1), figure(u.change, 3), figure(u.before, 3), figure(u.after, 3)] })));
}

function sparsity() {
  const s = data.sparsity;
  if (!s) return hide("sparsity");
  at("sparsity-lead").textContent = s.lead;
  draw("sparsity-chart", () => ({
    data: [{
      type: "scatter", mode: "lines+markers", x: s.weights.map((w) => (100 * w) / s.weights[0]), y: s.error, line: { color: css("--accent"), width: 2.5 }, marker: { size: 7 },
      hoverinfo: "text", hovertext: s.weights.map((w, k) => `${figure(w)} weights, ${figure(s.units[k])} units<br>error ${figure(s.error[k])}<br>threshold ${figure(s.threshold[k], 3)}`),
    }],
    layout: { height: 280, margin: { l: 50, r: 12, t: 8, b: 42 }, xaxis: axis({ title: { text: "weights that are left, %" }, type: "log", showgrid: false, tickvals: [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100] }), yaxis: axis({ title: { text: s.unit } }) },
  }));
}

/** One row: sliders, the live prediction, and its parts. */
function row() {
  const m = data.model, r = data.rows;
  if (!r) return hide("row");
  const predict = m.network ? networkFunction(m.network) : splineFunction(m.spline);
  const spline = m.spline ? splineFunction(m.spline) : null;
  let codes = r.codes[0].slice();
  const controls = m.columns.map((column, c) => {
    const box = make("div", null, { class: "control" });
    const value = make("span", null, { class: "value" });
    const input = column.categories ? make("select") : make("input", null, { type: "range", min: column.low, max: column.high, step: "any" });
    if (column.categories) column.categories.forEach((label, k) => input.append(make("option", label, { value: k })));
    input.setAttribute("aria-label", column.name);
    input.dataset.column = c;
    box.append(make("span", column.name, { class: "name", title: column.name }), value, input);
    input.addEventListener("input", () => { codes[c] = Number(input.value); show(); });
    let gap = null;
    if (column.fill !== null) {
      gap = make("input", null, { type: "checkbox", "aria-label": `${column.name} is missing` });
      const label = make("label", null, { class: "gap" });
      label.append(gap, make("span", "missing"));
      box.append(label);
      gap.addEventListener("change", () => { codes[c] = gap.checked ? null : Number(input.value); show(); });
    }
    at("sliders").append(box);
    return { input, value, gap, column };
  });

  function parts(x, outputs) {
    if (m.parts.kind === "spline") {
      const values = new Array(m.columns.length).fill(0), together = new Map();
      const inputs = held(m.spline.limits, x);
      m.spline.terms.forEach((term, k) => {
        const part = m.spline.coef[k][output] * (termValue(term, inputs) - m.parts.means[k]);
        if (term.columns.length === 1) values[term.columns[0]] += part;
        else {
          const name = term.columns.map((c) => m.columns[c].name).join(" × ");
          together.set(name, (together.get(name) || 0) + part);
        }
      });
      return [...values.map((v, c) => [m.columns[c].name, v]), ...together];
    }
    const values = m.parts.curves.map((curve, c) => {
      if (m.columns[c].categories) return codes[c] < 0 ? 0 : curve.heights[output][codes[c]];
      return codes[c] === null ? curve.missing[output] : interpolate(curve.grid, curve.heights[output], codes[c]);
    });
    const rest = outputs[output] - m.parts.base[output] - values.reduce((a, b) => a + b, 0);
    return [...values.map((v, c) => [m.columns[c].name, v]), ["interaction", rest]];
  }

  function show() {
    controls.forEach(({ input, value, gap, column }, c) => {
      input.value = codes[c] === null ? column.fill : codes[c];
      if (gap) gap.checked = codes[c] === null;
      value.textContent = column.categories ? "" : codes[c] === null ? "missing" : valueText(column, codes[c]);
    });
    const x = encode(m.columns, codes);
    const outputs = predict(x);
    at("answer-name").textContent = data.meta.outputs.length > 1 || m.classes ? short(data.meta.outputs[output], 40) : "prediction";
    at("prediction").textContent = figure(outputs[output], 6);
    at("prediction").dataset.value = JSON.stringify(outputs);
    const k = Number(at("row-number").value), aside = [];
    if (m.network && spline) aside.push(`the spline says ${figure(spline(x)[output], 6)}`);
    if (m.classes) aside.push(chances(outputs, m.classes));
    if (r.truth) aside.push(`row ${r.numbers[k]} has ${r.truth[k]}`);
    at("aside").replaceChildren(...aside.map((text) => make("div", text)));
    const found = parts(x, outputs).filter(([name, v]) => name !== "interaction" || Math.abs(v) > 1e-9 * Math.abs(outputs[output])).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    const shown = found.slice(0, 14), rest = found.slice(14).reduce((sum, [, v]) => sum + v, 0);
    if (found.length > 14) shown.push([`${found.length - 14} others`, rest]);
    let level = m.parts.base[output];
    const steps = shown.map(([, v]) => { const from = level; level += v; return from; });
    draw("row-chart", () => {
      const { data: traces, layout } = bars(shown.map(([name]) => name), shown.map(([, v]) => v), { base: steps, colors: shown.map(([, v]) => (v >= 0 ? css("--accent") : css("--warm"))) });
      traces[0].hovertext = shown.map(([name, v]) => `${plain(name, 60)}: ${v >= 0 ? "+" : "−"}${figure(Math.abs(v))}`);
      const mark = (value, dash) => ({ type: "line", x0: value, x1: value, y0: 0, y1: 1, yref: "paper", line: { color: css("--soft"), width: 1, dash } });
      const controlsHeight = window.innerWidth > 760 ? at("row-controls").offsetHeight - 120 : 0;
      return { data: traces, layout: { ...layout, height: Math.max(layout.height, Math.min(controlsHeight, 700)), margin: { l: 10, r: 16, t: 6, b: 44 }, shapes: [mark(m.parts.base[output], "dot"), mark(outputs[output], "solid")], xaxis: axis({ title: { text: `from the mean prediction ${figure(m.parts.base[output])} to ${figure(outputs[output])}`, font: { size: 12 } } }) } };
    });
  }

  const select = at("row-number");
  r.numbers.forEach((number, k) => select.append(make("option", String(number), { value: k })));
  const choose = (k) => { select.value = (k + r.numbers.length) % r.numbers.length; codes = r.codes[Number(select.value)].slice(); show(); };
  select.addEventListener("change", () => choose(Number(select.value)));
  at("row-before").addEventListener("click", () => choose(Number(select.value) - 1));
  at("row-after").addEventListener("click", () => choose(Number(select.value) + 1));
  at("row-reset").addEventListener("click", () => choose(Number(select.value)));
  at("row-lead").textContent = m.lead;
  choose(0);
  at("output").addEventListener("change", show);
}

function chances(outputs, classes) {
  const logits = [...new Array(classes.length - outputs.length).fill(0), ...outputs];
  const top = Math.max(...logits), sum = logits.reduce((s, v) => s + Math.exp(v - top), 0);
  return logits.map((v, k) => `${short(classes[k], 20)} ${(100 * Math.exp(v - top) / sum).toFixed(1)} %`).join(", ");
}

function start() {
  const names = data.meta.outputs;
  if (names.length > 1) {
    at("output-pick").hidden = false;
    names.forEach((name, k) => at("output").append(make("option", short(name, 30), { value: k })));
    at("output").addEventListener("change", () => { output = Number(at("output").value); redraw(); });
  }
  [overview, quality, importance, effects, interactions, row, knots, training, drift, sparsity].forEach((fill) => fill());
  document.querySelectorAll("main > section:not([hidden])").forEach((section) => at("nav").append(make("a", section.dataset.title, { href: `#${section.id}` })));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  at("theme").addEventListener("click", () => {
    const now = document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
    redraw();
  });
  dark.addEventListener("change", redraw);
  document.documentElement.dataset.ready = "yes";
}

start();
