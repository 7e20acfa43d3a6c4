"""One lowering: the ideal units R(z) of any function become units of an activation, a chain.

A unit takes s·z + shift in place of z and hands on (act + lift)/s. Exact activations take any s: powers of two that
balance what goes in and what comes out, which changes no bit of the function and keeps training calm. Smooth ones are
off by C/s, so a tolerance decides s. Those that saturate are exact up to some size, so a box around the features does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import sparse

from knotwork.arrays import Floats
from knotwork.errors import NetworkError
from knotwork.network.activations import Activation, Kind
from knotwork.network.chain import Chain, Conversion, Layer
from knotwork.network.compile.balance import balancing_scales

# Default tolerance of smooth activations, as a share of the size of a function's parts.
DEFAULT_TOLERANCE = 1e-3
# Weights beyond which dense layers are refused: 4 GB in double precision.
MAX_WEIGHTS = 500_000_000


@dataclass(frozen=True)
class IdealLayer:
    """Units R(weight·before + bias), ``before`` being the features or the units of the layer before.

    weight : (H, in) dense or sparse; bias : (H,)
    gain : (H,) an output's error is at most a tolerance if every unit's error is at most tolerance/gain
    """

    weight: Any
    bias: Floats
    gain: Floats


@dataclass(frozen=True)
class Ideal:
    """A function as layers of ideal units.

    hidden : the layers; weight, bias : (p, H), (p,) what the outputs are of the last one
    size : of the function's parts, for the default of a tolerance
    bends : False if all units only carry values on, so that activations whose line is exact are exact
    """

    hidden: tuple[IdealLayer, ...]
    weight: Any
    bias: Floats
    size: float
    bends: bool = True

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each layer."""
        return tuple(len(layer.bias) for layer in self.hidden)


def lower(
    ideal: Ideal,
    rule: Activation,
    *,
    tolerance: float | None = None,
    sides: Floats | None = None,
    total_scale: float | None = None,
) -> Chain:
    """Write ideal units as units of an activation.

    ``sides`` (2, d) is the box of those that saturate. Smooth units have a scale by the tolerance, or, where a
    ``total_scale`` is given, such that those of a layer add up to it; then nothing bounds the error.
    """
    weights = [layer.weight for layer in ideal.hidden] + [ideal.weight]
    biases = [layer.bias for layer in ideal.hidden] + [ideal.bias]
    total = sum(weight.shape[0] * weight.shape[1] for weight in weights)
    if total > MAX_WEIGHTS:
        raise NetworkError(
            f"dense layers of this function would hold {total:.3g} weights, at most {MAX_WEIGHTS:.3g} are built; "
            f"simplify() it first, or use fewer pieces or smaller sets"
        )
    bound, box = 0.0, None
    if rule.kind is Kind.EXACT:
        scales = balancing_scales(weights)
    elif rule.kind is Kind.SMOOTH and total_scale is not None:
        scales = [layer.gain * (total_scale / layer.gain.sum()) for layer in ideal.hidden]
        bound = np.inf
    elif rule.kind is Kind.SMOOTH:
        tolerance = DEFAULT_TOLERANCE * ideal.size if tolerance is None else tolerance
        if not 0 < tolerance < np.inf:
            raise NetworkError(f"tolerance must be positive, got {tolerance}")
        scales = [layer.gain * rule.unit_error / tolerance for layer in ideal.hidden]
        bound = float(tolerance) if ideal.bends or rule.line_error > 0 else 0.0
    else:
        if sides is None:
            raise NetworkError(
                f"{type(rule.module).__name__} holds a function only on a box; pass box=(minimum, maximum) of the "
                f"features"
            )
        scales, box = _box_scales(ideal, rule, sides), torch.from_numpy(sides.copy())
    return Chain.of(_scaled(weights, biases, scales, rule), rule, Conversion(bound, box))


def _scaled(weights: list[Any], biases: list[Floats], scales: list[Floats], rule: Activation) -> list[Layer]:
    """Write layers of ideal units, the output layer last, with units of the given scales: act(s·z + shift)."""
    layers = []
    for k, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        w = weight.toarray() if sparse.issparse(weight) else np.array(weight)
        b = np.array(bias)
        if k > 0:  # from (act + lift)/s of the layer before to its act
            w = w / scales[k - 1]
            b = b + rule.lift * w.sum(axis=1)
        if k < len(scales):
            w, b = w * scales[k][:, None], b * scales[k] + rule.shift
        layers.append(Layer(torch.from_numpy(np.ascontiguousarray(w)), torch.from_numpy(b)))
    return layers


def _box_scales(ideal: Ideal, rule: Activation, sides: Floats) -> list[Floats]:
    """Powers of two that keep every unit below the upper end of its activation on the box, by interval arithmetic."""
    low, high = sides
    scales = []
    for layer in ideal.hidden:
        weight = sparse.csr_array(layer.weight)
        up, down = weight.maximum(0), weight.minimum(0)
        top, bottom = up @ high + down @ low + layer.bias, up @ low + down @ high + layer.bias
        # A unit that is zero all over the box may have any scale: its distance, so that it adds no rounding of its own.
        reach = np.where(top > 0, top, np.maximum(np.abs(bottom), np.abs(top)))
        reach = np.where(reach > 0, reach, 1.0)
        scales.append(np.exp2(np.floor(np.log2((rule.top - rule.shift) / reach))))
        low, high = np.maximum(bottom, 0.0), np.maximum(top, 0.0)
    return scales
