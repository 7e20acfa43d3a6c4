"""init_: set the weights of a user's own network, in place, to those of a spline of the data."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.data.columns.level_means import LevelMeans
from knotwork.data.coordinates import Coordinates
from knotwork.data.learn import learn_table
from knotwork.data.limits import Limits, response_limits
from knotwork.data.losses import SQUARED_ERROR, ResponseLoss, response_loss
from knotwork.data.sample import Sample
from knotwork.data.table import TableEncoder, as_frame
from knotwork.data.target_encoding import Response
from knotwork.errors import NetworkError
from knotwork.network.activations import Activation
from knotwork.network.chain import remember_link
from knotwork.network.reshape import FILLS
from knotwork.network.scaling import widen_limits_
from knotwork.network.start.choose import choose_start, units_of
from knotwork.network.start.initial import spline_start
from knotwork.network.start.normalised import standardise_
from knotwork.network.start.place import place_, unchanged_on_failure
from knotwork.network.start.ranks import Shards, same_seed, share_weights_, world
from knotwork.network.start.residual import require_room, stream_layers
from knotwork.network.start.ridge import RIDGES
from knotwork.network.start.route import Route, find_route
from knotwork.network.start.spread import copies_of, drops_units, spread
from knotwork.network.start.tame import require_held, require_tame
from knotwork.network.start.task import THRESHOLD, StartOptions, StartTask
from knotwork.network.train.losses import Deviance, LogLoss, Loss, SquaredError
from knotwork.network.train.targets import Target, read_target, read_values, to_numpy
from knotwork.parameters import checked, number, seed, text, whole
from knotwork.spline.model import Spline
from knotwork.spline.response import huber_width

# Rows on which the module is run to see that it computes the spline.
CHECKED_ROWS = 1024
# Rows whose statistics the BatchNorms inside the module begin with.
MEASURED_ROWS = 16384

# What holds nothing.
OPEN = Limits(np.array([-np.inf]), np.array([np.inf]))


@dataclass(frozen=True)
class InitReport:
    """What ``init_`` did.

    spline : what the module computes now, up to rounding; with Softplus, SiLU, GELU and ELU, what it is near
    units : hidden units that the function needs, of each layer; the others are live and add nothing yet, or, in a
        module with Dropout, copies that share the work
    max_difference, mean_difference : |module − spline| on some of the rows
    seconds : time taken
    task : "regression" or "classification"
    classes : the labels in the order of the outputs (of two, the one output is the log-odds of the second)
    encoder : from a data frame to the rows that the module takes; None if X was an array or a tensor
    link : the module gives link(y): "log" or "identity"
    """

    spline: Spline
    units: tuple[int, ...]
    max_difference: float
    mean_difference: float
    seconds: float
    task: str = "regression"
    classes: tuple[Any, ...] | None = None
    encoder: TableEncoder | None = None
    link: str = "identity"


# What both init_ and init_head_ take.
START = {
    "task": text(), "fill": text(), "max_terms": whole().optional, "max_degree": whole(), "penalty": number().optional,
    "threshold": number(), "ridge": number().optional, "n_jobs": whole().optional,
}  # fmt: skip


@checked(**START, random_state=seed(), loss=text())
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
    loss: str = "squared_error",
    quantile: float | None = None,
    power: float | None = None,
) -> InitReport:
    """Set the weights of a network in place so that it computes a spline fitted to the data.

    Parameters
    ----------
    module : Linear layers with an activation in between, with BatchNorm1d, Dropout, Flatten and Identity anywhere,
        residual sums, and a ``Scaling`` at the ends, in a Sequential or in whatever ``forward`` that ``torch.fx`` can
        read. A BatchNorm changes nothing in use, and in training as little as batches differ. In a residual network the
        spline runs along the skips, and the branches are zero at first. dtype, device and everything else about it stay
        as they are. For any other module there is ``with_spline``
    X, y : (N, …) and (N,) or (N, outputs), tensors, arrays or a data frame for X, as the module will see them; for
        classes (N,) labels. The text columns of a frame become indicators, as in the estimators; the report has the
        encoder. Features and responses too far from mean 0 and std 1 to be trained on are refused, with the line to add
    task : "regression", "classification" (the outputs become logits; one output distinguishes two classes) or "auto":
        classes if y is text or boolean, or whole numbers that name several outputs or are all 0 and 1
    fill, max_terms, penalty, threshold, ridge : as in ``SplineNetRegressor`` or ``SplineNetClassifier``; a ridge of
        None is 1e-3 for numbers (1e-2 if the module has Dropout) and 1 for classes
    max_degree : maximum number of features in a term; each degree takes a hidden layer
    loss, quantile, power : as in ``SplineNetRegressor``, for a module of one output. With "poisson", "gamma" and
        "tweedie" it gives log(y), and the report's ``link`` says so

    Inside an initialised process group of ``torch.distributed`` every rank passes its own rows, all of them at once.
    The sums of the search are added over the ranks, and all get the same weights, bit for bit; coordinates and checks
    follow from a sample of at most 65,536 rows of all ranks. Such a start is additive, for squared errors or classes.

    Returns
    -------
    InitReport. On any error the module stays exactly as it was.

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
    if not isinstance(module, nn.Module):
        raise NetworkError(f"init_ takes a torch module, got {type(module).__name__}; kw.to_network(model) makes one")
    goal = response_loss(loss, quantile, power)
    route = find_route(module)
    outputs = route.last.out_features
    shards = None
    if world() > 1:  # what follows sees a sample that all ranks have, the spline all rows of all ranks
        shards = Shards.of(X, y, sample_weight)
        X, y, sample_weight = shards.survey.X, shards.survey.y, shards.survey.weight
        random_state = same_seed(random_state)
    target = read_target(y, outputs, task if goal == SQUARED_ERROR else "regression")
    rows, encoder = _read_rows(X, route.first.in_features, target)
    require_target(target, len(rows), outputs)
    weight = np.ones(len(rows)) if sample_weight is None else to_numpy(sample_weight, "sample_weight")
    if weight.shape != (len(rows),) or not np.isfinite(weight.sum()) or (weight <= 0).any():
        raise NetworkError(
            f"sample_weight must be positive, one per row ({len(rows)}), got shape {weight.shape} and a sum of "
            f"{weight.sum():g}"
        )
    if route.stream is not None:
        require_room(route.stream, rows.shape[1], outputs)
    names = tuple(f"x{k}" for k in range(rows.shape[1])) if encoder is None else encoder.feature_names
    limits = None if route.x_scaling is None else route.x_scaling.limits
    if limits is not None:
        require_held(limits, rows, names)
        rows = limits.hold(rows)  # as the layers see them
    if goal != SQUARED_ERROR:
        goal = _ready_loss(goal, rows, target, None if sample_weight is None else weight)
    start_task = start_task_of(
        Sample(rows, target.values, weight), target, outputs, names, route.widths, route.rule,
        weighted=sample_weight is not None, response=goal,
    )  # fmt: skip
    c = start_task.coordinates
    encoder = None if encoder is None else encoder.with_means(c.x_centre)
    drops = drops_units(module, route.graph)
    if ridge is None and drops and target.classes is None:
        # Dropout is a ridge on the units behind it: large terms that cancel would not survive it.
        ridge = RIDGES[-1]
    with unchanged_on_failure(module):
        if route.y_scaling is not None:  # it holds responses like those of an earlier fit
            regression = target.classes is None and goal.link == "identity"
            ends = response_limits(target.values.min(axis=0), target.values.max(axis=0)) if regression else OPEN
            widen_limits_(route.y_scaling, ends)
        seen = _seen(route, rows)
        shown = _shown(module, X if encoder is None else rows, rounded=route.x_scaling is None)
        by_response = encoder is not None and any(isinstance(column, LevelMeans) for column in encoder.columns)
        regression = target.classes is None and goal.link == "identity"
        require_tame(module, c, seen, names, route, shown, regression=regression, by_response=by_response)
        options = StartOptions(max_terms, max_degree, penalty, threshold, "auto" if ridge is None else ridge, n_jobs)
        if shards is None:
            spline = choose_start(start_task, options)
        else:
            values = partial(read_values, task=target.task, classes=target.classes)
            spline = shards.start(
                start_task, options, encoder, values, limits.hold if limits is not None else np.asarray
            )
        rng = np.random.default_rng(random_state)
        units = carried_units(spline, start_task)
        copies = copies_of(units, route.widths) if drops else (1,) * len(units)
        widths = [w - (times - 1) * n for w, n, times in zip(route.widths, units, copies, strict=True)]
        inner = spread(spline_start(spline, c, rows, widths, route.rule, fill, rng), units, copies)
        chain = inner.with_scaling(c).in_coordinates(seen)
        if route.stream is None:
            layers = list(zip(route.linears, chain.layers, strict=True))
        else:
            layers = stream_layers(route.stream, route.linears, inner, c.relative_to(seen), rng)
        spline = replace(spline, output_limits=seen.y_limits)
        difference = place_(
            module, layers, chain.with_scaling(seen), shown[:CHECKED_ROWS], spline(rows[:CHECKED_ROWS]), size_of(c),
            route, shown,
        )  # fmt: skip
        remember_link(module, goal.link)
        if shards is not None:
            share_weights_(module)
    return InitReport(
        spline=replace(spline, limits=limits),
        units=units,
        max_difference=float(difference.max()),
        mean_difference=float(difference.mean()),
        seconds=time.perf_counter() - start,
        task=target.task,
        classes=target.classes,
        encoder=encoder,
        link=goal.link,
    )


