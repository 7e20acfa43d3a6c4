"""to_relu: a network with smooth activations as a ReLU network, with a bound on what that changes.

Every unit's curve is replaced by a piecewise-linear interpolant on the range that the unit really sees (interval
arithmetic through the layers). An error of e in a unit moves an output by at most g·e, where g multiplies absolute
weights and maximum slopes along the way. The shares of the tolerance minimise the number of pieces, about Σ e^(−1/2):
e ∝ g^(−2/3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from knotwork.arrays import Floats
from knotwork.errors import NetworkError
from knotwork.network.activations import activation_rule
from knotwork.network.chain import Chain, Conversion, Layer, build, flags_kept, placement, read_chain
from knotwork.network.compile.interpolants import Curve, Interpolant, interpolate, smooth_curve
from knotwork.parameters import checked, number, seed, whole
from knotwork.pwl.boxes import affine_range, read_box


@dataclass(frozen=True)
class ReluReport:
    """What ``to_relu`` made.

    network : Sequential of Linear and ReLU; its ``conversion`` has the bound and the box too
    bound : maximum difference of any output from the smooth network's on the box, up to rounding
    observed : maximum difference on the samples
    pieces : pieces of all interpolants, of each layer; ReLU layers count none
    """

    network: nn.Sequential
    bound: float
    observed: float
    pieces: tuple[int, ...]


@checked(tolerance=number(), samples=whole(1), random_state=seed())
def to_relu(
    net: nn.Module, box: Any, tolerance: float, *, samples: int = 4096, random_state: int | None = None
) -> ReluReport:
    """Replace smooth activations by piecewise-linear ones: a ReLU network of the same depth, close on a box.

    Parameters
    ----------
    net : Sequential of Linear and Sigmoid, Tanh, Softplus, GELU, SiLU or ReLU
    box : (minimum, maximum), each a number or one per input
    tolerance : maximum change of any output on the box
    samples : points of the box on which the two networks are compared

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    >>> report = to_relu(net, (-1, 1), 1e-2, random_state=0)
    >>> report.observed <= report.bound <= 1e-2
    True
    """
    if not 0 < tolerance < np.inf:
        raise NetworkError(f"tolerance must be positive, got {tolerance}")
    chain = read_chain(net)
    c = chain.coordinates
    if not chain.modules:
        raise NetworkError("the network must have an activation to replace, got none: it is affine already")
    curves = [smooth_curve(module.double()) for module in chain.modules]
    maps = [(layer.weight.numpy(), layer.bias.numpy()) for layer in chain.layers]
    raw_sides = read_box(box, chain.inputs)
    sides = c.features(raw_sides)
    # What reaches the outputs, in their own units of measurement.
    last = np.abs(maps[-1][0]) * c.y_scale[:, None]
    gains = _gains(maps, curves, last)
    share = _shares(gains, curves, tolerance)

    hidden: list[tuple[Floats, Floats]] = []
    error = np.zeros(len(sides[0]))  # of each input of the layer
    low, high = sides
    read: tuple[Floats, Floats] = (np.eye(len(low)), np.zeros(len(low)))  # the layer's inputs from the units before
    pieces = []
    for (weight, bias), curve, allowed in zip(maps, curves, share, strict=False):
        z_low, z_high = affine_range(weight, bias, np.stack([low, high]))
        error = np.abs(weight) @ error
        into = (weight @ read[0], weight @ read[1] + bias)
        if curve is None:
            hidden.append(into)
            read = (np.eye(len(bias)), np.zeros(len(bias)))
            low, high = np.maximum(z_low, 0.0), np.maximum(z_high, 0.0)
            pieces.append(0)
            continue
        parts = [interpolate(curve, *ends) for ends in zip(z_low, z_high, allowed, strict=True)]
        layer, read = _units(into, parts)
        hidden.append(layer)
        error = curve.slope * error + 2 * curve.slack + [part.error for part in parts]
        low, high = np.array([p.values.min() for p in parts]), np.array([p.values.max() for p in parts])
        pieces.append(sum(len(part.knots) - 1 for part in parts))
    weight, bias = maps[-1]
    bound = float((last @ error).max())
    layers = [*hidden, (weight @ read[0], weight @ read[1] + bias)]
    relu = Chain.of(
        [Layer(torch.from_numpy(w), torch.from_numpy(b)) for w, b in layers],
        activation_rule("relu"),
    )
    if chain.scaling is not None:
        relu = relu.with_scaling(c)
    relu = replace(relu, conversion=Conversion(bound=bound, box=torch.from_numpy(raw_sides.copy())))
    dtype, device = placement(net)
    made = build(relu, dtype, device)
    return ReluReport(made, bound, _observed(net, made, raw_sides, samples, random_state), tuple(pieces))


def _gains(maps: list[tuple[Floats, Floats]], curves: list[Curve | None], last: Floats) -> list[Floats]:
    """Maximum change of an output for an error of one in each unit of each layer; ``last`` is that of the last one."""
    after = last
    gains = [after.max(axis=0)]
    for (weight, _), curve in zip(reversed(maps[1:-1]), reversed(curves[1:]), strict=True):
        after = (after * (1.0 if curve is None else curve.slope)) @ np.abs(weight)
        gains.append(after.max(axis=0))
    return gains[::-1]


def _shares(gains: list[Floats], curves: list[Curve | None], tolerance: float) -> list[Floats]:
    """Share a tolerance out over the units of smooth layers: e ∝ g^(−2/3), Σ g·e = tolerance."""
    curved = [g for g, curve in zip(gains, curves, strict=True) if curve is not None]
    # A unit that reaches no output may have any error: it gets the tolerance.
    total = sum(float(np.cbrt(g).sum()) for g in curved)
    with np.errstate(divide="ignore"):
        return [np.minimum(tolerance / total * g ** (-2 / 3), 1e300) if total > 0 else g + tolerance for g in gains]


def _units(
    into: tuple[Floats, Floats], parts: list[Interpolant]
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Write interpolants as units: value(z) = value(low) + Σ change of slope · R(z − knot); z is never below low."""
    rows: list[Floats] = []
    biases: list[float] = []
    entries: list[tuple[int, int, float]] = []
    constant = np.array([part.values[0] for part in parts])
    for k, part in enumerate(parts):
        slopes = np.diff(part.values) / np.diff(part.knots)
        for knot, change in zip(part.knots, np.diff(slopes, prepend=0.0), strict=False):
            entries.append((k, len(rows), float(change)))
            rows.append(into[0][k])
            biases.append(float(into[1][k] - knot))
    if not rows:  # all constant: one unit that adds nothing
        rows, biases = [np.zeros(into[0].shape[1])], [0.0]
    read = np.zeros((len(parts), len(rows)))
    for k, column, value in entries:
        read[k, column] = value
    return (np.array(rows), np.array(biases)), (read, constant)


def _observed(net: nn.Module, made: nn.Module, sides: Floats, samples: int, random_state: int | None) -> float:
    X = np.random.default_rng(random_state).uniform(sides[0], sides[1], size=(samples, sides.shape[1]))
    dtype, device = placement(net)
    rows = torch.from_numpy(X).to(device, dtype)
    with flags_kept(net), torch.no_grad():
        return float((net.eval()(rows) - made(rows)).abs().max())
