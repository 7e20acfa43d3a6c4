import json
import re
from contextlib import contextmanager
from dataclasses import replace

import pytest

from knotwork.errors import KnotworkError
from knotwork.experiments import drawings, fewer_rows, figures, sparsity, store, strong_models
from knotwork.experiments.protocol import FULL
from knotwork.experiments.reproduction import reproduce

TINY = replace(
    FULL, seeds=2, epochs=1, rates=(1e-3,), widths=(24, 4), batch_size=1024, variant_seeds=1, zscore_seeds=1,
    analysis_seeds=1, analysis_epochs=1, repeats=1, growth=0.05,
)  # fmt: skip


@contextmanager
def silent(name, total):
    yield lambda stored: None


def shorten(patch):
    patch.setattr(fewer_rows, "SHARES", (0.25, 1.0))
    patch.setattr(sparsity, "PENALTIES", {k: sparsity.PENALTIES[k] for k in ("none", "L2 0.1", "L1 1e-4")})
    patch.setattr(strong_models, "FOREST", 10)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("reproduction")
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        return out, reproduce(("abalone",), TINY, out, jobs=1, progress=silent)


def test_the_json_has_its_agreed_form(written):
    out, result = written
    entry = result["abalone"]
    for start in ("converted", "random"):
        assert 0 < entry["before"][start] < 10
        assert 0 < entry["after"]["1"][start] < 10
        assert 0 < entry["after"]["1"]["best"][start] < 10
    assert entry["before"]["converted"] < entry["before"]["random"] / 4
    assert all(entry["seconds"][k] > 0 for k in ("spline", "epoch_converted", "epoch_random"))
    assert entry["published"]["after"]["50"]["converted"] > 0
    low, high = (entry["after"]["1"]["difference"][k] for k in ("low", "high"))
    assert low < entry["after"]["1"]["difference"]["mean"] < high
    # Nothing but JSON: no NaN, and the same once it is read back.
    text = json.dumps(result, allow_nan=False)
    assert json.loads(text) == json.loads((out / "results.json").read_text())


def test_the_report_lists_every_file_and_shows_every_picture(written):
    out, _ = written
    report = (out / "report.md").read_text()
    files = {p.name for p in out.iterdir() if p.is_file()}
    linked = set(re.findall(r"\]\(([^)]+)\)", report))
    assert linked == files
    assert {p for p in files if p.endswith(".png")} == set(re.findall(r"!\[[^]]+\]\(([^)]+)\)", report))
    for picture in files:
        if picture.endswith(".png"):
            assert (out / picture).read_bytes()[:4] == b"\x89PNG"
            assert "<svg" in (out / picture).with_suffix(".svg").read_text()[:1000]


def test_the_report_sets_published_figures_beside_ours(written):
    out, result = written
    report = (out / "report.md").read_text()
    for figure in ("0.004842", "0.1372", "0.00616", "0.0511"):
        assert figure in report
    assert f"{result['abalone']['before']['converted']:.4g}" in report
    assert "1.05 rings" in report
    assert report.count("These do not fit") == 1
    assert "nan" not in report.lower()


def test_without_matplotlib_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(KnotworkError, match=r"pip install 'knotwork\[plots\]'"):
        reproduce(("abalone",), TINY, tmp_path / "out", jobs=1, progress=silent)
    assert not (tmp_path / "out").exists()


def test_a_second_call_runs_nothing(written, monkeypatch):
    out, result = written
    shorten(monkeypatch)
    monkeypatch.setattr(figures, "draw", lambda path, *_: [path.with_suffix(".png")])
    monkeypatch.setattr(drawings, "draw", lambda path, *_: [path.with_suffix(".png")])
    monkeypatch.setattr(store.Task, "__call__", lambda self: pytest.fail(f"{self} was run again"))
    again = reproduce(("abalone",), TINY, out, jobs=1, progress=silent)
    assert json.dumps(again) == json.dumps(result)
