"""The page's text, the tables and the plots; the page itself is tested in a browser."""

import importlib.util
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

import knotwork as kw
from knotwork.cli import app
from knotwork.errors import DataError, KnotworkError
from knotwork.explanation.report import embed


@pytest.fixture(scope="module")
def red():
    X, y = kw.datasets.load_wine_quality("red")
    return kw.SplineNetRegressor(n_members=1, hidden=(32,), epochs=2, random_state=0).fit(X, y), X, y


def test_embedded_text_cannot_end_its_block():
    nasty = "</script><!-- <script> & \u2028 \u2029 \ud800 🐚"
    text = embed({"name": nasty, nasty: [1.5, float("nan"), float("inf"), None, True]})
    assert text.isascii()
    assert not set(text) & set("<>&")
    assert json.loads(text) == {"name": nasty, nasty: [1.5, None, None, None, True]}


@pytest.mark.parametrize("which", ["network", "mars", "mars alone", "spline", "bare network", "random start"])
def test_every_kind_of_model_has_a_page(red, which, tmp_path):
    model, X, y = red
    mars = kw.MarsRegressor().fit(X, y)
    explanation = {
        "network": lambda: kw.explain(model, X, y, curves="accumulated"),
        "mars": lambda: kw.explain(mars, X),
        "mars alone": lambda: kw.explain(mars),
        "spline": lambda: kw.explain(mars.spline_, X, y),
        "bare network": lambda: kw.explain(model.network_, X),
        "random start": lambda: kw.explain(
            kw.SplineNetRegressor(n_members=1, hidden=(8,), start="random", epochs=1, random_state=0).fit(X, y), X, y
        ),
    }[which]()
    explanation.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "{{" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1])
    assert len(data["effects"]["curves"]) == 11
    assert data["rows"]["codes"]
    # Nothing in the head or the body points outside.
    assert not re.search(r"(src|href)=[\"'](?!#|data:)", re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL))


def test_a_page_without_what_it_needs_is_not_written(red, tmp_path):
    path = tmp_path / "page.html"
    with pytest.raises(DataError, match="pass explain"):
        kw.explain(red[0]).to_html(path)
    assert not path.exists()


def test_printed_tables(red):
    model, X, y = red
    text = str(kw.explain(model, X, y))
    assert repr(kw.explain(model, X)) == "Explanation(SplineNetRegressor, 11 columns, 1599 rows)"
    for part in ("Quality", "What matters", "Knots", "What training changed", "alcohol", "trained network"):
        assert part in text
    assert max(len(line) for line in text.splitlines()) <= 110
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(kw.explain(model, X, y))
    assert "alcohol" in console.export_text()
    assert "spline" in str(kw.explain(kw.Spline((kw.Linear(0),), [1.0], [[2.0]], ("[red]x[/red]",)), X.iloc[:, :1], y))


def test_names_are_text_in_every_table():
    name = "[bold]<i>x</i>[/bold]"
    X = pd.DataFrame({name: np.arange(30.0), "other": np.arange(30.0) % 7})
    explanation = kw.explain(kw.MarsRegressor().fit(X, np.abs(X[name] - 12)), X)
    assert name in str(explanation)
    assert "&lt;i&gt;x" in explanation._repr_html_()
    assert "<i>" not in explanation._repr_html_()


def test_plots(red):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    model, X, y = red
    explanation = kw.explain(model, X, y)
    try:
        ax = explanation.plot_importances()
        assert [t.get_text() for t in ax.get_yticklabels()][-1] == explanation.importances.index[0]
        axes = explanation.plot_effects(["alcohol", "pH"])
        assert axes.shape == (1, 2)
        curves = {line.get_label(): line for line in axes[0, 0].get_lines()}
        effect = explanation.effects["alcohol"]
        np.testing.assert_array_equal(curves["network"].get_ydata(), effect.network[:, 0])
        np.testing.assert_array_equal(curves["spline"].get_xdata(), effect.grid)
        assert len(explanation.plot_effects().flat) >= 6
        loss = explanation.plot_history(plt.subplots()[1]).get_lines()[1].get_ydata()
        np.testing.assert_allclose(loss**2, model.history_.validation_loss)
        X2, y2 = kw.datasets.load_abalone()
        kw.explain(kw.MarsRegressor().fit(X2, y2), X2).plot_effects(["Sex"])
    finally:
        plt.close("all")
    with pytest.raises(DataError, match="got 'colour'"):
        explanation.plot_effects(["colour"])
    with pytest.raises(DataError, match="columns must name at least one column, got none"):
        explanation.plot_effects([])
    with pytest.raises(DataError, match="measure must be one of permutation, coefficient, got 'gain'"):
        explanation.plot_importances("gain")
    with pytest.raises(DataError, match="no history"):
        kw.explain(kw.MarsRegressor().fit(X, y)).plot_history()


def test_plots_without_matplotlib_say_what_to_install(red, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(KnotworkError, match=r"pip install 'knotwork\[plots\]'"):
        kw.explain(red[0], red[1]).plot_importances()


def test_a_splines_page_needs_neither_torch_nor_matplotlib(tmp_path):
    code = f"""
import sys
import knotwork as kw
X, y = kw.datasets.load_abalone()
explanation = kw.explain(kw.MarsRegressor().fit(X, y), X, y)
explanation.to_html({str(tmp_path / "page.html")!r})
print(explanation, [m for m in ("torch", "matplotlib", "selenium") if m in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.rstrip().endswith("[]")


def test_the_example_says_what_it_needs(tmp_path):
    if importlib.util.find_spec("interpret") is not None:
        pytest.skip("InterpretML is installed; the example takes minutes")
    script = Path(__file__).parents[2] / "examples" / "compare_ebm.py"
    result = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "pip install 'knotwork[ebm]'" in result.stderr


def test_the_command(tmp_path, red):
    X, y = kw.datasets.load_abalone()
    model = kw.SplineNetRegressor(n_members=1, hidden=(32,), epochs=1, random_state=0).fit(X, y)
    kw.save(model, tmp_path / "model")
    X.assign(Rings=y).to_csv(tmp_path / "data.csv", index=False)
    arguments = ["report", str(tmp_path / "model"), str(tmp_path / "data.csv"), "--out", str(tmp_path / "page.html")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "4177 rows explained" in result.output
    page = tmp_path / "page.html"
    assert page.stat().st_size < 3_000_000
    assert "What Rings depends on" in page.read_text(encoding="utf-8")
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code != 0
    assert "--force" in (str(again.exception) + again.output)
    told = CliRunner().invoke(app, [*arguments, "--force", "--json", "--target", "Rings"])
    assert json.loads(told.stdout)["rows"] == 4177
    wrong = CliRunner().invoke(app, [*arguments, "--force", "--target", "Sex"])
    assert "got 'Sex'" in (str(wrong.exception) + wrong.output)
