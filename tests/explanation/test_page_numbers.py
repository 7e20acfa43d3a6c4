"""The page's own arithmetic, run by Node where it is installed: what it computes and shows is what Python has."""

import json
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import knotwork as kw
from knotwork.explanation.content import page_content
from knotwork.explanation.report import _read, embed

N = 300
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
SCRIPT = """
const vm = require("vm"), told = JSON.parse(require("fs").readFileSync(0, "utf8"));
const page = { console, data: told.page, atob, document: { documentElement: {} }, window: { innerWidth: 1000 },
               getComputedStyle: () => ({ getPropertyValue: () => "#000000" }) };
vm.runInNewContext(told.scripts + "\\nconsole.log(JSON.stringify((() => {" + told.body + "})()));", page);
"""


def run(page, body):
    """Run lines of script with the page's functions and its content in ``data``; return what they return."""
    scripts = "\n".join(_read("page", name) for name in ("model.js", "charts.js", "quality.js", "row.js"))
    told = json.dumps({"page": page, "scripts": scripts, "body": body})
    done = subprocess.run(["node", "-e", SCRIPT], input=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def content(explanation):
    return json.loads(embed(page_content(explanation)))


PREDICTIONS = """
  const m = data.model, predict = modelFunction(m);
  return {
    predictions: data.rows.codes.map((codes) => predict(encode(m.columns, codes))),
    shown: data.rows.codes.map((codes) => codes.map((v, k) => v === null ? "missing" : valueText(m.columns[k], v))),
    parts: data.rows.codes.map((codes) => {
      const x = encode(m.columns, codes);
      return partsOf(m, codes, x, predict(x), 0);
    }),
    traces: data.effects.curves.filter((e) => e.grid).map((e) => effectChart(e, 0, "y").data.map((t) => t.type)),
  };"""


@pytest.mark.parametrize(
    "model",
    [
        kw.MarsRegressor(),
        kw.SplineNetRegressor(n_members=1, hidden=(8,), epochs=2, random_state=0),
        kw.SplineNetRegressor(hidden=(8, 6), n_members=2, epochs=2, random_state=0),
    ],
    ids=["spline", "network", "members"],
)
def test_the_page_predicts_and_shows_what_python_does(model):
    rng = np.random.default_rng(0)
    sold = pd.Timestamp("2019-03-05", tz="Europe/Berlin") + pd.to_timedelta(rng.integers(900, size=N), unit="D")
    X = pd.DataFrame({
        "a": np.where(rng.random(N) < 0.2, np.nan, rng.normal(size=N)), "sold": sold,
        "grade": pd.Categorical(rng.choice(["low", "high"], N), ["low", "high"], ordered=True),
        "kind": np.where(rng.random(N) < 0.1, None, rng.choice(list("xyz"), N)),
        "flag": rng.integers(0, 2, N), "year": rng.integers(1990, 2020, N),
    })  # fmt: skip
    y = X["a"].abs().fillna(2).to_numpy() + (X["kind"] == "x") + (sold.day_of_week > 4) + 0.1 * rng.normal(size=N)
    y += X["flag"] + np.abs(X["year"] - 2005) / 5
    explanation = kw.explain(model.fit(X, y), X, y)
    page = content(explanation)
    found = run(page, PREDICTIONS)
    rows = page["rows"]["numbers"]
    np.testing.assert_allclose(np.ravel(found["predictions"]), model.predict(X)[rows], atol=1e-6)
    names = [column["name"] for column in page["model"]["columns"]]
    shown = pd.DataFrame(found["shown"], columns=names)
    assert (shown["sold"] == [f"{t:%Y-%m-%d %H:%M}".removesuffix(" 00:00") for t in sold[rows]]).all()
    assert (shown["grade"] == X["grade"].iloc[rows].to_numpy()).all()
    assert ((shown["a"] == "missing") == X["a"].iloc[rows].isna().to_numpy()).all()
    assert (shown["year"] == X["year"].iloc[rows].astype(str).to_numpy()).all()  # 1999, not 1,999
    # The parts of every row are those of Python, and exactly zero where the column is not used.
    expected = explanation.contributions(X.iloc[rows]).to_frame().drop(columns=["(mean prediction)", "prediction"])
    for parts, (_, line) in zip(found["parts"], expected.iterrows(), strict=True):
        assert {name for name, _ in parts} >= {name for name, v in line.items() if v != 0}
        for name, value in parts:
            if name != "interaction":  # a network's curves are read between points of their grid
                assert value == pytest.approx(line[name], abs=1e-9 if isinstance(model, kw.MarsRegressor) else 2e-2)
    for name, effect in explanation.effects.items():
        if not effect.used:
            assert all(dict(parts)[name] == 0 for parts in found["parts"])
    drawn = [e for e in page["effects"]["curves"] if "grid" in e]
    flags = [traces for e, traces in zip(drawn, found["traces"], strict=True) if e["column"] == "flag"]
    assert flags == [["bar"] * (1 + (page["model"]["network"] is not None))]  # two bars each, no curve
    assert next(e for e in drawn if e["column"] == "flag")["grid"] == [0, 1]


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize(
    "model",
    [kw.MarsRegressor(), kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=0, random_state=0)],
    ids=["spline", "network"],
)
def test_the_page_holds_predictions_and_says_so(model, outputs):
    rng = np.random.default_rng(0)
    first = rng.normal(size=N)
    X = np.column_stack([first, first + 0.05 * rng.normal(size=N)])
    y = np.column_stack([3 * X[:, 0] - 2.9 * X[:, 1], X[:, 0]])[:, :outputs]
    apart = X * [1.0, -1e3]
    explanation = kw.explain(model.fit(X, y), apart, y)
    page = content(explanation)
    found, rows = run(page, PREDICTIONS), page["rows"]["numbers"]
    expected = model.predict(apart)[rows].reshape(len(rows), -1)
    np.testing.assert_allclose(found["predictions"], expected, atol=1e-6)
    limits = model.spline_.output_limits
    held = np.isclose(expected, limits.lower) | np.isclose(expected, limits.upper)
    assert held[:, 0].mean() > 0.2
    base = page["model"]["parts"]["base"][0]
    total = [base + sum(value for _, value in parts) for parts in found["parts"]]
    np.testing.assert_allclose(total, expected[:, 0], atol=1e-6)
    if isinstance(model, kw.MarsRegressor):
        assert ["clipped to the limit" in dict(parts) for parts in found["parts"]] == held[:, 0].tolist()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "model",
    [kw.MarsClassifier(), kw.SplineNetClassifier(n_members=1, hidden=(8,), epochs=2, random_state=0)],
    ids=lambda m: type(m).__name__,
)
def test_the_page_has_the_probabilities(model, classes):
    X, y = load_wine(return_X_y=True, as_frame=True)
    X, y = X[y < classes], y[y < classes]
    model.fit(X, y)
    page = content(kw.explain(model, X, y))
    found = run(page, """
      const m = data.model, predict = modelFunction(m);
      return data.rows.codes.map((codes) => probabilities(predict(encode(m.columns, codes)), m.classes));
    """)  # fmt: skip
    np.testing.assert_allclose(found, model.predict_proba(X.iloc[page["rows"]["numbers"]]), atol=1e-6)
    chart = run(page, "return chancesChart([0.25, 0.75, 0].slice(0, data.model.classes.length), data.model.classes)")
    assert chart["data"][0]["text"][:2] == ["75.0 %", "25.0 %"]


