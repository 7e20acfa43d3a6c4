"""What a GPU gains: spline fits from tensors there, and training, beside all cores of the same machine.

    python benchmarks/gpu.py                     # needs a CUDA device with 60 GB; under 8 minutes beside 16 cores
    python benchmarks/gpu.py --rows 1e6 1e7 --wide 1e6
    python -m benchmarks.figures keep gpu -- python benchmarks/gpu.py     # the table of the docs

Splines: float32 columns on the device in, coefficients out, 61 terms, the minimum of three fits after a first one: 100
million × 10 on the GPU, 10 million × 50 on both.
Training: SplineNetRegressor, 500 000 × 20, default settings; fewer epochs, on both, where the CPU would take longer
than --budget seconds. Compared is the time until both have the same validation loss, the lowest that both reach.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

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


def splines(sizes: list[tuple[int, int]], cpu_values: int) -> list[list[str]]:
    """Return a line for each size: GPU, CPU, CPU / GPU, and whether both end at the same RSS."""
    lines = []
    for rows, features in sizes:
        X, y = data(rows, features)
        gpu, rss = seconds(X, y, 3)
        line = [f"{rows / 1e6:g} million × {features}", f"{gpu:.2f} s", "", "", ""]
        if rows * features <= cpu_values:
            X, y = X.cpu().numpy(), y.cpu().numpy()
            cpu, cpu_rss = seconds(X, y, 1)
            line[2:] = f"{cpu:.2f} s", f"{cpu / gpu:.1f}", f"RSS, GPU / CPU: {rss / cpu_rss:.9f}"
        lines.append(line)
        del X, y
        gc.collect()
        torch.cuda.empty_cache()
    return lines


def problem(rows: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, features))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.abs(X[:, 3]) + np.where(X[:, 4] > 0, X[:, 5], 0)
    return X, y + 0.3 * rng.normal(size=rows)


def seconds_to(history: object, level: float) -> float:
    """Seconds of training until the validation loss is at a level for the first time."""
    at = int(np.argmax(np.array(history.validation_loss) <= level))
    return float(history.seconds[at])


def training(rows: int, features: int, budget: float) -> list[list[str]]:
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

    def line(name: str, of: Callable[[Any, float], float], note: str = "") -> list[str]:
        gpu, cpu = (of(*found[device]) for device in ("cuda", "cpu"))
        ratio = f"{cpu / gpu:.1f}" if gpu > 0 else "the start is the best epoch"
        return [name, f"{gpu:.3g} s", f"{cpu:.3g} s", ratio, note]

    losses = ["", *(f"{min(found[device][0].validation_loss):.5f}" for device in ("cuda", "cpu")), "", settings]
    losses[0] = f"its lowest validation loss, {epochs} epochs"
    return [
        line(
            f"an epoch of `SplineNetRegressor`, {rows // 1000} 000 × {features}",
            lambda history, _: float(np.median(np.diff(history.seconds))),
        ),
        line(
            "its training until both have the same validation loss",
            lambda history, _: seconds_to(history, level),
            f"{level:.5f}",
        ),
        line(f"its whole fit, {epochs} epochs", lambda _, whole: whole),
        losses,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="*", default=[1e8, 1e7], help="rows of tables with 10 features")
    parser.add_argument("--wide", type=float, nargs="*", default=[1e7], help="rows of tables with 50 features")
    parser.add_argument("--cpu-values", type=float, default=6e8, help="values of a table up to which the CPU runs too")
    parser.add_argument("--budget", type=float, default=150.0, help="seconds of training on the CPU")
    args = parser.parse_args()
    sizes = [*((int(rows), 10) for rows in args.rows), *((int(rows), 50) for rows in args.wide)]
    head = ["61 terms, float32 columns on the device", "GPU", "CPU", "CPU / GPU", "notes"]
    lines = [head, *splines(sizes, int(args.cpu_values)), *training(500_000, 20, args.budget)]
    print(f"{torch.cuda.get_device_name()}, {thread_count(None)} CPU threads\n")
    notes = [f"{line[0]}: {line[4]}" for line in lines[1:] if line[4]]
    lines = [line[:4] for line in lines]
    lines.insert(1, ["---"] * 4)
    print("\n".join(f"| {' | '.join(line)} |" for line in lines))
    print("", *notes, sep="\n")


if __name__ == "__main__":
    main()
