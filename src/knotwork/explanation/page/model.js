// The model itself, in double precision: what `predict` computes, from the exported weights.

/** Bytes of a base64 text as numbers; `kind` is "f4" or "f8". */
function decode(text, kind) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
  return Float64Array.from(kind === "f4" ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer));
}

/** Error function, to 1e-15: its series near zero, the continued fraction of erfc further out. */
function erf(x) {
  const a = Math.abs(x);
  if (a > 6) return Math.sign(x);
  if (a < 2.5) {
    let term = x, sum = x;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let n = 80; n > 0; n--) fraction = n / 2 / (a + fraction);
  return Math.sign(x) * (1 - Math.exp(-a * a) / Math.sqrt(Math.PI) / (a + fraction));
}

/** The activations that a spline can be written with, as torch defines them. */
const activations = {
  Identity: () => (u) => u,
  ReLU: () => (u) => Math.max(u, 0),
  LeakyReLU: (o) => (u) => (u >= 0 ? u : o.slope * u),
  PReLU: (o) => (u) => (u >= 0 ? u : o.slope * u),
  Softplus: (o) => (u) => (o.beta * u > o.threshold ? u : Math.log1p(Math.exp(o.beta * u)) / o.beta),
  SiLU: () => (u) => u / (1 + Math.exp(-u)),
  GELU: (o) => o.approximate === "tanh"
    ? (u) => 0.5 * u * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (u + 0.044715 * u ** 3)))
    : (u) => 0.5 * u * (1 + erf(u / Math.SQRT2)),
  ELU: (o) => (u) => (u > 0 ? u : o.alpha * Math.expm1(u)),
  ReLU6: () => (u) => Math.min(Math.max(u, 0), 6),
  Hardtanh: (o) => (u) => Math.min(Math.max(u, o.low), o.high),
};

/** Table columns to model inputs: categories become indicators, a missing number (null) its fill and a one. */
function encode(columns, codes) {
  return columns.flatMap((column, c) => {
    if (column.categories) return column.categories.map((_, k) => +(codes[c] === k));
    if (column.fill === null) return [codes[c]];
    return codes[c] === null ? [column.fill, 1] : [codes[c], 0];
  });
}

/** Inputs or outputs held at the model's limits; null is no limit. */
function held(limits, x) {
  if (!limits) return x;
  return x.map((v, j) => Math.min(Math.max(v, limits.lower[j] ?? -Infinity), limits.upper[j] ?? Infinity));
}

/** A function from inputs to outputs that runs the layers one after the other. */
function networkFunction(record) {
  const layers = record.layers.map((layer) => ({
    weight: decode(layer.weight, record.kind), bias: decode(layer.bias, record.kind), blocks: layer.blocks,
    act: activations[layer.activation.name](layer.activation),
  }));
  // A layer of several members has a block for each, which reads the values of its own member alone.
  const run = (inputs) => layers.reduce((values, { weight, bias, blocks, act }) => {
    const out = new Array(bias.length), width = values.length / blocks, height = bias.length / blocks;
    for (let i = 0; i < bias.length; i++) {
      let sum = 0;
      for (let j = 0, from = Math.floor(i / height) * width; j < width; j++) sum += weight[i * width + j] * values[from + j];
      out[i] = act(sum + bias[i]);
    }
    return out;
  }, inputs);
  const standardise = (x) => held(record.limits, x).map((v, j) => (v - record.centre[j]) / record.scale[j]);
  return (x) => held(record.outputLimits, run(standardise(x)).map((v, k) => v * record.outputScale[k] + record.outputCentre[k]));
}

function hinge(h, x) {
  return h.slope * Math.max(h.sign > 0 ? x[h.feature] - h.knot : h.knot - x[h.feature], 0);
}

/** The value of one term of a spline. */
function termValue(term, x) {
  if (term.kind === "linear") return x[term.feature];
  const values = term.hinges.map((h) => hinge(h, x));
  return term.kind === "product" ? values.reduce((a, b) => a * b, 1) : Math.min(...values);
}

function splineFunction(record) {
  return (x) => {
    const inputs = held(record.limits, x);
    const values = record.terms.map((term) => termValue(term, inputs));
    return held(record.outputLimits, record.intercept.map((b, k) => values.reduce((sum, v, m) => sum + record.coef[m][k] * v, b)));
  };
}

/** Height of a piecewise-linear curve; its end pieces go on. */
function interpolate(grid, heights, x) {
  if (grid.length === 1) return heights[0];
  let k = 1;
  while (k < grid.length - 1 && x > grid[k]) k++;
  const share = (x - grid[k - 1]) / (grid[k] - grid[k - 1]);
  return heights[k - 1] + share * (heights[k] - heights[k - 1]);
}
