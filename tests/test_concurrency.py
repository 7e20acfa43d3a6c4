"""Fits after fork, in joblib's workers and from several threads at once: numba's own thread pools break there."""

import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.model_selection import GridSearchCV

import knotwork as kw
from knotwork.compute.workers import Workers, thread_count


def fit(seed, n_jobs=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(100_000, 12))
    assert len(Workers(2).split(12, work=X.size)) == 2  # large enough for threads
    y = np.abs(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=len(X))
    return kw.MarsRegressor(n_jobs=n_jobs, max_terms=9).fit(X, y).spline_


@pytest.fixture(scope="module")
def expected():
    return [fit(seed) for seed in range(4)]


def after_fork():
    """Return the fit of a forked child: run by the test below in a process that has no threads but those of a fit."""
    fit(0)
    parent, child = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=lambda: child.send(fit(0)), daemon=True)
    process.start()
    assert parent.poll(60), "the fit in a forked child did not end"
    found = parent.recv()
    process.join(10)
    assert process.exitcode == 0
    return [found]


def in_forked_workers():
    """Return the fits of joblib's forked workers."""
    fit(0)
    return Parallel(n_jobs=2, backend="multiprocessing")(delayed(fit)(seed) for seed in range(2))


@pytest.mark.parametrize("work", [after_fork, in_forked_workers])
def test_in_forked_processes(expected, work):
    """Not forked off this process: what other tests have loaded may have threads, and a child waits for their locks."""
    code = f"import tests.test_concurrency as t; print([s.to_dict() for s in t.{work.__name__}()])"
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found = [s.to_dict() for s in expected]
    assert done.stdout.strip() == str(found[:1] if work is after_fork else found[:2])


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_in_joblib(expected, backend):
    found = Parallel(n_jobs=2, backend=backend, timeout=200)(delayed(fit)(seed) for seed in range(4))
    assert found == expected


def test_from_several_threads_at_once(expected):
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fit, list(range(4)) * 3)) == expected * 3


def test_n_jobs_changes_no_bit(expected):
    assert fit(1, n_jobs=1) == fit(1, n_jobs=3) == fit(1, n_jobs=None) == fit(1, n_jobs=-1) == expected[1]


def test_in_a_grid_search():
    X, y = kw.datasets.load_abalone()
    grid = {"max_terms": [5, 21]}
    two = GridSearchCV(kw.MarsRegressor(), grid, n_jobs=2, cv=3).fit(X, y).cv_results_["mean_test_score"]
    one = GridSearchCV(kw.MarsRegressor(), grid, n_jobs=1, cv=3).fit(X, y).cv_results_["mean_test_score"]
    assert two.tolist() == one.tolist()


def test_thread_count():
    cores = thread_count(None)
    assert thread_count(3) == 3
    assert thread_count(-1) == cores
    assert thread_count(-cores - 5) == 1


def test_an_error_in_a_thread_is_not_lost():
    def task(k):
        if k == 0:
            raise RuntimeError("lost?")

    with Workers(2) as workers, pytest.raises(RuntimeError, match="lost"):
        workers.run(task, 2)
