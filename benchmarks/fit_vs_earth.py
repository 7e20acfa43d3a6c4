"""knotwork's fit against R's earth (fast.k=0), in one run on the same data, and how its cost grows.

    python benchmarks/fit_vs_earth.py                    # everything, a few minutes (most of it earth)
    python benchmarks/fit_vs_earth.py --markdown         # the comparison alone, for the docs
    python benchmarks/fit_vs_earth.py --without-earth    # how time and memory grow, no R needed
    python benchmarks/fit_vs_earth.py --threads          # what a second thread gains, and what ten folds cost

R with earth and jsonlite comes from Debian's r-cran-earth and r-cran-jsonlite. Both programs get the same term limit.
earth counts two terms a step even when it adds one, so it takes fewer steps; RSS is compared at its number of steps.
earth goes on linearly beyond the training rows, so knotwork does too here (extrapolate="linear").
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import knotwork as kw
from knotwork.data.learn import learn_encoder

HERE = Path(__file__).parent
console = Console(width=120)


def additive(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A smooth additive truth in all features, of falling strength, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = sum(np.sin((1 + f % 4) * X[:, f]) / (1 + f / 4) for f in range(d)) + rng.normal(size=n) * 0.5
    return X, y


def abalone() -> tuple[np.ndarray, np.ndarray]:
    X, y = kw.datasets.load_abalone()
    return np.ascontiguousarray(learn_encoder(X).encode(X)), y.to_numpy(float)


def seconds_of(run: Callable[[], object], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


def run_earth(X: np.ndarray, y: np.ndarray, nk: str, threshold: float, fits: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        X.T.astype("<f8").tofile(f"{folder}/x")
        y.astype("<f8").tofile(f"{folder}/y")
        command = ["Rscript", str(HERE / "earth_timing.R"), f"{folder}/x", f"{folder}/y", *map(str, X.shape),
                   nk, str(threshold), str(fits)]  # fmt: skip
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    result["seconds"] = np.atleast_1d(result["seconds"]).tolist()
    return result


def against_earth(markdown: bool) -> None:
    table = Table(title="Fit against R's earth, fast.k=0 (RSS of the forward passes at earth's number of steps)")
    for name in ("data", "max_terms", "earth s", "knotwork s", "ratio", "target", "earth terms/steps",
                 "knotwork terms/steps", "RSS knotwork/earth"):  # fmt: skip
        table.add_column(name, justify="left" if name == "data" else "right")
    lines = [["data", "terms allowed", "earth", "knotwork", "ratio", "RSS knotwork/earth at earth's steps"]]
    # name, data, term limit, threshold, target, rounds, fits per round of earth's and of ours
    setups = [
        ("500000x10", additive(500_000, 10), "61", 0.0, 400, 1, 1, 5),
        ("50000x50", additive(50_000, 50), "61", 0.0, 50, 1, 1, 11),
        ("50000x10", additive(50_000, 10), "61", 0.0, 200, 1, 1, 11),
        ("abalone", abalone(), "default", 1e-3, 10, 7, 40, 200),
    ]
    for name, (X, y), nk, threshold, target, rounds, earth_fits, our_fits in setups:
        model = kw.MarsRegressor(
            max_terms=None if nk == "default" else int(nk), threshold=threshold, extrapolate="linear"
        )
        model.fit(X, y)
        # The machine may be slower in one minute than in the next: the two take turns, and each round has its ratio.
        ours, theirs = [], []
        for _ in range(rounds):
            before = seconds_of(lambda m=model, X=X, y=y: m.fit(X, y), our_fits)
            earth = run_earth(X, y, nk, threshold, earth_fits)
            after = seconds_of(lambda m=model, X=X, y=y: m.fit(X, y), our_fits)
            ours.append(statistics.median(before + after))
            theirs.append(statistics.median(earth["seconds"]))
        ratio = statistics.median(e / o for e, o in zip(theirs, ours, strict=True))
        steps = model.fit_.selection.steps
        same = steps[min(earth["steps"], len(steps) - 1)]
        earth_time, our_time = statistics.median(theirs), statistics.median(ours)
        lines.append(
            [
                f"{name.title()}, {len(X)} × {X.shape[1]}" if name == "abalone" else f"{shown(len(X))} × {X.shape[1]}",
                "21 (default)" if nk == "default" else nk,
                f"{earth_time:.3g} s" if earth_time > 1 else f"{1e3 * earth_time:.3g} ms",
                f"{our_time:.3f} s" if our_time > 0.01 else f"{1e3 * our_time:.1f} ms",
                f"**{ratio:.{0 if ratio > 10 else 1}f}×**",
                f"{same.rss / earth['rss']:.4f}",
            ]
        )
        table.add_row(
            name, nk, f"{statistics.median(theirs):.4f}", f"{statistics.median(ours):.5f}", f"{ratio:.1f}x",
            f">={target}x" if target else "", f"{earth['terms']}/{earth['steps']}",
            f"{steps[-1].terms}/{len(steps) - 1}", f"{same.rss / earth['rss']:.5f}",
        )  # fmt: skip
    if markdown:
        lines.insert(1, ["---"] * len(lines[0]))
        print("\n".join(f"| {' | '.join(line)} |" for line in lines))
    else:
        console.print(table)


def shown(count: int) -> str:
    return f"{count:,}".replace(",", " ")


def growth() -> None:
    def fit_seconds(n: int, d: int, terms: int) -> float:
        X, y = additive(n, d)
        model = kw.MarsRegressor(max_terms=terms, threshold=0.0).fit(X, y)
        assert model.fit_.selection.steps[-1].terms == terms, "the search ended before the limit"
        return min(seconds_of(lambda: model.fit(X, y), 7 if n < 500_000 else 3))

    table = Table(title="How the time grows (exponent: slope of log time on log size)")
    for name in ("what", "sizes", "seconds", "exponent"):
        table.add_column(name)
    for what, sizes, run in [
        (
            "N, 10 features, 31 terms",
            [10_000, 30_000, 100_000, 300_000, 1_000_000],
            lambda n: fit_seconds(n, 10, 31),
        ),
        ("features, N 50000, 31 terms", [5, 10, 20, 50, 100], lambda d: fit_seconds(50_000, d, 31)),
        ("terms, N 200000, 10 features", [10, 20, 40, 70, 100], lambda m: fit_seconds(200_000, 10, m)),
    ]:
        seconds = [run(size) for size in sizes]
        slope = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
        table.add_row(what, " ".join(map(str, sizes)), " ".join(f"{s:.3f}" for s in seconds), f"{slope:.2f}")
    console.print(table)


def threads() -> None:
    print("Minimum and median of fits that take turns, milliseconds: 1 thread, 2 threads")
    many: dict[str, Any] = {"max_terms": 61, "threshold": 0.0}
    for name, (X, y), options, repeats, folds in [
        ("abalone", abalone(), {}, 60, (None,)),
        ("50000x10", additive(50_000, 10), many, 15, (None,)),
        ("50000x50", additive(50_000, 50), many, 5, (None,)),
        ("500000x10", additive(500_000, 10), many, 5, (None, 10)),
    ]:
        models = {
            (cv, jobs): kw.MarsRegressor(extrapolate="linear", n_jobs=jobs, cv=cv, **options)
            for cv in folds
            for jobs in (1, 2)
        }
        times: dict[Any, list[float]] = {key: [] for key in models}
        for _ in range(repeats + 1):  # the first of each compiles
            for key, model in models.items():
                times[key] += seconds_of(lambda m=model, X=X, y=y: m.fit(X, y), 1)
        for cv in folds:
            found = [np.array(times[cv, jobs][1:]) * 1e3 for jobs in (1, 2)]
            print(
                name, "one fit" if cv is None else f"{cv} folds", *(f"{f.min():.2f} {np.median(f):.2f}" for f in found)
            )


MEMORY_CHILD = """
import sys, numpy as np, knotwork as kw
def status(key):
    return next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith(key)) * 1024
n, d = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
kw.MarsRegressor().fit(rng.normal(size=(1000, 3)), rng.normal(size=1000))
X = rng.normal(size=(n, d)); y = np.sin(X[:, 0]) + rng.normal(size=n)
open('/proc/self/clear_refs', 'w').write('5')
before = status('VmRSS')
kw.MarsRegressor(max_terms=61, threshold=0.0).fit(X, y)
print((status('VmHWM') - before) / X.nbytes)
"""


def memory() -> None:
    table = Table(title="Peak memory of a fit on top of the table, as a share of the float64 table (61 terms)")
    for name in ("data", "peak / table"):
        table.add_column(name)
    for n, d in [(1_000_000, 10), (500_000, 20), (100_000, 100)]:
        out = subprocess.run(
            [sys.executable, "-c", MEMORY_CHILD, str(n), str(d)], check=True, capture_output=True, text=True
        )
        table.add_row(f"{n}x{d}", f"{float(out.stdout):.2f}")
    console.print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without-earth", action="store_true")
    parser.add_argument("--threads", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    if args.threads:
        threads()
    elif args.markdown:
        against_earth(markdown=True)
    else:
        if not args.without_earth:
            against_earth(markdown=False)
        growth()
        memory()
