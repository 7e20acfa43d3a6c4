"""Spline start against random weights: the same estimator, rows, validation rows, recipe and seed, one member.

A row has both runs. "Time to match" is when the spline's run first has a validation loss as low as the least that
the random run ever has, the spline's own fit counted in; it is empty where that never happens. It is compared with the
time when the random run has that loss. Times are wall-clock within a fit, scaled to the CPU time of the whole fit: run
this on a machine that does nothing else.
"""

from __future__ import annotations

import csv
import time
import traceback
import warnings
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from .catalogue import TABLES
from .load import load, load_split
from .measure import class_errors, rmse
from .models import class_probabilities, own, version_of


@dataclass(frozen=True)
class Pair:
    """Test errors, seconds of the whole fits, and seconds to the random run's least validation loss."""

    table: str
    split: int
    seed: int
    spline_error: float
    random_error: float
    spline_seconds: float
    random_seconds: float
    spline_to_match: float | None
    random_to_best: float
    version: str


@dataclass(frozen=True)
class Run:
    """One fit: its test error, its seconds, and when each epoch ended with which validation loss."""

    error: float
    seconds: float
    times: np.ndarray
    losses: np.ndarray


def run(out: Path, tables: list[str], splits: list[int], seeds: list[int], device: str = "cpu") -> None:
    done = read(out)
    have = set(zip(done.table, done.split, done.seed, strict=True))
    for split in splits:
        for table in tables:
            for seed in seeds:
                if (table, split, seed) in have:
                    continue
                try:
                    pair = compare(table, split, seed, device)
                except Exception:
                    print(f"{table} {split} {seed}: failed\n{traceback.format_exc(limit=-3)}", flush=True)
                    continue
                _append(out, pair)
                print(f"{table} {split} {seed}: {pair.spline_error / pair.random_error:.3f}", flush=True)


def compare(table: str, split: int, seed: int, device: str = "cpu") -> Pair:
    spline, random = (_fit(table, split, seed, name, device) for name in ("net_1", "net_random"))
    best = int(random.losses.argmin())
    return Pair(
        table, split, seed, spline.error, random.error, spline.seconds, random.seconds,
        first_time(spline, float(random.losses[best])), float(random.times[best]), version_of("net_1"),
    )  # fmt: skip


def first_time(run: Run, loss: float) -> float | None:
    """Return when a run's validation loss is first at most ``loss``, or None."""
    reached = np.flatnonzero(run.losses <= loss)
    return float(run.times[reached[0]]) if len(reached) else None


def _fit(table: str, split: int, seed: int, name: str, device: str) -> Run:
    regression = TABLES[table].task == "regression"
    train, test = load_split(table, split)
    model: Any = own(name, regression, seed, device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clock, cpu = time.perf_counter(), time.process_time()
        model.fit(train.X, train.y)
        clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
        if regression:
            error = rmse(test.y, model.predict(test.X))
        else:
            classes = np.unique(train.y)
            error = class_errors(test.y, class_probabilities(model, test.X, classes), classes)[0]
    seconds = np.asarray(model.history_.seconds)
    times = (clock - seconds[-1] + seconds) * cpu / clock
    return Run(error, cpu, times, np.asarray(model.history_.validation_loss))


def _append(path: Path, pair: Pair) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Pair)], lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in asdict(pair).items()})


def read(path: Path) -> pd.DataFrame:
    if not path.exists():
        return pd.DataFrame(columns=[field.name for field in fields(Pair)])
    return pd.read_csv(path).drop_duplicates(["table", "split", "seed"], keep="last").reset_index(drop=True)


def summary(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return a row per table: spline over random in the mean, whether it is lower or within the standard error of the
    paired differences, and the median of the time to match over random's (never is infinite)."""
    rows = {}
    for table, some in pairs.groupby("table"):
        difference = np.log(some.spline_error) - np.log(some.random_error)
        standard_error = difference.std(ddof=1) / np.sqrt(len(some)) if len(some) > 1 else np.nan
        ratio = some.spline_to_match.fillna(np.inf) / some.random_to_best
        rows[table] = {
            "runs": len(some),
            "ratio": some.spline_error.mean() / some.random_error.mean(),
            "holds": bool(difference.mean() <= 0 or difference.mean() <= standard_error),
            "time": float(ratio.median()),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def report(out: Path) -> str:
    pairs = read(out)
    if pairs.empty:
        return "no results yet"
    tables = summary(pairs)
    kinds = pd.Series({name: _kind(str(name)) for name in tables.index})
    lines = ["| table | runs | spline / random | lower or within the standard error | time to match / random's |",
             "|---|---:|---:|---|---:|"]  # fmt: skip
    for name, row in tables.iterrows():
        lines.append(f"| {name} | {row.runs} | {row.ratio:.3f} | {'yes' if row.holds else 'no'} | {row.time:.2f} |")
    lines += [
        "",
        f"Lower or within the standard error on {int(tables.holds.sum())} of {len(tables)} tables; "
        f"worst mean ratio {tables.ratio.max():.3f}.",
    ]
    for kind in kinds.unique():
        some = pairs[pairs.table.map(kinds) == kind]
        ratio = some.spline_to_match.fillna(np.inf) / some.random_to_best
        lines.append(f"Time to match over random's, {kind}: median {ratio.median():.2f} of {len(some)} runs.")
    return "\n".join(lines)


def _kind(table: str) -> str:
    if TABLES[table].task == "regression":
        return "regression"
    return "two classes" if len(np.unique(load(table).y)) == 2 else "more classes"
