"""What a fresh process loads and how long that takes. Each test starts one."""

import json
import os
import subprocess
import sys
import textwrap

import pytest


def run(code, **environment):
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result


def test_import_is_light():
    code = """
        import sys, time, json
        start = time.perf_counter()
        import knotwork
        elapsed = time.perf_counter() - start
        heavy = [m for m in ("sklearn", "numba", "torch", "dask", "matplotlib", "pandas", "scipy") if m in sys.modules]
        print(json.dumps([elapsed, heavy]))
    """
    results = [json.loads(run(code).stdout) for _ in range(3)]
    assert results[0][1] == []
    assert min(elapsed for elapsed, _ in results) < 0.5


def test_a_fit_loads_no_torch_dask_or_matplotlib():
    found = run("""
        import sys
        import knotwork as kw
        X, y = kw.datasets.load_abalone()
        model = kw.MarsRegressor(verbose=1).fit(X, y)
        model.predict(X), model.summary()
        heavy = ("torch", "dask", "matplotlib", "distributed", "pyarrow.dataset", "pyarrow.parquet")
        print([m for m in heavy if m in sys.modules])
    """).stdout
    assert found.splitlines()[-1] == "[]"


FIRST_FIT = """
    import json, statistics, time
    import numba, pandas, sklearn.base, sklearn.utils.validation, scipy.sparse
    import numpy as np
    import knotwork as kw
    import knotwork.estimators.mars, knotwork.spline.fit

    def kernel(a, b):
        total = 0.0
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                if a[i, j] > b[j]:
                    total += a[i, j] * b[j]
        return total

    def seconds(work):
        start = time.process_time()
        work()
        return time.process_time() - start

    # The unit of time: compiling a small kernel, in this process, so that a busy machine slows both alike.
    units = [seconds(lambda: numba.njit(kernel)(np.ones((3, 3)), np.ones(3))) for _ in range(6)]
    X, y = kw.datasets.load_abalone()
    fits = [seconds(lambda: kw.MarsRegressor(max_degree=degree).fit(X, y)) for degree in (1, 2)]
    print(json.dumps([fit / statistics.median(units[1:]) for fit in fits]))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A cache folder, and the result of the very first fit that filled it."""
    cache = str(tmp_path_factory.mktemp("numba"))
    return cache, run(FIRST_FIT, NUMBA_CACHE_DIR=cache)


def test_the_very_first_fit_compiles_and_says_so(compiled):
    _, first = compiled
    assert "compiling kernels" in first.stderr
    # 46 and 36 small kernels' time: about 5 and 4 s of CPU time on an idle machine.
    additive, interactions = json.loads(first.stdout)
    assert additive < 75
    assert interactions < 60


def test_later_first_fits_load_the_kernels_and_say_nothing(compiled):
    cache, _ = compiled
    results = [run(FIRST_FIT, NUMBA_CACHE_DIR=cache) for _ in range(3)]
    assert all(r.stderr == "" for r in results)
    # Less than one small kernel's time, about 0.1 s on an idle machine.
    additive, interactions = zip(*(json.loads(r.stdout) for r in results), strict=True)
    assert min(additive) < 3
    assert min(interactions) < 3


def test_names_are_listed_and_unknown_ones_refused():
    import knotwork as kw

    assert set(kw.__all__) <= set(dir(kw))
    for name in kw.__all__:
        assert getattr(kw, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'MarsRegresor'"):
        kw.MarsRegresor  # noqa: B018
