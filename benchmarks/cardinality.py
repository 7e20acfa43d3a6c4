"""Text columns of many levels: what they cost, and whether they leak the response.

    python benchmarks/cardinality.py size                        # MarsRegressor, 25 000 to 200 000 rows; a minute
    python benchmarks/cardinality.py leak --out leak.jsonl       # four estimators, 20 seeds; it goes on from there
    python benchmarks/cardinality.py leak --estimators SplineNetRegressor --device cuda --jobs 12 --out net.jsonl
    python benchmarks/cardinality.py leak --show --out leak.jsonl --more net.jsonl

``size`` fits 20 columns, five of them text with half as many levels as rows (100 000 at 200 000 rows), and shows the
median time of three fits and the peak memory above what the process held before, table included. Each size has a
process of its own, after a small fit of the same kind, so that kernels are compiled. Linux only (see ``memory.py``).

``leak`` fits 5000 rows whose response does not depend on a text column of 1000 levels, with and without that column:
Friedman's first function of ten uniform features, plus noise of std 1, or two classes by whether a logistic variable
lies below the same function. The error on 5000 test rows (RMSE, log-loss) with the column over that without is 1 when
nothing leaks; an encoder that shows training rows their own response lies far above.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.table import Table
from sklearn.metrics import log_loss, root_mean_squared_error

import knotwork as kw
import pieces
from memory import kilobytes

SIZES = (25_000, 50_000, 100_000, 200_000)
COLUMNS, TEXTS = 20, 5
ROWS, LEVELS, FEATURES = 5000, 1000, 10
ESTIMATORS = ("MarsRegressor", "MarsClassifier", "SplineNetRegressor", "SplineNetClassifier")


def wide_table(rows: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Return columns whose numbers bend the response and whose levels shift it."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {f"number {i}": rng.normal(size=rows) for i in range(COLUMNS - TEXTS)}
    y = rng.normal(size=rows) + sum(np.abs(column) for column in columns.values())
    for i in range(TEXTS):
        codes = rng.permutation(rows) // 2  # every level twice
        y += rng.normal(size=rows // 2)[codes]
        columns[f"text {i}"] = np.char.add("level ", codes.astype(str)).astype(object)
    return pd.DataFrame(columns), y


def measure(rows: int) -> tuple[float, float]:
    """Return the median seconds of three fits and the peak MB of one, above the table."""
    kw.MarsRegressor().fit(*wide_table(2000))
    X, y = wide_table(rows)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = kilobytes("VmRSS")
    kw.MarsRegressor().fit(X, y)
    peak = (kilobytes("VmHWM") - before) / 1e3
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        kw.MarsRegressor().fit(X, y)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), peak


def size(sizes: list[int], console: Console) -> None:
    table = Table(title=f"MarsRegressor, {COLUMNS} columns, {TEXTS} of them text with a level for every two rows")
    for head in ("rows", "levels", "seconds", "µs a row", "peak MB above the table", "kB a row"):
        table.add_column(head, justify="right")
    for rows in sizes:
        command = [sys.executable, __file__, "one", "--sizes", str(rows)]
        seconds, peak = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        table.add_row(
            f"{rows}", f"{rows // 2}", f"{seconds:.2f}", f"{1e6 * seconds / rows:.1f}", f"{peak:.0f}",
            f"{1e3 * peak / rows:.2f}",
        )  # fmt: skip
    console.print(table)


def leak_table(estimator: str, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    U = rng.random((2 * ROWS, FEATURES))
    y = 10 * np.sin(np.pi * U[:, 0] * U[:, 1]) + 20 * (U[:, 2] - 0.5) ** 2 + 10 * U[:, 3] + 5 * U[:, 4]
    y = (rng.logistic(size=len(y)) < y - 14.4).astype(int) if "Class" in estimator else y + rng.normal(size=len(y))
    X = pd.DataFrame(U, columns=[f"number {i}" for i in range(FEATURES)])
    X["text"] = np.char.add("level ", rng.integers(LEVELS, size=len(X)).astype(str)).astype(object)
    return X, y


def leak(estimator: str, seed: int, column: bool, device: str | None) -> dict[str, Any]:
    torch.set_num_threads(1)
    X, y = leak_table(estimator, seed)
    if not column:
        X = X.drop(columns="text")
    options: dict[str, Any] = {"random_state": seed, "device": device} if "Net" in estimator else {}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model = getattr(kw, estimator)(n_jobs=1, **options).fit(X[:ROWS], y[:ROWS])
        test = X[ROWS:]
        if "Class" in estimator:
            error = log_loss(y[ROWS:], model.predict_proba(test))
        else:
            error = root_mean_squared_error(y[ROWS:], model.predict(test))
    return {"estimator": estimator, "seed": seed, "column": column, "error": float(error),
            "warnings": sorted({str(w.message)[:300] for w in said})}  # fmt: skip


def leaks(chosen: argparse.Namespace, console: Console) -> None:
    asked = [(e, seed, column) for e in chosen.estimators for seed in chosen.seeds for column in (True, False)]
    records = pieces.read([*chosen.more, chosen.out])
    if not chosen.show:
        done = {(r["estimator"], r["seed"], r["column"]) for r in records}
        todo = [(*task, chosen.device) for task in asked if task not in done]
        records += pieces.run(leak, todo, chosen.jobs, chosen.out, console)
    results = {(r["estimator"], r["seed"], r["column"]): r["error"] for r in records}
    table = Table(title=f"Test error with a text column of {LEVELS} levels that says nothing, and without, {ROWS} rows")
    for head in ("estimator", "seeds", "with", "without", "with / without", "worst seed"):
        table.add_column(head, justify="left" if head == "estimator" else "right")
    for e in chosen.estimators:
        both = [seed for seed in chosen.seeds if (e, seed, True) in results and (e, seed, False) in results]
        if not both:
            continue
        pairs = np.array([[results[e, seed, True], results[e, seed, False]] for seed in both])
        mean, worst = pairs.mean(axis=0), (pairs[:, 0] / pairs[:, 1]).max()
        table.add_row(
            e, f"{len(both)}", f"{mean[0]:.4f}", f"{mean[1]:.4f}", f"{mean[0] / mean[1]:.4f}", f"{worst:.4f}"
        )  # fmt: skip
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("size", "leak", "one"), help="one: time and memory of one size, as JSON")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="rows")
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=list(ESTIMATORS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(20)))
    parser.add_argument("--device", default=None, help="where SplineNet trains; by default its own choice")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="a line of JSON a run; it goes on from there")
    parser.add_argument("--more", nargs="*", type=Path, default=[], help="files of other machines, to show as well")
    parser.add_argument("--show", action="store_true", help="leak: run nothing, show what the files have")
    chosen = parser.parse_args()
    console = Console(width=120)
    if chosen.part == "one":
        print(json.dumps(measure(chosen.sizes[0])))
    elif chosen.part == "size":
        size(chosen.sizes, console)
    else:
        leaks(chosen, console)


if __name__ == "__main__":
    main()
