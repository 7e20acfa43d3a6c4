import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import knotwork as kw
from knotwork.cli import app
from knotwork.commands.demo import COLOURS, describe


def test_demo_shows_the_whole_way(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--epochs", "2", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    for expected in (
        "fitted in",
        "rings = ",
        "h(Shell weight - ",
        "ReLU",
        "spline start",
        "random start",
        "says about",
    ):
        assert expected in result.output
    text = " ".join(result.output.split())
    after = {name: float(re.findall(rf"{name} ([\d.]+) ([\d.]+)", text)[-1][0]) for name in COLOURS}
    assert after["spline start"] < 0.5 * after["random start"]  # on the made-up table, before training
    assert any("⠀" < c <= "⣿" for c in result.output)  # the curves
    assert {p.name for p in (tmp_path / "demo").iterdir()} == {
        "curves.png", "curves.svg", "knotwork.txt", "model", "report.html", "spline.txt",
    }  # fmt: skip
    assert "open this page in a browser" in " ".join(result.output.split())
    assert "test rows" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    X, y = kw.datasets.load_abalone()
    assert kw.load(tmp_path / "demo" / "model").score(X, y) > 0.5
    assert "GCV" in (tmp_path / "demo" / "spline.txt").read_text()


def test_files_of_others_are_never_replaced(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "report.html").write_text("mine")
    (tmp_path / "spline.txt").write_text("mine")
    result = CliRunner().invoke(app, ["demo", "--epochs", "1", "--out", str(tmp_path)])
    assert result.exit_code != 0
    assert (tmp_path / "report.html").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"model", "report.html", "spline.txt"}


@pytest.fixture
def model():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(0, 10, 500), "b": rng.normal(size=500), "kind": rng.choice(["p", "q"], 500)})
    y = 5 * np.maximum(X["a"] - 6, 0) - 1.5 * X["b"] + 2 * (X["kind"] == "q")
    return kw.MarsRegressor().fit(X, y), X


def test_the_sentences_are_true_of_the_spline(model):
    first, second, third, _ = describe(*model)
    low, high = np.quantile(model[1]["a"], [0.05, 0.95])
    assert first.startswith("a matters most")
    rise = float(re.search(r"rises by ([\d.]+) rings", first)[1])
    assert rise == pytest.approx(5 * (high - 6), rel=0.02)  # the spline's own knot lies near 6, not on it
    assert second.startswith("b comes next")
    assert "falls by" in second
    assert third.startswith("kind comes next")
    assert "kind=p has 2.0 fewer rings than kind=q" in third
    assert low < 6
