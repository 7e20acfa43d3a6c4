"""The page's own arithmetic, run by Node where it is installed: gaps, dates and orders as Python has them."""

import json
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest

import knotwork as kw
from knotwork.explanation.content import page_content
from knotwork.explanation.report import _read, embed

N = 300
SCRIPT = """
const vm = require("vm"), data = JSON.parse(require("fs").readFileSync(0, "utf8"));
const page = { console, data: data.page, atob, document: { documentElement: {} }, window: { innerWidth: 1000 },
               getComputedStyle: () => ({ getPropertyValue: () => "#000" }) };
vm.runInNewContext(data.scripts + `
  const m = data.model, run = m.network ? networkFunction(m.network) : splineFunction(m.spline);
  console.log(JSON.stringify({
    predictions: data.rows.codes.map((codes) => run(encode(m.columns, codes))[0]),
    shown: data.rows.codes.map((codes) => codes.map((v, k) => v === null ? "missing" : valueText(m.columns[k], v))),
    traces: data.effects.map((effect) => effectChart(effect, 0).data.length),
  }));`, page);
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
@pytest.mark.parametrize(
    "model",
    [kw.MarsRegressor(), kw.SplineNetRegressor(hidden=(8,), epochs=2, random_state=0)],
    ids=lambda m: type(m).__name__,
)
def test_the_page_predicts_and_shows_what_python_does(model):
    rng = np.random.default_rng(0)
    sold = pd.Timestamp("2019-03-05", tz="Europe/Berlin") + pd.to_timedelta(rng.integers(900, size=N), unit="D")
    X = pd.DataFrame({
        "a": np.where(rng.random(N) < 0.2, np.nan, rng.normal(size=N)), "sold": sold,
        "grade": pd.Categorical(rng.choice(["low", "high"], N), ["low", "high"], ordered=True),
        "kind": np.where(rng.random(N) < 0.1, None, rng.choice(list("xyz"), N)),
    })  # fmt: skip
    y = X["a"].abs().fillna(2).to_numpy() + (X["kind"] == "x") + (sold.day_of_week > 4) + 0.1 * rng.normal(size=N)
    explanation = kw.explain(model.fit(X, y), X, y)
    page = json.loads(embed(page_content(explanation)))
    scripts = _read("page", "model.js") + _read("page", "charts.js")
    told = json.dumps({"page": page, "scripts": scripts})
    done = subprocess.run(["node", "-e", SCRIPT], input=told, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    rows = page["rows"]["numbers"]
    np.testing.assert_allclose(found["predictions"], model.predict(X)[rows], atol=1e-6)
    names = [column["name"] for column in page["model"]["columns"]]
    shown = pd.DataFrame(found["shown"], columns=names)
    assert (shown["sold"] == [f"{t:%Y-%m-%d %H:%M}".removesuffix(" 00:00") for t in sold[rows]]).all()
    assert (shown["grade"] == X["grade"].iloc[rows].to_numpy()).all()
    assert ((shown["a"] == "missing") == X["a"].iloc[rows].isna().to_numpy()).all()
    assert len(found["traces"]) == len(names)
