"""Fits have one BLAS thread, in whatever thread of Python they run, and leave the setting as it was."""

import subprocess
import sys
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


SHORT = """
import os, resource, sys
import knotwork as kw
import numpy as np
{first}
used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (used + (16 << 20), resource.RLIM_INFINITY))
a = np.ones((400, 400))
try:
    {then}
    print("done")
except MemoryError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ("kw.Spline", "a @ a", "done"),  # any name of ours: from then on there is a buffer
        (
            "from knotwork.compute.blas import one_blas_thread\nwith one_blas_thread(): pass\n"
            "from scipy.linalg.blas import dgemm",
            "dgemm(1.0, a, a)",
            "done",
        ),
        (
            "import knotwork.compute.blas",
            "kw.Spline",
            "linear algebra needs 64 MB of working memory, and there is less; free some or raise the limit",
        ),
    ],
    ids=["numpy", "scipy", "too little"],
)
def test_blas_has_its_memory_before_memory_is_short(first, then, expected):
    """OpenBLAS ends the process where it gets no buffer."""
    done = subprocess.run(
        [sys.executable, "-c", SHORT.replace("{first}", first).replace("{then}", then)],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr
