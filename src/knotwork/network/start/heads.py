"""init_head_: start the fully connected head of a larger network from a spline of the features that enter it.

The spline sees linear scores of all features (:mod:`knotwork.spline.scores`) and the most informative features
themselves (:mod:`knotwork.spline.screening`). A score is a linear map of the features, so a hinge of one is still a
unit: the map is multiplied into the first layer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from knotwork.arrays import CHUNK, Floats
from knotwork.data.sample import Sample
from knotwork.errors import NetworkError
from knotwork.network.activations import Activation, activation_rule
from knotwork.network.chain import Chain, Layer, build
from knotwork.network.limits import read_widths, require_room
from knotwork.network.start.choose import choose_start, two_logits
from knotwork.network.start.features import capture
from knotwork.network.start.find import find_chain, find_head, require_own
from knotwork.network.start.init import (
    CHECKED_ROWS,
    START,
    carried_units,
    require_options,
    require_target,
    size_of,
    start_task_of,
)
from knotwork.network.start.initial import spline_start
from knotwork.network.start.place import place_
from knotwork.network.start.task import THRESHOLD, StartOptions, StartTask
from knotwork.network.train.targets import Target, read_target
from knotwork.parameters import checked, seed, text, whole
from knotwork.spline import model as terms
from knotwork.spline.columns import BasisValues
from knotwork.spline.likelihood import indicators
from knotwork.spline.logits import fit_logits
from knotwork.spline.model import Spline
from knotwork.spline.scores import fit_scores
from knotwork.spline.screening import strongest_features

# Maximum number of features in linear scores, the most informative ones: their Gram matrix is decomposed.
MAX_SCORED = 2048
LINEAR_NOTE = (
    "the head is a single Linear, so its start is linear: hinges need a hidden layer, which hidden=(128,) would make"
)


@dataclass(frozen=True)
class Projection:
    """What the spline of a head looks at: x·weight + offset of the features x that enter it.

    weight, offset : (d, r) and (r,); the scores, then the chosen features as they are
    names : (r,) "score0", … and "x17", …
    """

    weight: Floats
    offset: Floats
    names: tuple[str, ...]

    def __call__(self, X: NDArray[np.floating]) -> Floats:
        """Apply the map to rows: (N, d) → (N, r)."""
        return np.concatenate([X[k : k + CHUNK] @ self.weight + self.offset for k in range(0, len(X), CHUNK)])


@dataclass(frozen=True)
class HeadReport:
    """What ``init_head_`` did: the head computes spline(projection(x)) of the features x that enter it.

    spline, projection : that function, up to rounding (or the bound of a smooth activation)
    units : hidden units that the function needs, of each layer; the others are live and add nothing yet
    max_difference, mean_difference : |head − spline| on some of the rows
    task, classes : as in the report of ``init_``
    rows : that the spline was fitted to
    features : that enter the head
    screened : features that the search looked at, in addition to the scores of all
    used : features with terms of their own
    feature_seconds, fit_seconds : time to run the network on the data, and for the rest
    note : what was left out, and why; empty if nothing was
    """

    spline: Spline
    projection: Projection
    units: tuple[int, ...]
    max_difference: float
    mean_difference: float
    task: str
    classes: tuple[Any, ...] | None
    rows: int
    features: int
    screened: int
    used: int
    feature_seconds: float
    fit_seconds: float
    note: str


@checked(
    **START, random_state=seed(), head=text(), outputs=whole(1).optional, max_features=whole(), max_rows=whole(),
    batch_size=whole(), verbose=whole(),
)  # fmt: skip
def init_head_(
    model: nn.Module,
    head: str,
    data: Any,
    *,
    task: str = "auto",
    hidden: Sequence[int] | None = None,
    outputs: int | None = None,
    fill: str = "hinge",
    max_features: int = 256,
    max_rows: int = 50_000,
    max_terms: int | None = None,
    max_degree: int = 1,
    penalty: float | None = None,
    threshold: float = THRESHOLD,
    ridge: float | None = None,
    batch_size: int = 256,
    random_state: int | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> HeadReport:
    """Set the head of a network in place so that it computes a spline of the features that enter it.

    Runs the network once over the data, in evaluation mode on its own device. Everything but the head stays as it was,
    bit for bit: parameters, buffers (the statistics of BatchNorm too), training flags, random states.

    Parameters
    ----------
    model : any module
    head : dotted name of the submodule with the fully connected layers: a Linear, or a chain of Linear and activation
        (Dropout, Flatten and Identity may stand anywhere). It must be fed (rows, features) once in each run
    data : (X, y), inputs of the model and targets of the head, or a DataLoader that yields such pairs. Classes are
        numbers from 0 or text
    task : "regression", "classification" (the outputs become logits; one output distinguishes two classes) or "auto",
        as in ``init_``; where ``hidden`` makes new outputs whole numbers are classes
    hidden : widths of hidden layers: the head, whatever it is, is replaced by Linear and ReLU layers of these widths
    outputs : of the new head; None is one per class or column of y
    max_features : maximum number of features that the search looks at in addition to the scores of all; it takes the
        most informative ones
    max_rows : maximum number of rows to fit to; of more, as many are chosen at random, the same ones each time
    penalty : cost of a knot in the search; None is 2 (3 with interactions) or, with d features, 2·ln d − 2 if that is
        more, since the best of many features looks good by chance
    fill, max_terms, max_degree, threshold, ridge, random_state, n_jobs : as in ``init_``
    batch_size : rows in a run of the model if data is (X, y)
    verbose : 1 shows a progress bar

    Returns
    -------
    HeadReport. On any error the model stays exactly as it was.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> images, labels = torch.tensor(X).float().reshape(-1, 1, 8, 8) / 16, torch.tensor(y)
    >>> model = nn.Sequential(
    ...     nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(),
    ...     nn.Sequential(nn.Linear(288, 64), nn.ReLU(), nn.Linear(64, 10)),
    ... )
    >>> report = init_head_(model, "3", (images, labels), random_state=0)
    >>> bool((model(images).argmax(1) == labels).float().mean() > 0.95)
    True
    """
    require_options(fill, max_terms, max_degree, penalty, threshold, ridge)
    for name, number in (("max_features", max_features), ("max_rows", max_rows), ("batch_size", batch_size)):
        if not number >= 2:
            raise NetworkError(f"{name} must be at least 2, got {number!r}")
    module = find_head(model, head)
    widths: tuple[int, ...]
    if hidden is None:
        if outputs is not None:
            raise NetworkError("outputs is for a new head, got no hidden=; the head's last Linear has its outputs")
        found = find_chain(module, min_layers=1)
        if found.scaling is not None:
            raise NetworkError(
                f"a head must have no Scaling at its ends, got one in '{head}'; fold it first, kw.fold(…)"
            )
        linears, rule = found.linears, found.rule
        require_own(model, module, head)
        widths, outputs = tuple(m.out_features for m in linears[:-1]), linears[-1].out_features
    else:
        linears, rule, widths = [], activation_rule("relu"), read_widths(hidden)
        require_room(widths)
        if min(widths) < 2:
            raise NetworkError(f"hidden must be widths of at least 2, one per layer, got {hidden!r}")

    start = time.perf_counter()
    codes = capture(model, linears[0] if linears else module, head, data, batch_size=batch_size, show=verbose > 0)
    captured = time.perf_counter()
    rows = len(codes.features)
    outputs = outputs or _count_outputs(codes.targets, task)
    target = _read_targets(codes.targets, outputs, task)
    require_target(target, rows, outputs)
    X = codes.features
    if rows > max_rows:  # at random: every second row may be of one class
        chosen = np.sort(np.random.default_rng(0).choice(rows, max_rows, replace=False))
        X, target = X[chosen], replace(target, values=target.values[chosen])
    degree_penalty = 2.0 if max_degree == 1 else 3.0
    if penalty is None:
        penalty = max(degree_penalty, 2 * float(np.log(X.shape[1])) - 2)
    options = StartOptions(max_terms, max_degree, penalty, threshold, "auto" if ridge is None else ridge, n_jobs)
    spline, projection = _fit(X, target, outputs, options, rule, widths, max_features)
    chain, task_of_head = _chain(spline, projection, X, target, outputs, rule, widths, fill, random_state)

    replaced = module if hidden is None else _new_head(model, module, chain)
    linears = [m for m in replaced.modules() if isinstance(m, nn.Linear)] if hidden is not None else linears
    first = next(replaced.parameters())
    shown = torch.from_numpy(X[:CHECKED_ROWS]).to(first.device, first.dtype)
    difference = place_(
        replaced, list(zip(linears, chain.layers, strict=True)), chain, shown,
        spline(projection(X[:CHECKED_ROWS])), size_of(task_of_head.coordinates),
    )  # fmt: skip
    if hidden is not None:
        parent, _, name = head.rpartition(".")
        setattr(model.get_submodule(parent), name, replaced)
    own = {f for term in spline.terms for f in term.features if projection.names[f].startswith("x")}
    notes = [LINEAR_NOTE] * (not widths) + [f"fitted to {len(X)} of {rows} rows"] * (rows > len(X))
    return HeadReport(
        spline=spline,
        projection=projection,
        units=carried_units(spline, task_of_head) if widths else (),
        max_difference=float(difference.max()),
        mean_difference=float(difference.mean()),
        task=target.task,
        classes=target.classes,
        rows=len(X),
        features=X.shape[1],
        screened=sum(name.startswith("x") for name in projection.names),
        used=len(own),
        feature_seconds=captured - start,
        fit_seconds=time.perf_counter() - captured,
        note="; ".join(notes),
    )


def _fit(
    X: NDArray[np.floating],
    target: Target,
    outputs: int,
    options: StartOptions,
    rule: Activation,
    widths: tuple[int, ...],
    max_features: int,
) -> tuple[Spline, Projection]:
    """Fit scores, then a spline of them and of the features that add most to them; linear without a hidden layer."""
    y = target.values
    if target.classes is not None:
        y = indicators(target.values, np.bincount(target.values, minlength=len(target.classes)) / len(X))
    scored = strongest_features(X, y, MAX_SCORED)
    scores = fit_scores(X if len(scored) == X.shape[1] else X[:, scored], y)
    own = strongest_features(X, y - scores.held_out, max_features) if widths else np.arange(0)
    p = y.shape[1]
    weight = np.zeros((X.shape[1], p + len(own)))
    weight[scored, :p] = scores.weight
    weight[own, p + np.arange(len(own))] = 1.0
    names = tuple([f"score{k}" for k in range(p)] + [f"x{f}" for f in own])
    projection = Projection(weight, np.concatenate([scores.offset, np.zeros(len(own))]), names)
    if widths:
        rows = Sample(np.column_stack([scores.held_out, X[:, own]]), target.values, np.ones(len(X)))
        return choose_start(start_task_of(rows, target, outputs, names, widths, rule), options), projection
    lines = tuple(terms.Linear(k) for k in range(p))
    if target.classes is None:
        return Spline(lines, np.zeros(p), np.eye(p), names), projection
    units = scores.held_out.std(axis=0)
    logits = fit_logits(
        BasisValues(scores.held_out), target.values, len(target.classes), np.ones(len(X)),
        0.1 if isinstance(options.ridge, str) else options.ridge, np.where(units > 0, units, 1.0),
    )  # fmt: skip
    spline = Spline(lines, logits.intercept, logits.coef, names)
    return two_logits(spline) if outputs == 2 else spline, projection


def _chain(
    spline: Spline,
    projection: Projection,
    X: NDArray[np.floating],
    target: Target,
    outputs: int,
    rule: Activation,
    widths: tuple[int, ...],
    fill: str,
    random_state: int | None,
) -> tuple[Chain, StartTask]:
    """Write the spline of the projection as layers of the features; return them and what they start."""
    rows = Sample(projection(X), target.values, np.ones(len(X)))
    task = start_task_of(rows, target, outputs, projection.names, widths, rule)
    c = task.coordinates
    if widths:
        inner = spline_start(spline, c, rows.X, widths, rule, fill, np.random.default_rng(random_state))
        chain = inner.in_coordinates(c.inverse)
    else:
        line = Layer(torch.from_numpy(spline.coef.T.copy()), torch.from_numpy(spline.intercept.copy()))
        chain = Chain.of([line], rule)
    map_of_features = Layer(torch.from_numpy(projection.weight).T, torch.from_numpy(projection.offset))
    first, *rest = chain.layers
    return chain.with_layers([first.after(map_of_features), *rest]), task


def _count_outputs(y: NDArray[Any], task: str) -> int:
    """Outputs that a new head needs for these targets."""
    if task == "regression" or (task == "auto" and (y.dtype.kind == "f" or (y.ndim == 2 and y.shape[1] > 1))):
        return 1 if y.ndim == 1 else int(y.shape[1])
    numbered = y.dtype.kind in "iu" and y.min() >= 0
    return max(int(y.max()) + 1 if numbered else len(np.unique(y)), 2)


def _read_targets(y: NDArray[Any], outputs: int, task: str) -> Target:
    target = read_target(y, outputs, task)
    room = max(outputs, 2)
    if target.classes is not None and y.dtype.kind in "iuf" and (y.min() < 0 or y.max() >= room):
        raise NetworkError(f"labels must be 0 to {room - 1}, the outputs of the head, got {y.min():g} to {y.max():g}")
    return target


def _new_head(model: nn.Module, module: nn.Module, chain: Chain) -> nn.Sequential:
    """Make the layers of a chain, to stand where a module does."""
    parameter = next((p for m in (module, model) for p in m.parameters() if p.is_floating_point()), torch.empty(0))
    return build(chain, parameter.dtype, parameter.device).train(module.training)
