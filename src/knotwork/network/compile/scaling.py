"""The scales of units: a layer's ideal units R(z) as units of an activation, act(s·z + shift).

Exact activations take any s: powers of two that balance what goes in and what comes out. Smooth ones take the s that a
tolerance asks for; every level of pairs adds an error of at most (error + line_error)/s, because maxima and minima pass
errors on without enlarging them. Those that saturate take s from the greatest z on a box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from knotwork.arrays import Floats
from knotwork.errors import NetworkError
from knotwork.network.activations import Activation, Kind

Affine = tuple[Any, Floats]  # weight, dense or sparse, and bias
# Of the size of a function's parts: what smooth activations may be off when no tolerance is given.
DEFAULT_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Ideal:
    """Layers of units R(z), the layer behind them, and what one unit of error in every group does to each output."""

    hidden: tuple[Affine, ...]
    output: Affine
    amplification: Floats


def scale_units(
    ideal: Ideal, rule: Activation, theta: Floats, *, tolerance: float | None, sides: Floats | None
) -> tuple[list[tuple[Floats, Floats]], float]:
    """Return dense layers (weight, bias) for the activation, the output layer last, and the bound on the error."""
    bound = 0.0
    if rule.kind is Kind.EXACT:
        scales = _balanced(ideal)
    elif rule.kind is Kind.SMOOTH:
        if tolerance is None:
            tolerance = DEFAULT_TOLERANCE * (float(np.abs(theta).max()) or 1.0)
        require_tolerance(tolerance)
        bound = float(tolerance)
        each = tolerance / (len(ideal.hidden) * max(float(ideal.amplification.max()), np.finfo(float).tiny))
        s = (rule.error + rule.line_error) / each
        scales = [np.full(len(bias), s) for _, bias in ideal.hidden]
    else:
        if sides is None:
            raise NetworkError(
                f"{type(rule.module).__name__} holds a function only on a box; pass box=(least, greatest) of the "
                f"features"
            )
        scales = _within(ideal, rule, sides)
    return rescaled((*ideal.hidden, ideal.output), scales, rule), bound


def rescaled(layers: Sequence[Affine], scales: Sequence[Floats], rule: Activation) -> list[tuple[Floats, Floats]]:
    """Write layers of ideal units, the output layer last, with units of the given scales: act(s·z + shift)."""
    out = []
    before: Floats | None = None
    for k, (weight, bias) in enumerate(layers):
        w = weight.toarray() if sparse.issparse(weight) else np.array(weight)
        b = np.array(bias)
        if before is not None:
            # From U = (act + lift)/s of the layer before to its act.
            w = w / before
            b = b + rule.lift * w.sum(axis=1)
        if k < len(scales):
            w, b = w * scales[k][:, None], b * scales[k] + rule.shift
            before = scales[k]
        out.append((np.ascontiguousarray(w), b))
    return out


def box_scales(least: Floats, greatest: Floats, rule: Activation) -> Floats:
    """Powers of two that keep units below the upper end of their activation, given what they take on the box: (H,)."""
    # A unit that is zero all over the box may have any scale: its distance, so that it adds no rounding of its own.
    reach = np.where(greatest > 0, greatest, np.maximum(np.abs(least), np.abs(greatest)))
    reach = np.where(reach > 0, reach, 1.0)
    scales: Floats = np.exp2(np.floor(np.log2((rule.top - rule.shift) / reach)))
    return scales


def require_tolerance(tolerance: float) -> None:
    """Refuse a tolerance that no scale can keep."""
    if not 0 < tolerance < np.inf:
        raise NetworkError(f"tolerance must be positive, got {tolerance}")


def _balanced(ideal: Ideal) -> list[Floats]:
    """Powers of two near √(out/in) for every unit, the last layer first."""
    layers = (*ideal.hidden, ideal.output)
    scales: list[Floats] = []
    behind: Floats = np.ones(len(ideal.output[1]))
    for k in range(len(ideal.hidden) - 1, -1, -1):
        outward = _norm(sparse.diags_array(behind) @ layers[k + 1][0], axis=0)
        inward = np.hypot(_norm(layers[k][0], axis=1), layers[k][1])
        ratio = np.where((inward > 0) & (outward > 0), outward / np.where(inward > 0, inward, 1.0), 1.0)
        behind = np.exp2(np.clip(np.round(np.log2(ratio) / 2), -500, 500))
        scales.insert(0, behind)
    return scales


def _norm(weight: Any, axis: int) -> Floats:
    matrix = sparse.csr_array(weight)
    largest = float(abs(matrix).max()) if matrix.nnz else 0.0
    if largest == 0:
        return np.zeros(matrix.shape[1 - axis])
    # Squares of 1e200 do not exist.
    return np.sqrt(np.asarray((matrix / largest).power(2).sum(axis=axis)).ravel()) * largest


def _within(ideal: Ideal, rule: Activation, sides: Floats) -> list[Floats]:
    """Scales that keep every unit below the upper end of its activation on the box."""
    low, high = sides
    scales = []
    for weight, bias in ideal.hidden:
        up, down = weight.maximum(0), weight.minimum(0)
        top = up @ high + down @ low + bias
        bottom = up @ low + down @ high + bias
        scales.append(box_scales(bottom, top, rule))
        low, high = np.maximum(bottom, 0.0), np.maximum(top, 0.0)
    return scales
