"""Seconds: of the spline, of making the network, of one epoch of either start; and how they grow.

Timed in one process of one thread with nothing else of ours running. Each time is the minimum of several repeats: a
shared machine only adds time. ``where`` names the machine, so that no other machine reuses its seconds.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from knotwork.arrays import Floats
from knotwork.experiments.protocol import FILL, Plan, Rows, Split, split
from knotwork.experiments.runs import (
    converted_network,
    fit_start_spline,
    options_of,
    random_network,
    tensors,
)
from knotwork.network.train.loop import fit_network
from knotwork.spline.fit import AUTO_KNOTS, FitOptions, fit_spline

EPOCHS = 5


def min_seconds(work: Callable[[], object], repeats: int) -> float:
    """Minimum wall-clock time of several calls, after one that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def epoch_seconds(make: Callable[[], nn.Sequential], data: Split, plan: Plan, repeats: int) -> float:
    """Seconds of one epoch of training, with its look at the training and validation errors."""
    training, validation = tensors(data.train), tensors(data.validation)
    options = options_of(plan, 1e-3, EPOCHS)

    def epochs() -> float:
        seconds = fit_network(make(), training, validation, options, seed=0).history.seconds
        return min(np.diff(seconds))

    return min(epochs() for _ in range(repeats))


def seconds(plan: Plan, where: str, data: str) -> dict[str, Any]:
    """Time the steps of a start, with the plan's shape."""
    rows = split(data, 0)
    features = rows.train.x.shape[1]
    spline = fit_start_spline(rows.train, rows.names, plan.widths[0])

    def convert() -> nn.Sequential:
        return converted_network(spline, rows.train, plan.widths, FILL["converted"], 0)

    return {
        "spline": min_seconds(lambda: fit_start_spline(rows.train, rows.names, plan.widths[0]), plan.repeats),
        "construct": min_seconds(convert, plan.repeats),
        "construct_random": min_seconds(lambda: random_network(features, plan.widths, 0), plan.repeats),
        "epoch_converted": epoch_seconds(convert, rows, plan, plan.repeats),
        "epoch_random": epoch_seconds(lambda: random_network(features, plan.widths, 0), rows, plan, plan.repeats),
        "rows": len(rows.train),
        "terms": len(spline.terms),
    }


def additive(n: int, d: int, seed: int = 0) -> Rows:
    """Made-up rows: a smooth additive truth in all features, with noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    y = sum(np.sin((1 + f % 4) * x[:, f]) / (1 + f / 4) for f in range(d)) + 0.5 * rng.normal(size=n)
    return Rows(x, np.asarray(y)[:, None])


def published_cost(n: Floats, d: Floats, m: Floats) -> Floats:
    """N(d·M³ + M⁴), as published for first-order MARS."""
    return n * (d * m**3 + m**4)


def our_cost(n: Floats, d: Floats, m: Floats, k: Floats) -> Floats:
    """N·d·M + d·K·M² + M³, with K candidate knots a feature."""
    return n * d * m + d * k * m**2 + m**3


def fit_growth(plan: Plan, where: str) -> dict[str, Any]:
    """Time fits of growing N, d and M, one at a time; M is the number of terms of the forward pass."""
    scale = plan.growth
    base = {"n": int(20_000 * scale), "d": 10, "m": 21}
    sweeps = {
        "n": [int(v * scale) for v in (2_500, 10_000, 40_000, 160_000)],
        "d": [5, 10, 20, 40, 80][: 5 if scale >= 1 else 4],
        "m": [6, 11, 21, 41, 81][: 5 if scale >= 1 else 4],
    }
    result: dict[str, Any] = {"base": base}
    for name, values in sweeps.items():
        points = []
        for value in values:
            size = {**base, name: value}
            rows = additive(size["n"], size["d"])
            # Without a threshold the forward pass takes all the terms it may.
            options = FitOptions(max_terms=size["m"], threshold=0.0, threads=1, spacing="free")
            fitted = fit_spline(rows.x, rows.y, options=options)
            took = min_seconds(partial(fit_spline, rows.x, rows.y, options=options), max(3, plan.repeats // 3))
            # The spans allow so many knots; the fit prices no more than its maximum.
            spans, terms = fitted.selection.spans, len(fitted.selection.forward_terms) + 1
            knots = min(AUTO_KNOTS, (size["n"] - 2 * spans.endspan) // spans.minspan + 1)
            points.append({"n": size["n"], "d": size["d"], "m": terms, "k": knots, "seconds": took})
        result[name] = points
    return result


def weights_between(features: int, widths: tuple[int, ...]) -> int:
    """Σ aᵢ·aᵢ₊₁ over the layers, inputs and output included.

    >>> weights_between(10, (64, 64))
    4800
    """
    sizes = (features, *widths, 1)
    return sum(a * b for a, b in itertools.pairwise(sizes))


def epoch_growth(plan: Plan, where: str) -> dict[str, Any]:
    """Time epochs of growing N and of growing layers, one at a time."""
    scale = plan.growth
    base, shape = int(4_000 * scale), plan.widths
    cases = [("n", int(v * scale), shape) for v in (1_000, 4_000, 16_000)]
    cases += [("weights", base, (w, w)) for w in (16, 64, 256, 512)[: 4 if scale >= 1 else 3]]
    result: dict[str, Any] = {"n": [], "weights": [], "batch_size": plan.batch_size}
    for name, n, widths in cases:
        rows = additive(n, 10)
        data = Split(rows, rows.take(np.arange(min(n, 100))), rows, np.ones(n, dtype=bool), (), 1.0)
        took = epoch_seconds(lambda widths=widths: random_network(10, widths, 0), data, plan, 1)  # type: ignore[misc]
        result[name].append({"n": n, "weights": weights_between(10, widths), "widths": widths, "seconds": took})
    return result