def _ready_loss(loss: ResponseLoss, rows: Floats, target: Target, weight: Floats | None) -> ResponseLoss:
    """Return a loss for responses that it is made for, with Huber's width filled in."""
    if target.values.shape[1] != 1:
        raise NetworkError(
            f"loss={loss.name!r} takes a module of one output, got {target.values.shape[1]}; start one for each column"
        )
    loss.check(target.values)
    if loss.name == "huber":
        return replace(loss, width=huber_width(rows, target.values[:, 0], weight))
    return loss


def start_task_of(
    sample: Sample, target: Target, outputs: int, names: tuple[str, ...], widths: tuple[int, ...], rule: Activation,
    *, weighted: bool = False, response: ResponseLoss = SQUARED_ERROR,
) -> StartTask:  # fmt: skip
    """Return what a start for a user's own network is fitted to; no rows are held out from it."""
    loss: Loss = SquaredError() if target.classes is None else LogLoss(outputs)
    if response != SQUARED_ERROR:
        loss = Deviance(response)
    coordinates = loss.coordinates(sample.X, sample.y, sample.weight)
    return StartTask(sample, None, weighted, names, widths, rule, coordinates, loss.within(coordinates))


def size_of(c: Coordinates) -> Floats:
    """Size of each output: (outputs,)."""
    size: Floats = c.y_scale + np.abs(c.y_centre)
    return size


