// How good the model is: pictures of predictions beside the truth.

/** A line from corner to corner, where prediction and truth agree. */
function diagonal(low, high) {
  return { type: "scatter", mode: "lines", x: [low, high], y: [low, high], line: { color: css("--soft"), width: 1, dash: "dot" }, hoverinfo: "skip" };
}

function points(x, y, text) {
  return { type: "scatter", mode: "markers", x, y, text, hoverinfo: "text", marker: { size: 5, color: faded("--accent", 0.45), line: { width: 0 } } };
}

function predictedChart(r, name) {
  const low = Math.min(...r.actual, ...r.predicted), high = Math.max(...r.actual, ...r.predicted);
  const text = r.rows.map((row, k) => `row ${row}<br>predicted ${figure(r.predicted[k])}<br>actual ${figure(r.actual[k])}`);
  return { data: [diagonal(low, high), points(r.predicted, r.actual, text)], layout: {
    height: 300, margin: { l: 50, r: 12, t: 8, b: 44 }, xaxis: axis({ title: titled(`predicted ${name}`), nticks: 6, ...fewTicks(low, high) }), yaxis: axis({ title: titled(`actual ${name}`), nticks: 6 }),
  } };
}

function residualChart(r, name) {
  const off = r.actual.map((v, k) => v - r.predicted[k]);
  const text = r.rows.map((row, k) => `row ${row}<br>predicted ${figure(r.predicted[k])}<br>residual ${signed(off[k], 4)}`);
  const across = (value, dash) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: value, y1: value, line: { color: css("--soft"), width: 1, dash } });
  return { data: [points(r.predicted, off, text)], layout: {
    height: 300, margin: { l: 50, r: 12, t: 8, b: 44 }, shapes: [across(0, "solid"), across(r.quantiles[0], "dot"), across(r.quantiles[2], "dot")],
    xaxis: axis({ title: titled(`predicted ${name}`), nticks: 6, ...fewTicks(...r.predicted) }), yaxis: axis({ title: titled(`actual − predicted ${name}`, 36), nticks: 6 }),
  } };
}

function residualHistogram(r, name) {
  const centres = r.counts.map((_, k) => (r.edges[k] + r.edges[k + 1]) / 2);
  return { data: [{
    type: "bar", x: centres, y: r.counts, width: centres.map((_, k) => r.edges[k + 1] - r.edges[k]), marker: { color: css("--accent"), line: { width: 1, color: css("--paper") } },
    hoverinfo: "text", hovertext: r.counts.map((n, k) => `${figure(r.edges[k], 3)} to ${figure(r.edges[k + 1], 3)}<br>${counted(n)} rows`),
  }], layout: {
    height: 300, bargap: 0, margin: { l: 50, r: 12, t: 8, b: 44 }, xaxis: axis({ title: titled(`actual − predicted ${name}`), nticks: 6, ...fewTicks(...r.edges) }), yaxis: axis({ title: titled("rows"), nticks: 5 }),
  } };
}

function rocChart(c) {
  return shares([
    diagonal(0, 1), { type: "scatter", mode: "lines", x: c.roc[0], y: c.roc[1], line: { color: css("--accent"), width: 2.5 }, fill: "tozeroy", fillcolor: faded("--accent", 0.1), hovertemplate: "%{y:.1%} found at %{x:.1%} false alarms<extra></extra>" },
  ], "false positive rate", "true positive rate");
}

function precisionChart(c) {
  return shares([
    { type: "scatter", mode: "lines", x: [0, 1], y: [c.share, c.share], line: { color: css("--soft"), width: 1, dash: "dot" }, hoverinfo: "skip" },
    { type: "scatter", mode: "lines", x: c.pr[0], y: c.pr[1], line: { color: css("--accent"), width: 2.5 }, hovertemplate: "precision %{y:.1%} at recall %{x:.1%}<extra></extra>" },
  ], "recall", "precision");
}

function calibrationChart(c) {
  const [chance, found, counts] = c.calibration;
  return shares([
    diagonal(0, 1), { type: "scatter", mode: "lines+markers", x: chance, y: found, line: { color: css("--accent"), width: 2 }, marker: { size: 8 }, hoverinfo: "text", hovertext: chance.map((v, k) => `predicted ${percent(v)}<br>found ${percent(found[k])}<br>${counted(counts[k])} rows`) },
  ], `predicted probability of ${c.name}`, `share of ${c.name}`);
}

function shares(traces, x, y) {
  const side = (title) => axis({ title: titled(title, 36), range: [-0.02, 1.03], tickformat: ".0%", nticks: 6, zeroline: false });
  return { data: traces, layout: { height: 300, margin: { l: 54, r: 12, t: 8, b: 44 }, xaxis: side(x), yaxis: side(y) } };
}

function percent(value, digits = 1) {
  return `${(100 * value).toFixed(digits)} %`;
}

/** A card of the grid: title, chart, a line below. */
function card(place, title, below) {
  const box = make("div", null, { class: "card" }), chart = make("div", null, { class: "chart" });
  const heading = make("h3", title), note = make("p", below, { class: "note" });
  box.append(heading, chart, note);
  place.append(box);
  return { chart, heading, note };
}

