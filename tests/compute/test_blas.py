"""Fits have one BLAS thread, in whatever thread of Python they run, and leave the setting as it was."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import knotwork as kw
from knotwork.compute.blas import one_blas_thread


def counts():
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


@pytest.mark.parametrize("make", [
    lambda: kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=1, random_state=0),
    lambda: kw.SplineNetClassifier(n_members=1, hidden=(16,), epochs=1, random_state=0),
    lambda: kw.MarsClassifier(),
])  # fmt: skip
def test_blas_threads_change_no_bit_of_a_fit(make):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 8))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=3000)
    y = y if isinstance(make(), kw.SplineNetRegressor) else np.digitize(y, [-0.5, 0.5])
    splines = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            splines.append(make().fit(X, y).spline_)
    assert splines[0] == splines[1]


def test_the_limit_holds_until_the_last_block_is_left():
    both, first_has_left = Barrier(2), Barrier(2)

    def first():
        with one_blas_thread():
            both.wait()
        first_has_left.wait()

    def second():
        with one_blas_thread():
            both.wait()
            first_has_left.wait()
            return counts()

    with threadpool_limits(2, user_api="blas"), ThreadPoolExecutor(2) as pool:
        before = counts()
        pool.submit(first)
        assert pool.submit(second).result() == {1}
        assert counts() == before != {1}
