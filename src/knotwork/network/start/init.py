"""init_: set the weights of a user's own network, in place, to those of a spline of the data."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.data.sample import Sample
from knotwork.errors import NetworkError, ScaleWarning
from knotwork.network.activations import Activation
from knotwork.network.chain import Chain, build, flags_kept, write_layer_
from knotwork.network.reshape import FILLS
from knotwork.network.start.choose import THRESHOLD, StartOptions, StartTask, choose_start, units_of
from knotwork.network.start.find import find_chain
from knotwork.network.start.initial import spline_start
from knotwork.network.train.losses import LogLoss, SquaredError
from knotwork.network.train.targets import Target, read_target, to_numpy
from knotwork.parameters import checked, number, seed, text, whole
from knotwork.spline.model import Spline

# Rows on which the module is run to see that it computes the spline.
CHECKED_ROWS = 1024
# Ratio of the features' stds, or of a mean to its std, above which training is slow.
WILD = 1e3


@dataclass(frozen=True)
class InitReport:
    """What ``init_`` did.

    spline : what the module computes now, up to rounding (or the bound of a smooth activation)
    units : hidden units that the function needs, of each layer; the others are live and add nothing yet
    max_difference, mean_difference : |module − spline| on some of the rows
    seconds : time taken
    task : "regression" or "classification"
    classes : the labels in the order of the outputs (of two, the one output is the log-odds of the second)
    """

    spline: Spline
    units: tuple[int, ...]
    max_difference: float
    mean_difference: float
    seconds: float
    task: str = "regression"
    classes: tuple[Any, ...] | None = None


# What both init_ and init_head_ take.
START = {
    "task": text(), "fill": text(), "max_terms": whole().optional, "max_degree": whole(), "penalty": number().optional,
    "threshold": number().optional, "ridge": number().optional, "n_jobs": whole().optional,
}  # fmt: skip


@checked(**START, random_state=seed())
def init_(
    module: nn.Module,
    X: Any,
    y: Any,
    *,
    task: str = "auto",
    fill: str = "hinge",
    max_terms: int | None = None,
    max_degree: int = 1,
    penalty: float | None = None,
    threshold: float = THRESHOLD,
    ridge: float | None = None,
    sample_weight: ArrayLike | None = None,
    random_state: int | None = None,
    n_jobs: int | None = None,
) -> InitReport:
    """Set the weights of a network in place so that it computes a spline fitted to the data.

    Parameters
    ----------
    module : a chain of Linear layers with an activation in between (a module each, one for all, or ReLU called in
        ``forward``); Dropout, Flatten and Identity may stand anywhere, a ``Scaling`` at the ends. dtype, device and
        everything else about it stay as they are
    X, y : (N, …) and (N,) or (N, outputs), tensors or arrays, as the module will see them; for classes (N,) labels
    task : "regression", "classification" (the outputs become logits; one output distinguishes two classes) or "auto":
        classes if y is text or boolean, or whole numbers that name several outputs or are all 0 and 1
    fill, max_terms, penalty, threshold, ridge : as in ``SplineNetRegressor`` or ``SplineNetClassifier``; a ridge of
        None is 1e-3 for numbers and 1 for classes
    max_degree : maximum number of features in a term; each degree takes a hidden layer

    Returns
    -------
    InitReport. If anything is wrong an error says what, and the module is exactly as it was.

    Examples
    --------
    >>> import knotwork as kw
    >>> X, y = kw.datasets.load_wine_quality("red")
    >>> X = (X - X.mean()) / X.std()
    >>> net = nn.Sequential(nn.Linear(11, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    >>> report = init_(net, X, y, random_state=0)
    >>> report.max_difference < 1e-3
    True
    """
    start = time.perf_counter()
    require_options(fill, max_terms, max_degree, penalty, threshold, ridge)
    found = find_chain(module)
    linears, rule, scaling = found.linears, found.rule, found.scaling
    rows, target = _read(X, y, linears, task)
    weight = np.ones(len(rows)) if sample_weight is None else to_numpy(sample_weight, "sample_weight")
    if weight.shape != (len(rows),) or not np.isfinite(weight.sum()) or (weight <= 0).any():
        raise NetworkError(
            f"sample_weight must be positive, one per row ({len(rows)}), got shape {weight.shape} and a sum of "
            f"{weight.sum():g}"
        )
    sample = Sample(rows, target.values, weight)
    widths, outputs = tuple(layer.out_features for layer in linears[:-1]), linears[-1].out_features
    names = tuple(f"x{k}" for k in range(rows.shape[1]))
    start_task = start_task_of(sample, target, outputs, names, widths, rule, weighted=sample_weight is not None)
    c = start_task.coordinates
    _warn_of_scales(c if scaling is None else c.relative_to(scaling))
    spline = choose_start(
        start_task,
        StartOptions(max_terms, max_degree, penalty, threshold, "auto" if ridge is None else ridge, n_jobs),
    )
    chain = spline_start(spline, c, rows, widths, rule, fill, np.random.default_rng(random_state)).with_scaling(c)
    chain = chain.folded() if scaling is None else chain.in_coordinates(scaling).with_scaling(scaling)
    shown = _shown(module, X, rounded=found.x_scaling is None)
    difference = place_(module, linears, chain, shown, spline(rows[:CHECKED_ROWS]), size_of(c))
    return InitReport(
        spline=spline,
        units=carried_units(spline, start_task),
        max_difference=float(difference.max()),
        mean_difference=float(difference.mean()),
        seconds=time.perf_counter() - start,
        task=target.task,
        classes=target.classes,
    )


def start_task_of(
    sample: Sample, target: Target, outputs: int, names: tuple[str, ...], widths: tuple[int, ...], rule: Activation,
    *, weighted: bool = False,
) -> StartTask:  # fmt: skip
    """Return what a start for a user's own network is fitted to; no rows are held out from it."""
    loss = SquaredError() if target.classes is None else LogLoss(outputs)
    coordinates = loss.coordinates(sample.X, sample.y, sample.weight)
    return StartTask(sample, None, weighted, names, widths, rule, coordinates, loss)


def size_of(c: Coordinates) -> float:
    """Size of the outputs."""
    return float((c.y_scale + np.abs(c.y_centre)).max())


def require_options(
    fill: str, max_terms: int | None, max_degree: int, penalty: float | None, threshold: float | None,
    ridge: float | None,
) -> None:  # fmt: skip
    """Refuse options of a start that are out of range."""
    for fine, rule, got in (
        (fill in FILLS, f"fill must be one of {', '.join(FILLS)}", fill),
        (max_terms is None or max_terms >= 2, "max_terms must be at least 2", max_terms),
        (not isinstance(max_degree, str) and max_degree >= 1, "max_degree must be at least 1", max_degree),
        (penalty is None or penalty >= -1, "penalty must be at least -1", penalty),
        (threshold is None or 0 <= threshold < 1, "threshold must be at least 0 and less than 1", threshold),
        (ridge is None or 0 <= ridge < np.inf, "ridge must be 0 or positive", ridge),
    ):
        if not fine:
            raise NetworkError(f"{rule}, got {got!r}")


def carried_units(spline: Spline, task: StartTask) -> tuple[int, ...]:
    """Count the units that the function needs in each hidden layer: two an output behind it, or its own if fewer."""
    units, two = units_of(spline, task), 2 * task.outputs
    behind = task.widths[len(units) :]
    carried = two if min(behind, default=two) >= two else units[-1]
    return (*units, *(carried for _ in behind))


def place_(
    module: nn.Module, linears: list[nn.Linear], chain: Chain, shown: Tensor, expected: Floats, size: float
) -> Floats:
    """Set the weights and run the module on rows to see that it computes what is expected; else nothing has changed.

    Returns |module − expected|: (rows, outputs). ``size`` is that of the outputs.
    """
    expected = expected.reshape(len(shown), -1)
    activation = type(chain.modules[0]).__name__ if chain.modules else "nothing"
    before = [{name: value.clone() for name, value in layer.state_dict().items()} for layer in linears]
    try:
        for linear, layer in zip(linears, chain.layers, strict=True):
            write_layer_(linear, layer)
        difference: Floats = np.abs(_run(module, shown, expected.shape) - expected)
        precision = 1e-9 if linears[0].weight.dtype == torch.float64 else 1e-3
        # What the dtype does to the spline on inputs of this scale is not the module's fault.
        same = build(chain, linears[0].weight.dtype, shown.device)
        rounding = np.abs(_run(same, shown.flatten(1), expected.shape) - expected)
        if not difference.max() <= precision * size + chain.conversion.bound + 2 * rounding.max():
            raise NetworkError(
                f"the module does not run its Linear layers in the order of their definition with "
                f"{activation} in between (off by {difference.max():.3g} on the data); "
                f"pass the part of it that does"
            )
    except BaseException:
        for linear, state in zip(linears, before, strict=True):
            linear.load_state_dict(state)
        raise
    return difference


def _read(X: Any, y: Any, linears: list[nn.Linear], task: str) -> tuple[Floats, Target]:
    rows = to_numpy(X)
    rows = rows.reshape(len(rows), -1) if rows.ndim > 2 else rows
    if rows.ndim != 2 or rows.shape[1] != linears[0].in_features:
        raise NetworkError(f"the first Linear takes {linears[0].in_features} features, got X of shape {rows.shape}")
    outputs = linears[-1].out_features
    target = read_target(y, outputs, task)
    require_target(target, len(rows), outputs)
    if not np.isfinite(rows).all():
        raise NetworkError("X must be finite, got NaN or inf; leave those rows out or fill them in")
    return rows, target


def require_target(target: Target, rows: int, outputs: int) -> None:
    """Refuse targets that do not fit the rows and the outputs, or that there is nothing to learn from."""
    if target.classes is None and target.values.shape != (rows, outputs):
        raise NetworkError(
            f"y must have one row per row of X and one column per output, here {(rows, outputs)}, got "
            f"{target.values.shape}"
        )
    if len(target.values) != rows:
        raise NetworkError(f"y must have one label per row of X, here {rows}, got {len(target.values)}")
    if rows < 2:
        raise NetworkError(f"a spline needs at least 2 rows, got {rows}")
    if target.classes is not None and len(np.unique(target.values)) < 2:
        raise NetworkError("y must hold at least 2 classes, got one; add rows of another class")
    if not np.isfinite(target.values).all():
        raise NetworkError("y must be finite, got NaN or inf; leave those rows out or fill them in")


def _warn_of_scales(coordinates: Coordinates) -> None:
    scale, centre = coordinates.x_scale, np.abs(coordinates.x_centre)
    if scale.max() > WILD * scale.min() or (centre > WILD * scale).any():
        warnings.warn(
            f"the features' stds run from {scale.min():.3g} to {scale.max():.3g} and their means to "
            f"{centre.max():.3g}: the start is right, but training will be slow; standardise X first",
            ScaleWarning,
            stacklevel=4,
        )


def _shown(module: nn.Module, X: Any, *, rounded: bool) -> Tensor:
    """Return some of the rows as they came, for the module to run on; ``rounded`` to its dtype."""
    rows = X[:CHECKED_ROWS] if isinstance(X, Tensor) else torch.from_numpy(to_numpy(X)[:CHECKED_ROWS].copy())
    first = next(module.parameters())
    return rows.detach().to(first.device, first.dtype if rounded else rows.dtype)


def _run(module: nn.Module, rows: Tensor, shape: tuple[int, ...]) -> Floats:
    """Run a module as it will be used: (N, …) → (N, p)."""
    with flags_kept(module), torch.no_grad():
        out = module.eval()(rows)
    if not isinstance(out, Tensor) or out.numel() != np.prod(shape):
        got = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise NetworkError(f"the module must return a tensor of shape {shape} for these rows, got {got}")
    values: Floats = out.to("cpu", torch.float64).numpy().reshape(shape)
    return values