def test_numbers_as_people_write_them():
    shown = run(
        {}, "return [2019, 20190305, 1234567, -0.5, 0, 123456.7, 1e-7, 4.25e9 + 0.5, null].map((v) => figure(v))"
    )
    texts = shown + run({}, "return [counted(4177), signed(-1.5), signed(2), ...[1e-6, 1, 0.5].map(chanceText)]")
    assert texts == ["2019", "20190305", "1234567", "−0.5", "0", "123457", "1.00e−7", "4.25e9", "–", "4,177", "−1.5",
                     "+2", "under 0.1 %", "100.0 %", "50.0 %"]  # fmt: skip


def test_small_numbers_beside_large_ones_have_one_digit():
    assert run({}, "return [figure(3.01e-5, 1), figure(-7.14e-5, 2), signed(4.06e-5, 1), figure(3.01e-5)]") == [
        "3e−5", "−7.1e−5", "+4e−5", "3.01e−5"
    ]  # fmt: skip


@pytest.mark.parametrize("names", [["a", "b"], ["a category of a long name", "b"]], ids=["side by side", "in rows"])
@pytest.mark.parametrize("band", ["null", "{lower: [[-0.2, -0.4]], upper: [[0.5, 0.1]]}"])
def test_numbers_keep_clear_of_the_ends_of_bands(names, band):
    effect = (
        f"{{column: 'x', categories: {names}, spline: [[0, 0]], network: [[0.3, -0.3]], band: {band}, missing: null}}"
    )
    layout = run({}, f"globalThis.window = {{innerWidth: 1240}}; return effectChart({effect}, 0, 'y').layout")
    moves = [note.get("xshift", note.get("yshift")) for note in layout["annotations"][-2:]]
    clear = 5 if band != "null" else 2 if len(names[0]) > 1 else 0
    assert moves == [clear, -clear]


def test_a_waterfall_has_numbers_and_ends_at_the_prediction():
    chart = run({}, "return waterfall([['a', 2], ['b', -0.5]], 10, 11.5, 'Rings', 0)")
    bars = chart["data"][0]
    assert bars["text"] == ["+2", "−0.5"]
    assert bars["base"] == [10, 12]
    assert bars["base"][-1] + bars["x"][-1] == 11.5
    assert chart["layout"]["xaxis"]["title"]["text"] == "Rings: from the mean prediction 10 to 11.5"


def test_bands_are_drawn_where_there_are_records_of_them():
    X, y = kw.datasets.load_abalone()
    X = X.assign(flag=(X["Length"] > 0.5).astype(int))
    page = content(kw.explain(kw.MarsRegressor().fit(X[:500], y[:500] + 5 * X["flag"][:500]), X[:500], y[:500]))
    curve = next(e for e in page["effects"]["curves"] if "grid" in e and not e["categories"] and not e["binary"])
    flag = next(e for e in page["effects"]["curves"] if e["column"] == "flag")
    for effect in (curve, flag):
        lower, upper = ([[v + d for v in effect["spline"][0]]] for d in (-1, 1))
        effect["band"] = {"lower": lower, "upper": upper, "what": "5 folds"}
        chart = run({"effect": effect}, "return effectChart(data.effect, 0, 'Rings')")
        assert chart["layout"]["yaxis2"]["title"]["text"] == "effect on Rings"
        if effect is curve:
            filled = [t for t in chart["data"] if t.get("fill") == "tonexty"]
            assert [t["y"] for t in filled] == upper
        else:
            assert np.allclose(chart["data"][0]["error_y"]["array"], 1)
            assert np.allclose(chart["data"][0]["error_y"]["arrayminus"], 1)
