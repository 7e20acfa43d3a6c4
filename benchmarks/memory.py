"""Peak memory of fits and predictions above what the process held before the call, over the bytes of X in float64.

    python benchmarks/memory.py                    # every case at 2 000 000 × 10 and 500 000 × 20; a quarter of an hour
    python benchmarks/memory.py --cases additive predict --sizes 500000x20
    python -m benchmarks.figures keep memory -- .venv/bin/python benchmarks/memory.py

Every case runs in a process of its own, after a small one of the same kind: compiling and loading libraries take
memory once, whatever the table. Linux only, because the peak is set back just before the call (/proc/self/clear_refs).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import knotwork as kw

SIZES = ("2000000x10", "500000x20")
# What each case is called, and the peak over X.nbytes that docs/guarantees.md promises.
LIMITS = {
    "additive": ("`MarsRegressor`, 61 terms", 2.5),
    "interactions": ("`max_degree=2`", 4.0),
    "products": ("`max_degree=2`, products", 4.0),
    "classes": ("`MarsClassifier`, two classes", 2.5),
    "splinenet": ("`SplineNetRegressor`, 2 epochs", 5.0),
    "splinenet start": ("`SplineNetRegressor`, no epoch", 5.0),
    "predict": ("`predict` of a spline", 2.0),
    "predict interactions": ("`predict`, `max_degree=2`", 2.0),
    "predict splinenet": ("`predict` of a network", 2.0),
}


def table_of(rows: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Curves in all features, an interaction of two, and noise: every search goes on to its limit of terms."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features))
    y = rng.normal(size=rows)
    for f in range(features):
        y += np.sin((1 + f % 4) * X[:, f]) / (1 + f / 4)
    y += X[:, 0] * X[:, 1]
    return X, y


def call_of(case: str, X: np.ndarray, y: np.ndarray) -> Callable[[], object]:
    """Return what is measured; what it needs is made before."""
    match case:
        case "additive":
            return lambda: kw.MarsRegressor(max_terms=61, threshold=0.0).fit(X, y)
        case "interactions":
            return lambda: kw.MarsRegressor(max_degree=2, threshold=0.0).fit(X, y)
        case "products":
            return lambda: kw.MarsRegressor(max_degree=2, interaction="product", threshold=0.0).fit(X, y)
        case "classes":
            labels = (y > 0).astype(int)
            return lambda: kw.MarsClassifier().fit(X, labels)
        case "splinenet":
            return lambda: kw.SplineNetRegressor(epochs=2, batch_size=1024, random_state=0).fit(X, y)
        case "splinenet start":
            return lambda: kw.SplineNetRegressor(epochs=0, random_state=0).fit(X, y)
    few = slice(0, 5_000)
    if case == "predict splinenet":
        model: kw.MarsRegressor | kw.SplineNetRegressor = kw.SplineNetRegressor(epochs=0, random_state=0)
    else:
        model = kw.MarsRegressor(max_degree=2 if case == "predict interactions" else 1)
    model.fit(X[few], y[few])
    return lambda: model.predict(X)


def kilobytes(key: str) -> int:
    """Return an entry of the process's status: VmRSS is the memory now, VmHWM its peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))


def peak_ratio(case: str, rows: int, features: int) -> float:
    """Measure one case in this process."""
    call_of(case, *table_of(3000, features))()
    X, y = table_of(rows, features)
    call = call_of(case, X, y)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = kilobytes("VmRSS")
    call()
    return 1024 * (kilobytes("VmHWM") - before) / X.nbytes


def measure(case: str, size: str) -> float:
    """Measure one case in a process of its own; what ends that process is said."""
    command = [sys.executable, __file__, "--one", "--cases", case, "--sizes", size]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{case}, {size}: exit code {done.returncode}\n{done.stderr}")
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=LIMITS, default=list(LIMITS))
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), help="rows x features")
    parser.add_argument("--one", action="store_true", help="measure the first case here and print its number alone")
    chosen = parser.parse_args()
    sizes = [tuple(map(int, size.split("x"))) for size in chosen.sizes]
    if chosen.one:
        print(peak_ratio(chosen.cases[0], *sizes[0]))
        return
    columns = [f"{rows:,} × {features}".replace(",", " ") for rows, features in sizes]
    print(f"| {' | '.join(['case', *columns, 'limit'])} |\n{'|---' * (2 + len(columns))}|", flush=True)
    for case in chosen.cases:
        name, limit = LIMITS[case]
        ratios = [f"{measure(case, size):.2f}" for size in chosen.sizes]
        print(f"| {' | '.join([name, *ratios, f'{limit:g}'])} |", flush=True)


if __name__ == "__main__":
    main()
