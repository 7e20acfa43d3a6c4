"""How far curves differ between the fits that a model keeps: ensemble members, or the splines of its folds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.limits import Limits
from knotwork.explanation.subject import Subject
from knotwork.spline.model import Spline

if TYPE_CHECKING:
    from knotwork.network.chain import Chain

Function = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Band:
    """The lowest and the highest of several curves: (G, p) each; ``what`` says of which, "5 folds" say."""

    lower: Floats
    upper: Floats
    what: str


@dataclass(frozen=True)
class OtherFits:
    """The other fits of a model, evaluated together.

    function : encoded rows (N, d) → (N, count·p), fit by fit; what : their name
    averaged : whether their mean is what the model's network computes, up to a constant
    """

    function: Function
    count: int
    what: str
    averaged: bool


def fits_of(subject: Subject) -> OtherFits | None:
    """Return the other fits of an estimator, None if it has none.

    A member's function is its own up to a constant, which no curve around zero has.
    """
    model = subject.estimator
    if model is None or subject.table is not getattr(model, "encoder_", None):  # behind a pipeline: other features
        return None
    count = len(getattr(model, "members_", ()))
    if count > 1 and subject.network is not None:
        each = (
            _centred(_members(subject.network, count), count) if subject.centred else _members(subject.network, count)
        )
        return OtherFits(each, count, f"{count} members", averaged=True)
    splines = getattr(model, "fold_splines_", None)
    # Folds that learned an encoding of their own have splines of other features.
    if splines is not None and len(splines) > 1 and getattr(model, "fold_encoders_", None) is None:
        return OtherFits(_splines(splines), len(splines), f"{len(splines)} folds", averaged=False)
    return None


def _centred(function: Function, count: int) -> Function:
    """Take the mean over the classes off the logits of each fit."""

    def centred(matrix: Floats) -> Floats:
        values = function(matrix).reshape(len(matrix), count, -1)
        found: Floats = (values - values.mean(axis=2, keepdims=True)).reshape(len(matrix), -1)
        return found

    return centred


def _splines(splines: Sequence[Spline]) -> Function:
    return lambda matrix: np.concatenate([spline(matrix).reshape(len(matrix), -1) for spline in splines], axis=1)


def _members(chain: Chain, count: int) -> Function:
    """Return what each of the networks adds to their average, times their number: one run for all of them."""
    from knotwork.network.chain import Layer, evaluate

    # The units of the members lie one behind the other, and the output layer averages.
    average = chain.output.weight
    outputs, width = average.shape[0], average.shape[1] // count
    weight = average.new_zeros(count, outputs, average.shape[1])
    for k in range(count):
        own = slice(k * width, (k + 1) * width)
        weight[k, :, own] = count * average[:, own]
    c = chain.scaling
    if c is not None:
        held = None if c.y_limits is None else Limits(*(np.tile(side, count) for side in c.y_limits.sides()))
        c = replace(c, y_centre=np.tile(c.y_centre, count), y_scale=np.tile(c.y_scale, count), y_limits=held)
    output = Layer(weight.reshape(count * outputs, -1), chain.output.bias.repeat(count))
    members = replace(chain, output=output, scaling=c)
    return lambda matrix: evaluate(members, matrix)


def band_of(curves: Floats, what: str) -> Band:
    """Return the range of curves (G, fits, p) at each point."""
    return Band(curves.min(axis=1), curves.max(axis=1), what)