def require_options(
    fill: str, max_terms: int | None, max_degree: int, penalty: float | None, threshold: float,
    ridge: float | None,
) -> None:  # fmt: skip
    """Refuse options of a start that are out of range."""
    for fine, rule, got in (
        (fill in FILLS, f"fill must be one of {', '.join(FILLS)}", fill),
        (max_terms is None or max_terms >= 2, "max_terms must be at least 2", max_terms),
        (not isinstance(max_degree, str) and max_degree >= 1, "max_degree must be at least 1", max_degree),
        (penalty is None or penalty >= -1, "penalty must be at least -1", penalty),
        (0 <= threshold < 1, "threshold must be at least 0 and less than 1", threshold),
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


def _read_rows(X: Any, features: int, target: Target) -> tuple[Floats, TableEncoder | None]:
    """Read rows as (N, d), and how a data frame became them."""
    encoder = None
    if isinstance(X, Tensor) or as_frame(X) is None:
        rows = to_numpy(X)
    else:
        labels = None if target.classes is None else tuple(map(str, target.classes))
        fits = np.shape(target.values)[:1] == (len(as_frame(X) or ()),)  # or it is refused below
        encoder, rows = learn_table(X, response=Response(target.values, labels) if fits else None)
    rows = rows.reshape(len(rows), -1) if rows.ndim > 2 else rows
    if rows.ndim != 2 or rows.shape[1] != features:
        columns = "" if encoder is None else f" once its columns are encoded ({', '.join(encoder.feature_names)})"
        raise NetworkError(f"the first Linear takes {features} features, got X of shape {rows.shape}{columns}")
    if not np.isfinite(rows).all():
        raise NetworkError("X must be finite, got NaN or inf; leave those rows out or fill them in")
    return rows, encoder


def _seen(route: Route, rows: Floats) -> Coordinates:
    """Return the coordinates that the layers compute in; a BatchNorm in front of them is set to standardise."""
    outputs = route.last.out_features
    ends = route.scaling or Coordinates.identity(rows.shape[1], outputs)
    if route.input_norm is None:
        return ends
    inner = standardise_(route.input_norm, ends.features(rows), outputs)
    return replace(ends, x_centre=ends.x_centre + ends.x_scale * inner.x_centre, x_scale=ends.x_scale * inner.x_scale)


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


def _shown(module: nn.Module, X: Any, *, rounded: bool) -> Tensor:
    """Return some of the rows as they came, for the module to run on; ``rounded`` to its dtype."""
    rows = X[:MEASURED_ROWS] if isinstance(X, Tensor) else torch.from_numpy(to_numpy(X)[:MEASURED_ROWS].copy())
    first = next(module.parameters())
    return rows.detach().to(first.device, first.dtype if rounded else rows.dtype)
