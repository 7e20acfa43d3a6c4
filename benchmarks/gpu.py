"""What a GPU gains: spline fits from tensors there, and training, beside all cores of the same machine.

    python benchmarks/gpu.py                     # needs a CUDA device with 60 GB; under 8 minutes beside 16 cores
    python benchmarks/gpu.py --rows 1e6 1e7 --wide 1e6

Splines: float32 columns on the device in, coefficients out, 61 terms, the minimum of three fits after a first one: 100
million × 10 on the GPU, 10 million × 50 on both.
Training: SplineNetRegressor, 500 000 × 20, default settings; fewer epochs, on both, where the CPU would take longer
than --budget seconds. Compared is the time until both have the same validation loss, the lowest that both reach.
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
from knotwork.compute.workers import thread_count

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


def problem(rows: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) + np.where(X[:, 4] > 0, X[:, 5], 0)
    return X, y + 0.3 * rng.normal(size=rows)


def seconds_to(history: object, level: float) -> float:
    """Seconds of training until the validation loss is at a level for the first time."""
    at = int(np.argmax(np.array(history.validation_loss) <= level))
    return float(history.seconds[at])


def training(rows: int, features: int, budget: float) -> Table:
    """Train on both devices, with as many epochs as the CPU has time for; compare the time to one validation loss."""
    X, y = problem(rows, features)
    probe = kw.SplineNetRegressor(epochs=1, device="cpu", random_state=0).fit(X, y).history_
    default = kw.SplineNetRegressor().epochs
    epochs = int(min(default, max(2, budget / max(probe.seconds[-1], 1e-3))))
    settings = "default settings" if epochs == default else f"default settings but {epochs} epochs of {default}"
    found = {}
    for device in ("cuda", "cpu"):
        if device == "cuda":  # the first launches compile
            kw.SplineNetRegressor(epochs=1, device=device, random_state=0).fit(X[:20_000], y[:20_000])
        start = time.perf_counter()
        model = kw.SplineNetRegressor(epochs=epochs, device=device, random_state=0).fit(X, y)
        found[device] = model.history_, time.perf_counter() - start
    # The lowest loss that both reach.
    level = max(min(history.validation_loss) for history, _ in found.values())
    table = Table(
        "device", "whole fit s", "training s", "s an epoch", "lowest validation loss", f"s to {level:.5f}",
        title=f"SplineNetRegressor, {rows:,} × {features}, {settings}",
    )  # fmt: skip
    for device, (history, whole) in found.items():
        table.add_row(
            device, f"{whole:.1f}", f"{history.seconds[-1]:.1f}", f"{np.median(np.diff(history.seconds)):.3f}",
            f"{min(history.validation_loss):.5f}", f"{seconds_to(history, level):.2f}",
        )  # fmt: skip
    gpu, cpu = (seconds_to(found[device][0], level) for device in ("cuda", "cpu"))
    ratio = f"{cpu / gpu:.1f}" if gpu > 0 else "the start is the best epoch"
    table.add_row("CPU / GPU", f"{found['cpu'][1] / found['cuda'][1]:.1f}", "", "", "", ratio)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="*", default=[1e8], help="rows of tables with 10 features")
    parser.add_argument("--wide", type=float, nargs="*", default=[1e7], help="rows of tables with 50 features")
    parser.add_argument("--cpu-values", type=float, default=6e8, help="values of a table up to which the CPU runs too")
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of training on the CPU")
    args = parser.parse_args()
    console = Console(width=120)
    print(f"{torch.cuda.get_device_name()}, {thread_count(None)} CPU threads", flush=True)
    sizes = [*((int(rows), 10) for rows in args.rows), *((int(rows), 50) for rows in args.wide)]
    console.print(splines(sizes, int(args.cpu_values)))
    console.print(training(500_000, 20, args.budget))


if __name__ == "__main__":
    main()
