// One prediction: sliders, the live answer, its parts, and probabilities.

/** What undoes a link. */
const inverses = { log: Math.exp, exp: Math.log, log1p: Math.expm1, expm1: Math.log1p, sqrt: (v) => v * v, square: Math.sqrt };

/** The model as a function of inputs; logits of several classes around their mean. */
function modelFunction(m) {
  const run = m.network ? networkFunction(m.network) : splineFunction(m.spline);
  if (!m.centred) return run;
  return (x) => {
    const outputs = run(x), mean = outputs.reduce((a, b) => a + b, 0) / outputs.length;
    return outputs.map((v) => v - mean);
  };
}

/** The probability of each class; where a reference class has no output of its own, it is 0. */
function probabilities(outputs, classes) {
  const logits = [...new Array(classes.length - outputs.length).fill(0), ...outputs];
  const top = Math.max(...logits), powers = logits.map((v) => Math.exp(v - top)), sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((v) => v / sum);
}

/** What each column adds to the mean prediction, and what columns add together: [name, value] each, largest first. */
function partsOf(m, codes, x, outputs, output) {
  const found = [];
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
    found.push(...values.map((v, c) => [m.columns[c].name, v]), ...together);
    if (m.spline.outputLimits) {
      const free = splineFunction({ ...m.spline, outputLimits: null })(x)[output];
      if (free !== outputs[output]) found.push([m.parts.held, outputs[output] - free]);
    }
  } else {
    const values = m.parts.curves.map((curve, c) => {
      if (!curve) return 0;
      if (m.columns[c].categories) return codes[c] < 0 ? 0 : curve.heights[output][codes[c]];
      return codes[c] === null ? curve.missing[output] : interpolate(curve.grid, curve.heights[output], codes[c]);
    });
    const rest = outputs[output] - m.parts.base[output] - values.reduce((a, b) => a + b, 0);
    found.push(...values.map((v, c) => [m.columns[c].name, v]), ["interaction", rest]);
  }
  // Curves are stored with ten digits: what is smaller beside the largest part is rounding.
  const size = Math.max(Math.abs(outputs[output]), Math.abs(m.parts.base[output]), ...found.map(([, v]) => Math.abs(v)));
  return found.map(([name, v]) => [name, Math.abs(v) <= 1e-9 * size ? 0 : v]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
}

function waterfall(parts, base, end, name, minHeight) {
  let level = base;
  const steps = parts.map(([, v]) => { const from = level; level += v; return from; });
  const values = parts.map(([, v]) => v);
  const chart = bars(parts.map(([label]) => label), values, {
    base: steps, share: 0.5, colors: parts.map(([, v]) => (v >= 0 ? css("--accent") : css("--warm"))), text: values.map((v) => signed(v, digitsBeside(v, values))),
    title: window.innerWidth < 600 ? `from the mean prediction ${figure(base)} to ${figure(end)}` : `${name}: from the mean prediction ${figure(base)} to ${figure(end)}`,
  });
  const mark = (value, dash) => ({ type: "line", x0: value, x1: value, y0: 0, y1: 1, yref: "paper", layer: "below", line: { color: css("--soft"), width: 1, dash } });
  chart.layout.shapes = [mark(base, "dot"), mark(end, "solid")];
  chart.layout.height = Math.max(chart.layout.height, minHeight);
  return chart;
}

/** A probability in per cent; only 0 and 1 themselves are 0 and 100 %. */
function chanceText(p) {
  return p > 0 && p < 5e-4 ? "under 0.1 %" : p < 1 && p > 0.9995 ? "over 99.9 %" : percent(p);
}

function chancesChart(chances, classes) {
  const order = classes.map((_, k) => k).sort((a, b) => chances[b] - chances[a]).slice(0, 10);
  const chart = bars(order.map((k) => classes[k]), order.map((k) => 100 * chances[k]), { title: "probability, %", range: [0, 124], text: order.map((k) => chanceText(chances[k])) });
  chart.layout.xaxis.tickvals = [0, 25, 50, 75, 100];
  chart.layout.height = 66 + 26 * order.length;
  return chart;
}

