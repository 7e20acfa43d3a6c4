"""The check of a file before it appears: our own prediction on rows where the model bends, relative to its parts."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from knotwork.arrays import Floats
from knotwork.errors import NetworkError, ScaleWarning
from knotwork.export.subject import MAX_ROUNDING, Precision, Subject

ROWS = 512
# Rounding error that a file may have, for each layer, as a share of the size of the network's parts.
ROUNDING = {"float32": 1e-6, "float64": 1e-12}


@dataclass(frozen=True)
class Exported:
    """A file that was written, and its maximum difference from our prediction on the rows of the check.

    inputs : encoded features that it takes as one matrix, or columns of a table; outputs : numbers of a prediction
    input_names, output_names : of the file's tensors, in order
    dtype : of its weights and outputs
    """

    path: Path
    inputs: int
    outputs: int
    rows: int
    largest_difference: float
    input_names: tuple[str, ...] = ("features",)
    output_names: tuple[str, ...] = ("prediction",)
    dtype: Precision = "float32"


def check(
    subject: Subject, dtype: Precision, path: Path, rows: Floats, found: NDArray[Any], expected: Floats
) -> tuple[float, Floats]:
    """Compare a file's results with ours, relative to the size of the parts: they may be large and cancel.

    rows : encoded features (N, d); found, expected : (N, outputs)

    Returns the maximum difference, and what rounding may explain: (N, outputs).
    """
    size, depth = _size_of_parts(subject, rows, ROUNDING[dtype])
    with np.errstate(invalid="ignore"):
        difference = np.abs(found - expected)
    allowed = depth * ROUNDING[dtype] * size
    if not (difference <= allowed).all():  # NaN is not
        worst = int(np.argmax(np.where(np.isnan(difference), np.inf, difference - allowed).max(axis=1)))
        raise NetworkError(
            f"an exported file must give our prediction, {path.name} was off by {difference[worst].max():.3g} where "
            f"rounding explains {allowed[worst].max():.3g}, and was not written; "
            f"{'try float64' if dtype == 'float32' else 'please report it'}"
        )
    return float(difference.max()), allowed


def check_features(
    subject: Subject, dtype: Precision, path: Path, run: Callable[[NDArray[Any]], NDArray[Any]]
) -> Exported:
    """Check a file that takes encoded features."""
    rows = rows_around_the_kinks(subject).astype(dtype)
    wide = rows.astype(np.float64)
    largest, _ = check(subject, dtype, path, wide, run(rows), subject.parts(wide))
    warn_of_rounded_rows(subject, dtype)
    names = ("features",), (subject.output,)
    return Exported(path, subject.inputs, subject.outputs, len(rows), largest, *names, dtype)


def warn_of_rounded_rows(subject: Subject, dtype: Precision) -> None:
    """Say which columns lie so far from zero that rows of this precision no longer tell their values apart."""
    lost = subject.rounding(dtype)  # in stds
    if lost.max(initial=0.0) > MAX_ROUNDING:
        names = subject.about.get("feature_names", [f"x{k}" for k in range(subject.inputs)])
        warnings.warn(
            f"rows of {dtype} round column {names[int(lost.argmax())]!r}, which lies far from zero, by "
            f"{lost.max():.2g} of its std, and the predictions with it; export with dtype='float64'",
            ScaleWarning,
            stacklevel=5,
        )


def rows_around_the_kinks(subject: Subject) -> Floats:
    """Make rows where the first layer bends: features near the points where its units are zero, on both sides."""
    rng = np.random.default_rng(0)
    first = subject.chain.layers[0]
    weight, bias = first.weight.numpy(), first.bias.numpy()
    norms = (weight**2).sum(axis=1)
    used = norms > 0
    points = -bias[used, None] * weight[used] / norms[used, None]
    rows = rng.normal(size=(ROWS, subject.inputs))
    for feature in range(subject.inputs):
        pool = points[weight[used][:, feature] != 0, feature]
        if pool.size:
            rows[:, feature] = rng.choice(pool, ROWS) + rows[:, feature] * (pool.std() or abs(pool[0]) or 1.0)
    return subject.chain.coordinates.inverse.features(rows)


def _size_of_parts(subject: Subject, rows: Floats, rounding: float) -> tuple[Floats, int]:
    """Run the layers on absolute values: return the maximum that the parts of each output add up to, and the layers."""
    c = subject.chain.coordinates
    # Far from zero our own evaluation rounds the rows, too: by their last bit.
    last_bit = float(np.finfo(np.float64).eps) * np.abs(rows) / c.x_scale
    size, depth = np.abs(c.features(rows)) + last_bit / rounding, 0
    for layer in subject.layers:
        if isinstance(layer, tuple):
            weight, bias = layer
            size, depth = size @ np.abs(weight).T + np.abs(bias), depth + 1
        else:
            # All of these grow away from zero, so |act(u)| for |u| ≤ size has its maximum at an end.
            size = np.maximum(np.abs(_activate(layer, size)), np.abs(_activate(layer, -size)))
    return size * c.y_scale + np.abs(c.y_centre), depth


def _activate(module: nn.Module, values: Floats) -> Floats:
    with torch.no_grad():
        result: Floats = module.to("cpu", torch.float64)(torch.from_numpy(values)).numpy()
    return result
