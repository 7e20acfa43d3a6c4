"""Peak memory of fits and predictions, at a size that takes seconds; benchmarks/memory.py measures the large ones."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import knotwork as kw
from knotwork.network.chain import evaluate, read_chain
from knotwork.spline.moments import parents, values

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "memory.py"


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux lets a process reset its peak")
@pytest.mark.parametrize(
    ("case", "size", "limit"),
    [
        # The tables of pairs of an additive fit take up to 32 MB, however small its own table is.
        ("additive", "500000x10", 2.5),
        ("classes", "1000000x10", 2.5),
        ("predict splinenet", "300000x10", 2.0),
        # So does what threads hold at a time.
        ("splinenet start", "1000000x10", 5.0),
    ],
)
def test_peak_memory_over_that_of_the_table(case, size, limit):
    command = [sys.executable, str(BENCHMARK), "--one", "--cases", case, "--sizes", size]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert float(run.stdout) < limit


def test_bins_that_are_found_anew_change_no_bit(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    y = np.abs(X[:, 0]) * X[:, 1] + np.abs(X[:, 2]) + rng.normal(size=3000) / 10
    kept = kw.MarsRegressor(max_degree=3, n_jobs=2).fit(X, y)
    assert any(len(term.features) > 1 for term in kept.spline_.terms)
    for share in (0.0, 0.7):  # no bins are kept, or some
        monkeypatch.setattr(parents, "MIN_BYTES", 0)
        monkeypatch.setattr(parents, "MAX_SHARE", share)
        monkeypatch.setattr(values, "MIN_BYTES", 0)
        assert kw.MarsRegressor(max_degree=3, n_jobs=2).fit(X, y).spline_ == kept.spline_


def test_networks_are_evaluated_in_chunks(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 2))
    model = kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=0, random_state=0).fit(X[:500], X[:500].sum(axis=1))
    chain = read_chain(model.network_)
    seen = []
    whole = type(chain.output).__call__

    def spy(layer, rows):
        seen.append(len(rows))
        return whole(layer, rows)

    monkeypatch.setattr(type(chain.output), "__call__", spy)
    found = evaluate(chain, X)
    assert found.shape == (10_000, 1)
    assert max(seen) <= 4096
    np.testing.assert_allclose(found[:, 0], model.predict(X), rtol=1e-12, atol=1e-12)
