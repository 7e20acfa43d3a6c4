"""From the units of a spline to a chain: how large each unit is made.

A unit takes s·z + shift in place of z and hands on 1/s of what comes out. Where any s is exact, units are balanced:
what goes in and what comes out weigh about the same, by a power of two, which changes no bit of the function and keeps
training calm. Smooth activations are off by C/s, so that a tolerance decides s; those that saturate are exact up to
some size, so that a box around the features does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from knotwork.arrays import Floats
from knotwork.errors import NetworkError
from knotwork.network.activations import Activation, Kind, activation_rule
from knotwork.network.chain import Chain, Conversion, Layer
from knotwork.network.compile.balance import MOST_SWEEPS
from knotwork.network.compile.scaling import DEFAULT_TOLERANCE, box_scales, require_tolerance, rescaled
from knotwork.network.compile.units import Draft, draft_units
from knotwork.spline.model import Linear, Min, Spline, Term, hinges_of, knots_by_feature

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def count_units(spline: Spline, activation: str | nn.Module = "relu") -> tuple[int, ...]:
    """Units that a spline needs in each hidden layer; :mod:`knotwork.network.compile.units` says how many and why.

    >>> from knotwork import Hinge
    >>> a, b = Hinge(0, 1.0, 1), Hinge(1, 2.0, -1)
    >>> count_units(Spline((a, Min((a, b), (1.0, 1.0))), [0.0], [[1.0], [1.0]], ("x", "z")))
    (2, 3)
    """
    return draft_units(spline, activation_rule(activation)).widths if spline.terms else (0,)


def spline_chain(
    spline: Spline, rule: Activation, *, tolerance: float | None = None, box: ArrayLike | None = None
) -> Chain:
    """Write a spline as a chain with one hidden layer per degree."""
    bound, sides = 0.0, None
    if rule.kind is Kind.BOXED:
        if box is None:
            raise NetworkError(
                f"{type(rule.module).__name__} holds a spline only on a box; pass box=(least, greatest) of the features"
            )
        sides = box_sides(box, len(spline.feature_names))
    draft = draft_units(spline, rule, sides)
    if rule.kind is Kind.EXACT:
        scales = _balanced(draft)
    elif rule.kind is Kind.SMOOTH:
        if tolerance is None:
            tolerance = DEFAULT_TOLERANCE * _spread(spline)
        require_tolerance(tolerance)
        scales = _within(draft, rule, tolerance)
        bound = float(tolerance) if _is_off(spline, rule) else 0.0
    else:
        scales = [box_scales(layer.ends[0], layer.ends[1], rule) for layer in draft.layers]
    layers = [(layer.weight, layer.bias) for layer in draft.layers]
    *hidden, output = (_layer(*layer) for layer in rescaled([*layers, (draft.weight, draft.bias)], scales, rule))
    return Chain(
        hidden=tuple(hidden),
        output=output,
        activation=rule,
        modules=tuple(rule.new_module() for _ in hidden),
        conversion=Conversion(bound=bound, box=None if sides is None else torch.from_numpy(sides.copy())),
    )


def _layer(weight: Floats, bias: Floats) -> Layer:
    return Layer(torch.from_numpy(np.ascontiguousarray(weight)), torch.from_numpy(bias))


def _balanced(draft: Draft) -> list[Floats]:
    """Powers of two that bring the largest weight into a unit and the largest out of it together."""
    into = [np.abs(layer.weight) for layer in draft.layers]
    out = [*into[1:], np.abs(draft.weight)]
    ones = np.ones(len(draft.bias))
    scales = [np.ones(width) for width in draft.widths]
    for _ in range(MOST_SWEEPS):
        before = scales.copy()
        for k in reversed(range(len(scales))):
            inward = (into[k] / scales[k - 1] if k > 0 else into[k]).max(axis=1)
            outward = (out[k] * (scales[k + 1] if k + 1 < len(scales) else ones)[:, None]).max(axis=0)
            ratio = np.divide(outward, inward, out=np.ones(len(inward)), where=(inward > 0) & (outward > 0))
            scales[k] = np.exp2(np.clip(np.round(np.log2(ratio) / 2), -500, 500))
        if all(map(np.array_equal, before, scales)):
            break
    return scales


def _within(draft: Draft, rule: Activation, tolerance: float) -> list[Floats]:
    """Scales at which each unit uses an equal share of the tolerance.

    A unit is off by C/s of its own, and an output by Σ gain·C/s over the units of all layers: R and the line hand on
    the error of what they take without enlarging it, and the gains say how often.
    """
    gains = [np.where(layer.gain > 0, layer.gain, 1.0) for layer in draft.layers]
    return [gain * max(rule.error, rule.line_error) * sum(draft.widths) / tolerance for gain in gains]


def _is_off(spline: Spline, rule: Activation) -> bool:
    errors = [rule.line_error if isinstance(term, Linear) else rule.error for term in spline.terms]
    deep = any(isinstance(term, Min) for term in spline.terms)  # the sums are carried whatever the coefficients are
    return deep or any(error > 0 and beta.any() for error, beta in zip(errors, spline.coef, strict=True))


def box_sides(box: Any, features: int) -> Floats:
    """Read a box: (least, greatest), each a number or one per feature → (2, features)."""
    try:
        least, greatest = box
        sides = np.stack([np.broadcast_to(np.asarray(side, dtype=np.float64), features) for side in (least, greatest)])
    except (TypeError, ValueError) as error:
        raise NetworkError(
            f"box must be (least, greatest), each a number or one per feature ({features}), got {box!r}"
        ) from error
    if not (np.isfinite(sides).all() and (sides[0] <= sides[1]).all()):
        raise NetworkError("box must be (least, greatest) with finite sides in order")
    return sides


def _spread(spline: Spline) -> float:
    """Size of the spline's parts: Σ|β|·(spread of the feature's knots), at its greatest over the outputs."""
    knots = knots_by_feature(spline.terms)

    def width(feature: int) -> float:
        found = knots.get(feature, [])
        spread = max(found) - min(found) if len(set(found)) > 1 else max([abs(k) for k in found], default=1.0)
        return spread or 1.0

    def size(term: Term) -> float:
        if isinstance(term, Min):
            return min(s * width(h.feature) for h, s in zip(hinges_of(term), term.slopes, strict=True))
        return width(term.features[0])

    total = np.zeros(spline.intercept.size)
    for term, beta in zip(spline.terms, spline.coef, strict=True):
        total += np.abs(beta) * size(term)
    return float(total.max()) or 1.0
