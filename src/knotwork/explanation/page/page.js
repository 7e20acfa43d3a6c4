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
    if (choose) { // a button for the keyboard, the whole line for the mouse
      const button = make("button", cells[0], { type: "button", "aria-pressed": "false" });
      line.classList.add("choice");
      line.firstChild.replaceChildren(button);
      line.addEventListener("click", () => {
        body.querySelectorAll("button").forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
        choose(k);
      });
    }
    body.append(line);
  });
  place.append(thead, body);
}

/** Tabs as people know them: arrows move between them, Home and End to the ends. */
function tabs(id, names, choose) {
  const pick = (k, focus) => {
    buttons.forEach((other, i) => { other.setAttribute("aria-selected", String(i === k)); other.tabIndex = i === k ? 0 : -1; });
    if (focus) buttons[k].focus();
    choose(k);
  };
  const buttons = names.map((name, k) => {
    const button = make("button", name, { type: "button", role: "tab", "aria-selected": String(k === 0), tabindex: k ? -1 : 0 });
    button.addEventListener("click", () => pick(k));
    button.addEventListener("keydown", (event) => {
      const to = { ArrowRight: (k + 1) % names.length, ArrowLeft: (k + names.length - 1) % names.length, Home: 0, End: names.length - 1 }[event.key];
      if (to !== undefined) { event.preventDefault(); pick(to, true); }
    });
    return button;
  });
  at(id).replaceChildren(...buttons);
  if (names.length < 2) hide(id);
}

/** Names in a fold: columns about which there is nothing to draw. */
function fold(id, summary, names) {
  const box = at(id);
  box.hidden = !names.length;
  if (!names.length) return;
  const list = make("ul", null, { class: "names" });
  names.forEach((name) => list.append(make("li", name)));
  box.replaceChildren(make("summary", summary), list);
}

function several(count, one, more) {
  return count === 1 ? one : `${counted(count)} ${more}`;
}

function overview() {
  const m = data.meta;
  document.title = `${m.response}: knotwork report`;
  at("kind").textContent = m.kind;
  at("headline").textContent = m.headline;
  m.figures.forEach(({ label, value }) => {
    const box = make("div", null, { class: "figure" });
    const text = typeof value === "string" ? value : counted(value);
    box.append(make("b", text, text.length > 9 ? { class: "long" } : {}), make("span", label));
    at("figures").append(box);
  });
  if (m.formula) {
    at("formula-box").hidden = false;
    at("formula").textContent = m.formula;
  }
  if (m.unchanged) {
    at("unchanged").hidden = false;
    at("unchanged").textContent = m.unchanged;
  }
  at("made-by").textContent = `Made by knotwork ${m.version}. Everything on this page is in this file.`;
}

function importance() {
  const measures = data.importances;
  if (!measures.length) return hide("importance");
  const most = 20;
  const show = (k) => {
    const { columns, values, lead, unit } = measures[k];
    const some = columns.map((name, i) => [name, values[i]]).filter(([, v]) => v !== 0), none = columns.filter((_, i) => values[i] === 0);
    const shown = some.slice(0, most);
    at("importance-lead").textContent = lead + (some.length > most ? ` The first ${most} of ${some.length} columns.` : "");
    if (shown.length) draw("importance-chart", () => bars(shown.map(([name]) => name), shown.map(([, v]) => v), { title: unit }), `Importances: ${unit}`);
    at("importance-chart").hidden = !shown.length;
    fold("importance-zero", several(none.length, "1 column has importance 0", "columns have importance 0"), none);
  };
  tabs("importance-tabs", measures.map((m) => m.name), show);
  show(0);
}

