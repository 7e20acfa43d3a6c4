"""The results: a CSV with a row per table, split, model and number of training rows; runs append to it."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import pandas as pd

PATH = Path(__file__).with_name("results.csv")
KEY = ["table", "split", "model", "max_rows"]


@dataclass(frozen=True)
class Result:
    """One fit.

    max_rows : limit of the training rows; a split has at most 70 % of its table
    metric, error : "rmse" (in units of the response) or "log_loss" (nats) on the test rows
    error_rate : share of test rows with a wrong class; empty for regression
    fit_seconds, predict_seconds : CPU time on one thread, preparation of the table included
    version : of the model's package
    """

    table: str
    split: int
    model: str
    max_rows: int
    metric: str
    error: float
    error_rate: float | None
    fit_seconds: float
    predict_seconds: float
    version: str


def append(path: Path, result: Result) -> None:
    """Add a row, with the head if the file is new; one write, so that two runs may share a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = asdict(result) | {
        "error": f"{result.error:.6g}",
        "error_rate": "" if result.error_rate is None else f"{result.error_rate:.5f}",
        "fit_seconds": f"{result.fit_seconds:.3f}",
        "predict_seconds": f"{result.predict_seconds:.3f}",
    }
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Result)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(values)


def read(path: Path = PATH) -> pd.DataFrame:
    """Return the rows; of runs repeated, the last."""
    if not path.exists():
        return pd.DataFrame(columns=[field.name for field in fields(Result)])
    return pd.read_csv(path).drop_duplicates(KEY, keep="last").reset_index(drop=True)


def read_all(paths: list[Path]) -> pd.DataFrame:
    """Return the rows of several files; where two have the same run, the later file's counts."""
    return pd.concat([read(path) for path in paths]).drop_duplicates(KEY, keep="last").reset_index(drop=True)
