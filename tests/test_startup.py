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
    import json, time
    import numba, pandas, sklearn.base, sklearn.utils.validation, scipy.sparse
    import knotwork as kw
    import knotwork.estimators.mars, knotwork.spline.fit
    X, y = kw.datasets.load_abalone()
    times = []
    for degree in (1, 2):
        start = time.process_time()
        kw.MarsRegressor(max_degree=degree).fit(X, y)
        times.append(time.process_time() - start)
    print(json.dumps(times))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A cache folder, and the result of the very first fit that filled it."""
    cache = str(tmp_path_factory.mktemp("numba"))
    return cache, run(FIRST_FIT, NUMBA_CACHE_DIR=cache)


def test_the_very_first_fit_compiles_and_says_so(compiled):
    _, first = compiled
    assert "compiling kernels" in first.stderr
    # About 5 and 4 s of CPU time on an idle machine; the tests share theirs with each other.
    additive, interactions = json.loads(first.stdout)
    assert additive < 9
    assert interactions < 8


def test_later_first_fits_load_the_kernels_and_say_nothing(compiled):
    cache, _ = compiled
    results = [run(FIRST_FIT, NUMBA_CACHE_DIR=cache) for _ in range(3)]
    assert all(r.stderr == "" for r in results)
    # About 0.2 and 0.1 s on an idle machine, most of it what numba loads for its first kernel.
    additive, interactions = zip(*(json.loads(r.stdout) for r in results), strict=True)
    assert min(additive) < 0.5
    assert min(interactions) < 0.3


def test_names_are_listed_and_unknown_ones_refused():
    import knotwork as kw

    assert set(kw.__all__) <= set(dir(kw))
    for name in kw.__all__:
        assert getattr(kw, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'MarsRegresor'"):
        kw.MarsRegresor  # noqa: B018