function effects() {
  const curves = data.effects.curves.filter((e) => e.grid), unused = data.effects.curves.filter((e) => !e.grid);
  if (!data.effects.curves.length) return hide("effects");
  at("effects-lead").textContent = data.effects.lead;
  const both = curves.some((e) => e.spline && e.network), splines = curves.some((e) => e.spline);
  const legend = [[both ? "dash" : "", both ? "--soft" : "--accent", "spline", splines], ["dot", both ? "--soft" : "--accent", "knot", splines],
    ["", "--accent", both ? "trained network" : "network", curves.some((e) => e.network)], ["dotted", "--warm", "where the value is missing", curves.some((e) => e.missing && !barLabels(e))],
    ["band", "--accent", curves.some((e) => e.band) ? `range over ${curves.find((e) => e.band).band.what}` : "", curves.some((e) => e.band)], ["block", "--faint", "how many rows have the value", curves.some((e) => e.counts && !barLabels(e))]];
  legend.filter((l) => l[3]).forEach(([shape, color, text]) => {
    const item = make("span"), mark = make("i", null, { class: shape });
    mark.style.color = `var(${color})`;
    item.append(mark, text);
    at("effects-legend").append(item);
  });
  const show = (from, to) => curves.slice(from, to).forEach((effect) => {
    const card = make("div", null, { class: "card" }), chart = make("div", null, { class: "chart effect" }), title = make("h3", effect.column, { title: effect.column });
    const head = make("div", null, { class: "head" });
    head.append(title);
    if (effect.note) head.append(make("span", effect.note, { class: "hint" }));
    card.append(head, chart);
    if (effect.levels) { // what the numbers of a column of many categories stand for
      const levels = make("details", null, { class: "fold" });
      levels.append(make("summary", effect.levels.summary), make("p", effect.levels.text, { class: "note" }));
      card.append(levels);
    }
    at("effects-grid").append(card);
    draw(chart, () => effectChart(effect, output, data.meta.outputs[output]), `Effect of ${effect.column}`);
  });
  const first = 12;
  show(0, first);
  if (curves.length > first) {
    const more = at("effects-more");
    more.hidden = false;
    more.textContent = `Show the other ${curves.length - first} columns`;
    more.addEventListener("click", () => { show(first); more.hidden = true; });
  }
  fold("effects-unused", several(unused.length, "1 column is not used: its effect is exactly zero", "columns are not used: their effect is exactly zero"), unused.map((e) => e.column));
}

function interactions() {
  if (!data.surfaces.length) return hide("interactions");
  data.surfaces.forEach((surface) => {
    const name = surface.columns.join(" × ");
    const card = make("div", null, { class: "card" }), chart = make("div", null, { class: "chart" });
    card.append(make("h3", name, { title: name }), chart);
    at("interactions-grid").append(card);
    draw(chart, () => surfaceChart(surface, output, data.meta.outputs[output]), `What ${name} do together`);
  });
}

function knots() {
  if (!data.knots.length) return hide("knots");
  const show = (k) => {
    const knot = data.knots[k];
    const more = knot.count > knot.rows.length ? `, the first ${knot.rows.length} of ${counted(knot.count)} rows` : "";
    at("knot-title").textContent = `${knot.feature} = ${knot.shown ?? figure(knot.value, 7)}${more}`;
    table("knot-rows", ["row", ...data.rowColumns], knot.rows.map((r) => ({ cells: [String(r.row), ...r.values.map((v) => typeof v === "number" ? figure(v, 6) : v)] })));
  };
  table("knots-table", ["feature", "knot", "rows"], data.knots.map((k) => ({ cells: [k.feature, k.shown ?? figure(k.value, 7), counted(k.count)] })), show);
  at("knots-table").querySelector("tbody button").setAttribute("aria-pressed", "true");
  show(0);
}

function training() {
  const h = data.history;
  if (!h) return hide("training");
  at("training-lead").textContent = h.lead;
  draw("training-chart", () => {
    const curve = (values, name, extra) => ({ type: "scatter", mode: "lines", x: values.map((_, k) => k), y: values, name, line: { width: 2, ...extra }, hovertemplate: `${name} %{y:.4~g}<extra></extra>` });
    const traces = [curve(h.train, "training rows", { color: css("--mute") }), curve(h.validation, "validation rows", { color: css("--accent"), width: 2.5 })];
    if (h.random) traces.push(curve(h.random, "validation rows, random start", { color: css("--warm"), dash: "dash" }));
    traces.push({ type: "scatter", mode: "markers", x: [h.best], y: [h.validation[h.best]], name: "kept", marker: { size: 9, color: css("--accent") }, hovertemplate: "kept<extra></extra>" });
    return { data: traces, layout: {
      height: 300, hovermode: "x unified", hoverdistance: -1, showlegend: true, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" }, margin: { l: 50, r: 12, t: 30, b: 44 },
      hoverlabel: { bgcolor: css("--paper"), bordercolor: css("--faint"), font: { color: css("--ink"), size: 12 } },
      xaxis: axis({ title: titled("epoch"), showgrid: false, rangemode: "tozero" }), yaxis: axis({ title: titled(h.unit) }),
    } };
  }, "Error after each epoch");
}