function row() {
  const m = data.model, r = data.rows;
  if (!r) return hide("row");
  const predict = modelFunction(m), spline = m.spline && m.network ? splineFunction(m.spline) : null;
  let codes = r.codes[0].slice(), moved = false;
  const controls = m.columns.map((column, c) => {
    const box = make("div", null, { class: "control" });
    const value = make("span", null, { class: "value" });
    const labels = barLabels(column);
    const input = labels ? make("select") : make("input", null, { type: "range", min: column.low, max: column.high, step: "any" });
    if (labels) labels.forEach((label, k) => input.append(make("option", label, { value: k })));
    input.setAttribute("aria-label", column.name);
    input.dataset.column = c;
    box.append(make("span", column.name, { class: "name", title: column.name }), value, input);
    const set = (code) => { codes[c] = code; moved = true; show(); };
    input.addEventListener("input", () => set(input.value === "" ? null : Number(input.value)));
    let gap = null;
    if (column.fill !== null && labels) { // one more value to choose
      gap = make("option", "missing", { value: "" });
      input.append(gap);
    } else if (column.fill !== null) {
      gap = make("input", null, { type: "checkbox", "aria-label": `${column.name} is missing` });
      const label = make("label", null, { class: "gap" });
      label.append(gap, make("span", "missing"));
      box.append(label);
      gap.addEventListener("change", () => set(gap.checked ? null : Number(input.value)));
    }
    (column.used ? at("sliders") : at("sliders-unused-list")).append(box);
    return { input, value, gap, column };
  });
  const unused = m.columns.filter((column) => !column.used).length;
  at("sliders-unused").hidden = !unused;
  at("sliders-unused-title").textContent = several(unused, "1 column is not used", "columns are not used");

  function show() {
    controls.forEach(({ input, value, gap, column }, c) => {
      input.value = codes[c] !== null ? codes[c] : barLabels(column) ? "" : column.fill;
      if (gap) gap.checked = codes[c] === null;
      const text = barLabels(column) ? "" : codes[c] === null ? "missing" : valueText(column, codes[c]);
      value.textContent = column.used ? text : `${text} not used`.trim();
    });
    const x = encode(m.columns, codes), outputs = predict(x), name = data.meta.outputs[output];
    const place = m.classes ? output + m.classes.length - outputs.length : output; // a reference class has no output
    const undo = m.link ? inverses[m.link] : (v) => v;
    const said = (values) => m.classes ? chanceText(probabilities(values, m.classes)[place]) : figure(undo(values[output]), 6);
    at("answer-name").textContent = m.classes ? `probability of ${short(m.classes[place], 40)}` : data.meta.outputs.length > 1 ? short(name, 40) : `predicted ${short(data.meta.response, 40)}`;
    at("prediction").textContent = said(outputs);
    at("prediction").dataset.value = JSON.stringify(outputs);
    const k = Number(at("row-number").value), aside = [];
    if (m.link || m.classes) aside.push(`${short(name, 40)} ${figure(outputs[output])}`);
    if (r.intervals && !moved) aside.push(`90 % interval ${r.intervals[k].map((v) => figure(v)).join(" to ")}`);
    if (spline) aside.push(`the spline says ${said(spline(x))}`);
    if (r.truth) aside.push(`actual ${r.truth[k]} of row ${r.numbers[k]}`);
    at("aside").replaceChildren(...aside.map((text) => make("div", text)));
    if (m.classes) {
      const chances = probabilities(outputs, m.classes);
      at("chances").hidden = false;
      at("chances").dataset.value = JSON.stringify(chances);
      draw("chances-chart", () => chancesChart(chances, m.classes), "Probabilities of the classes");
    }
    at("row-title").textContent = `What each column adds to ${m.classes ? "the " : ""}${short(name, 40)}`;
    const found = partsOf(m, codes, x, outputs, output), some = found.filter(([, v]) => v !== 0), none = found.filter(([, v]) => v === 0);
    const shown = some.slice(0, 14), rest = some.slice(14).reduce((sum, [, v]) => sum + v, 0);
    if (some.length > 14) shown.push([`${some.length - 14} others`, rest]);
    const beside = window.innerWidth > 760 ? Math.min(at("row-controls").offsetHeight - (m.classes ? 330 : 130), 640) : 0;
    at("row-chart").hidden = !shown.length;
    if (shown.length) draw("row-chart", () => waterfall(shown, m.parts.base[output], outputs[output], name, beside), "What each column adds to the mean prediction");
    const names = none.map(([label]) => label).filter((label) => label !== "interaction");
    at("row-zero").textContent = !shown.length ? "No column adds anything: the prediction is the mean prediction." : names.length ? `Adds nothing: ${names.slice(0, 8).join(", ")}${names.length > 8 ? ` and ${names.length - 8} others` : ""}.` : "";
  }

  const select = at("row-number");
  r.numbers.forEach((number, k) => select.append(make("option", String(number), { value: k })));
  const choose = (k) => { select.value = (k + r.numbers.length) % r.numbers.length; codes = r.codes[Number(select.value)].slice(); moved = false; show(); };
  select.addEventListener("change", () => choose(Number(select.value)));
  at("row-before").addEventListener("click", () => choose(Number(select.value) - 1));
  at("row-after").addEventListener("click", () => choose(Number(select.value) + 1));
  at("row-reset").addEventListener("click", () => choose(Number(select.value)));
  at("row-lead").textContent = m.lead;
  choose(0);
  at("output").addEventListener("change", show);
}
