"""What a GPU gains: spline fits from tensors there, and training, beside all cores of the same machine.

    python benchmarks/gpu.py                     # needs a CUDA device with 60 GB; --rows 1e6 1e7 for smaller ones

Splines: float32 columns on the device in, coefficients out, 61 terms, the minimum of three fits after a first one.
Training: SplineNetRegressor, 500 000 × 20, default settings but for the number of epochs; seconds an epoch.
"""

from __future__ import annotations

import argparse
import gc
import time

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import knotwork as kw

TERMS = 61


def data(rows: int, features: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Uniform features, a sum of sines of the first ten, noise of std 1."""
    generator = torch.Generator("cuda").manual_seed(0)
    X = torch.rand(rows, features, device="cuda", generator=generator)
    y = torch.randn(rows, device="cuda", generator=generator)
    for f in range(min(features, 10)):
        y += torch.sin(6 * X[:, f] * (1 + 0.3 * f)) * (1 + 0.2 * f)
    return X, y


def seconds(X: object, y: object, repeats: int) -> tuple[float, float]:
    """Return the shortest time of a fit, after a first one, and its RSS."""
    times = []
    for _ in range(repeats + 1):
        model = kw.MarsRegressor(max_terms=TERMS, threshold=0.0)
        torch.cuda.synchronize()
        start = time.perf_counter()
        model.fit(X, y)
        times.append(time.perf_counter() - start)
    return min(times[1:]), model.rss_


def splines(sizes: list[tuple[int, int]], cpu_values: int) -> Table:
    table = Table("rows × features", "GPU s", "CPU s", "CPU / GPU", "RSS, GPU / CPU", title="MarsRegressor, 61 terms")
    for rows, features in sizes:
        X, y = data(rows, features)
        gpu, rss = seconds(X, y, 3)
        cells = [f"{rows:,} × {features}", f"{gpu:.3f}", "", "", ""]
        if rows * features <= cpu_values:
            X, y = X.cpu().numpy(), y.cpu().numpy()
            cpu, cpu_rss = seconds(X, y, 1)
            cells[2:] = f"{cpu:.2f}", f"{cpu / gpu:.1f}", f"{rss / cpu_rss:.9f}"
        table.add_row(*cells)
        del X, y
        gc.collect()
        torch.cuda.empty_cache()
    return table


def training(rows: int, features: int, epochs: int) -> Table:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) + np.where(X[:, 4] > 0, X[:, 5], 0)
    y += 0.3 * rng.normal(size=rows)
    title = f"SplineNetRegressor, {rows:,} × {features}, {epochs} epochs"
    table = Table("device", "seconds an epoch", "validation loss", title=title)
    for device in ("cuda", "cpu"):
        history = kw.SplineNetRegressor(epochs=epochs, device=device, random_state=0).fit(X, y).history_
        each = float(np.median(np.diff(history.seconds)))
        table.add_row(device, f"{each:.2f}", f"{history.validation_loss[-1]:.5f}")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--rows", type=float, nargs="*", default=[1e6, 1e7, 1e8], help="rows of tables with 10 features"
    )
    parser.add_argument("--wide", type=float, default=1e7, help="rows of the table with 50 features")
    parser.add_argument("--cpu-values", type=float, default=6e8, help="values of a table up to which the CPU runs too")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    console = Console(width=100)
    sizes = [(int(rows), 10) for rows in args.rows] + [(int(args.wide), 50)]
    console.print(splines(sizes, int(args.cpu_values)))
    console.print(training(500_000, 20, args.epochs))


if __name__ == "__main__":
    main()