function drift() {
  const d = data.drift;
  if (!d) return hide("drift");
  at("drift-lead").textContent = d.lead;
  if (!d.changed) return hide("drift-parts");
  const kinds = ["change", "before", "after"];
  const show = (k) => draw("drift-chart", () => {
    const z = d[kinds[k]];
    const maxSize = Math.max(1e-300, ...z.flat().map(Math.abs));
    const x = d.inputs.map((_, i) => i), y = d.units.map((_, i) => i);
    const narrow = window.innerWidth < 600;
    const text = z.map((row, i) => row.map((v, j) => `${plain(d.units[i], 40)}<br>reads ${plain(d.inputs[j], 40)}<br>${kinds[k]} ${figure(v, 3)}`));
    const map = heat(x, y, z, maxSize, { text, hoverinfo: "text", title: kinds[k] === "change" ? "change of the weight" : `weight ${kinds[k]} training` });
    Object.assign(map.colorbar, { orientation: "h", x: 0.5, y: 1.01, yanchor: "bottom", thickness: 8 }); // above: the map keeps its width
    map.colorbar.title.side = "top";
    // As high as what is beside it: bars of the inputs, the table of units, two headings.
    const beside = narrow || window.innerWidth <= 760 ? 0 : inputsHeight + Math.min(37 * (d.strongest.length + 1), 368) + 70 + (shown.length < d.inputs.length ? 35 : 0);
    const room = (narrow ? window.innerWidth - 64 : Math.min(window.innerWidth, 1120) / 2 - 60) - 6 * (narrow ? 14 : 24);
    const some = x.filter((i) => i % Math.ceil((13 * x.length) / room) === 0); // labels that have room; the others show on hover
    return { data: [map], layout: {
      height: Math.max(170 + 15 * y.length, beside), margin: { l: 10, r: 8, t: 6, b: 40 },
      xaxis: axis({ tickmode: "array", tickvals: some, ticktext: some.map((i) => plain(d.inputs[i], 14)), tickangle: x.length > 10 ? -90 : -45, tickfont: { size: x.length > 10 ? 10 : 11.5 }, showgrid: false, zeroline: false }),
      yaxis: axis({ tickmode: "array", tickvals: y, ticktext: d.units.map((n) => plain(n, narrow ? 14 : 24)), autorange: "reversed", tickfont: { size: 10.5 }, showgrid: false, zeroline: false }),
    } };
  }, "Weights of the first layer");
  const strongest = d.inputs.map((name, i) => [name, d.strength_before[i], d.strength_after[i]]).filter(([, a, b]) => a || b).sort((a, b) => b[2] - a[2]);
  const shown = strongest.slice(0, 20), inputsHeight = Math.max(240, 90 + 32 * shown.length);
  tabs("drift-tabs", ["Change", "Before training", "After training"], show);
  show(0);
  draw("inputs-chart", () => {
    const y = shown.map((_, i) => shown.length - 1 - i);
    const trace = (values, name, color) => ({ type: "bar", orientation: "h", y, x: values, name, marker: { color }, hoverinfo: "text", text: values.map((v) => figure(v, 2)), textposition: "outside", cliponaxis: false, constraintext: "none", textfont: { size: 10, color: css("--ink") }, hovertext: values.map((v, i) => `${plain(shown[i][0], 60)}<br>${name}: ${figure(v, 3)}`) });
    return { data: [trace(shown.map((s) => s[2]), "after", css("--accent")), trace(shown.map((s) => s[1]), "before", css("--mute"))], layout: {
      height: inputsHeight, barmode: "group", bargap: 0.25, margin: { l: 10, r: 10, t: 24, b: 44 },
      showlegend: true, legend: { orientation: "h", x: 0, y: 1.01, yanchor: "bottom", traceorder: "reversed" },
      xaxis: axis({ title: titled("strength of its paths"), range: roomy(shown.flatMap((s) => [s[1], s[2]]), 0.14) }),
      yaxis: axis({ tickmode: "array", tickvals: y, ticktext: shown.map(([name]) => plain(name, 22)), showgrid: false, zeroline: false }),
    } };
  }, "Strength of the inputs before and after training");
  fold("inputs-zero", several(d.inputs.length - strongest.length, "1 input has no path before or after", "inputs have no path before or after"), d.inputs.filter((_, i) => !d.strength_before[i] && !d.strength_after[i]));
  table("units-table", ["unit", "layer", "change", "before", "after"], d.strongest.map((u) => ({ cells: [u.name, String(u.layer + 1), figure(u.change, 3), figure(u.before, 3), figure(u.after, 3)] })));
}

function sparsity() {
  const s = data.sparsity;
  if (!s) return hide("sparsity");
  at("sparsity-lead").textContent = s.lead;
  draw("sparsity-chart", () => ({
    data: [{
      type: "scatter", mode: "lines+markers", x: s.weights.map((w) => (100 * w) / s.weights[0]), y: s.error, line: { color: css("--accent"), width: 2.5 }, marker: { size: 7 },
      hoverinfo: "text", hovertext: s.weights.map((w, k) => `${counted(w)} weights, ${counted(s.units[k])} units<br>error ${figure(s.error[k])}<br>threshold ${figure(s.threshold[k], 3)}`),
    }],
    layout: { height: 280, margin: { l: 50, r: 12, t: 8, b: 44 }, xaxis: axis({ title: titled("weights that are left, %"), type: "log", showgrid: false, tickvals: [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100] }), yaxis: axis({ title: titled(s.unit) }) },
  }), "Error of smaller networks");
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
  window.addEventListener("beforeprint", drawAll);
  document.documentElement.dataset.ready = "yes";
}

start();