/** The rows of each class by the class that was predicted: a table, shaded by the share of its row. */
function confusionTable(c) {
  const box = make("div", null, { class: c.names.length > 8 ? "card whole" : "card filled" }), scroll = make("div", null, { class: "scroll", tabindex: 0, role: "region", "aria-label": "Confusion matrix" });
  const table = make("table", null, { class: "confusion", id: "confusion" });
  const top = make("tr"), head = make("thead"), body = make("tbody");
  top.append(make("th", "actual ↓ predicted →", { scope: "col" }), ...c.names.map((name) => make("th", name, { scope: "col", title: name })));
  head.append(top);
  c.confusion.forEach((counts, k) => {
    const line = make("tr"), total = counts.reduce((a, b) => a + b, 0);
    line.append(make("th", c.names[k], { scope: "row", title: c.names[k] }));
    counts.forEach((n, j) => {
      const share = total ? n / total : 0, cell = make("td", null, { title: `${counted(n)} of ${counted(total)}, ${percent(share)}` });
      cell.append(make("span", counted(n)));
      if (c.names.length <= 8) cell.append(make("small", percent(share, 0)));
      cell.style.background = `color-mix(in srgb, var(${j === k ? "--accent" : "--warm"}) ${Math.round(40 * share)}%, var(--paper))`;
      line.append(cell);
    });
    body.append(line);
  });
  table.append(head, body);
  scroll.append(table);
  box.append(make("h3", "Confusion matrix"), scroll, make("p", c.hidden ? `The ${c.names.length} classes of most rows; ${c.hidden} others are left out.` : "Rows by their class and the most probable one, and the share of the class's rows.", { class: "note" }));
  return box;
}

function quality() {
  const q = data.quality;
  if (!q) return hide("quality");
  at("quality-lead").textContent = q.lead;
  if (q.basis) {
    at("quality-basis").textContent = q.basis.name;
    at("quality-basis").hidden = false;
    at("quality-basis").classList.toggle("warn", !["test rows", "out-of-fold"].includes(q.basis.name));
  }
  const key = Math.max(0, q.columns.findIndex((c) => c.startsWith("validation")));
  const judged = q.rows.map((r) => r.values[key] ?? Infinity);
  const honest = q.rows.findIndex((r) => r.name === "out-of-fold prediction"); // what the pictures show
  const best = honest < 0 ? judged.indexOf(Math.min(...judged)) : honest;
  table("quality-table", ["model", ...q.columns], q.rows.map((r, k) => ({ cells: [r.name, ...r.values.map((v) => typeof v === "string" ? v : figure(v))], kind: k === best ? "best" : "" })));
  const grid = at("quality-grid");
  if (q.interval) at("quality-lead").textContent += ` The ${percent(q.interval.nominal, 0)} intervals hold ${percent(q.interval.covered)} of the rows; their median width is ${figure(q.interval.width, 3)}.`;
  if (q.numbers) {
    const r = () => q.numbers[output], sampled = q.numbers[0].rows.length < q.numbers[0].count ? `${counted(q.numbers[0].rows.length)} of ${counted(q.numbers[0].count)} rows.` : `${counted(q.numbers[0].count)} rows.`;
    const names = () => q.responses[output];
    const first = card(grid, "Predicted against actual", `${sampled} On the dotted line they agree.`);
    draw(first.chart, () => predictedChart(r(), names()), "Predicted against actual responses");
    const second = card(grid, "Residuals", `${sampled} Nine of ten rows lie between the dotted lines.`);
    draw(second.chart, () => residualChart(r(), names()), "Residuals against predictions");
    const third = card(grid, "How large the errors are", `All ${counted(q.numbers[0].count)} rows; the median residual is ${figure(q.numbers[0].quantiles[1], 3)}.`);
    draw(third.chart, () => residualHistogram(r(), names()), "Histogram of the residuals");
  }
  if (q.classes) {
    grid.classList.add("wide");
    grid.append(confusionTable(q.classes));
    const c = () => q.classes.curves[Math.min(output, q.classes.curves.length - 1)];
    const notes = [];
    const add = (title, build, below, label) => {
      const { chart, heading, note } = card(grid, "", "");
      notes.push(() => { heading.textContent = title(c()); note.textContent = c().roc[0].length || title === calibrated ? below(c()) : `These rows do not have both ${c().name} and other classes.`; });
      draw(chart, () => build(c()), label);
    };
    const calibrated = (k) => `Calibration of ${k.name}`;
    add((k) => `ROC of ${k.name}`, rocChart, (k) => `Area ${figure(k.auc)}; 0.5 is guessing.`, "ROC curve");
    add((k) => `Precision and recall of ${k.name}`, precisionChart, (k) => `Average precision ${figure(k.ap)}; guessing gives ${figure(k.share, 3)}.`, "Precision-recall curve");
    add(calibrated, calibrationChart, () => "A perfectly calibrated model lies on the dotted line.", "Calibration curve");
    const write = () => notes.forEach((note) => note());
    write();
    at("output").addEventListener("change", write);
  }
}
