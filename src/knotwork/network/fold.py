"""Chains without scaling: the first and the last layer take it in, and ReLU units take the limits in.

A feature held at its limits is piecewise linear: held(x) = lo + R(x − lo) − R(x − hi). Where every unit of the first
layer reads one feature, as a spline's do, R(w·held(x) + b) is a unit that ends with R(x − hi), or R(lo − x) for w < 0,
and units of a feature share these ends: the depth stays. Elsewhere a layer of two ReLU units a feature stands in front,
or of four leaky ones in a leaky network. Outputs that are held take such a layer at the end.

Beyond the limits large values cancel: the error there is rounding of the size of w·x. A ``Scaling`` holds its features
without any.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from knotwork.data.coordinates import Coordinates
from knotwork.data.limits import Limits
from knotwork.errors import NetworkError
from knotwork.network.activations import Activation, Kind, activation_rule
from knotwork.network.chain import Chain, Layer


def folded(chain: Chain) -> Chain:
    """Return the same function without scaling.

    >>> from knotwork.network.activations import activation_rule
    >>> one, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    >>> chain = Chain.of([Layer(one, -one[0]), Layer(one, zero)], activation_rule("relu"))      # R(x − 1)
    >>> held = chain.with_scaling(replace(Coordinates.identity(1, 1), limits=Limits([0.0], [3.0])))
    >>> [(layer.weight.tolist(), layer.bias.tolist()) for layer in folded(held).layers]         # R(x − 1) − R(x − 3)
    [([[1.0], [1.0]], [-1.0, -3.0]), ([[1.0, -1.0]], [0.0])]
    """
    if chain.scaling is None:
        return chain
    bare = chain.in_coordinates(Coordinates.identity(chain.inputs, chain.outputs))
    if bare.scaling is None:
        return bare
    left, bare = bare.scaling, replace(bare, scaling=None)
    if left.limits is not None:
        bare = _with_ends(bare, left.limits) if has_simple_units(bare) else _behind_a_front(bare, left.limits)
    return bare if left.y_limits is None else _held_behind(bare, left.y_limits)


def has_simple_units(chain: Chain) -> bool:
    """Whether the first layer is of ReLU units that read one feature each."""
    if not chain.hidden or type(chain.modules[0]) is not nn.ReLU:
        return False
    return bool(((chain.hidden[0].weight != 0).sum(dim=1) <= 1).all())


@dataclass
class _Units:
    """A first layer as it grows: weights (feature, weight) and biases of its units."""

    inputs: int
    feature: list[int] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    bias: list[float] = field(default_factory=list)

    def add(self, feature: int, weight: float, bias: float) -> int:
        """Add a unit; return its number."""
        self.feature.append(feature)
        self.weight.append(weight)
        self.bias.append(bias)
        return len(self.bias) - 1

    def layer(self) -> Layer:
        weight = torch.zeros(len(self.bias), self.inputs, dtype=torch.float64)
        weight[torch.arange(len(self.bias)), torch.tensor(self.feature)] = torch.tensor(self.weight, dtype=weight.dtype)
        return Layer(weight, torch.tensor(self.bias, dtype=weight.dtype))


def _with_ends(chain: Chain, limits: Limits) -> Chain:
    """Let the units of single features end at the limits, by units that they share."""
    first, second = chain.layers[:2]
    units, ends = _Units(chain.inputs), dict[tuple[int, int], int]()
    read: list[tuple[int, int, float]] = []  # old unit, new unit, factor
    constant = np.zeros(len(first.bias))
    for j, (row, bias) in enumerate(zip(first.weight.numpy(), first.bias.tolist(), strict=True)):
        f = int(np.abs(row).argmax())
        w = float(row[f])
        if w == 0:
            constant[j] = max(bias, 0.0)
            continue
        sign = 1 if w > 0 else -1
        low, high = (limits.lower[f], limits.upper[f])[::sign]  # in the direction that the unit rises in
        if np.isfinite(high) and w * high + bias <= 0:
            continue  # it never rises
        if np.isfinite(low) and w * low + bias > 0:
            constant[j], bias = w * low + bias, -w * low
        read.append((j, units.add(f, w, bias), 1.0))
        if np.isfinite(high):
            if (f, sign) not in ends:
                ends[f, sign] = units.add(f, float(sign), float(-sign * high))
            read.append((j, ends[f, sign], -abs(w)))
    if not units.bias:  # a layer keeps a unit, which adds nothing
        units.add(0, 0.0, 0.0)
    old, new, factor = (np.array(part) for part in zip(*read, strict=True)) if read else np.empty((3, 0))
    weights = torch.zeros(len(second.bias), len(units.bias), dtype=torch.float64)
    columns = second.weight[:, torch.from_numpy(old.astype(np.int64))] * torch.from_numpy(factor.astype(np.float64))
    weights.index_add_(1, torch.from_numpy(new.astype(np.int64)), columns)
    behind = Layer(weights, second.bias + second.weight @ torch.from_numpy(constant))
    return chain.with_layers([units.layer(), behind, *chain.layers[2:]])


def _behind_a_front(chain: Chain, limits: Limits) -> Chain:
    """Put a layer that holds the features in front of a chain."""
    first = chain.layers[0]
    rule = front_rule(chain.modules[0] if chain.modules else nn.ReLU())
    front, read = front_layer(limits, np.flatnonzero((first.weight != 0).any(dim=0).numpy()), rule)
    behind = first.after(read)
    return replace(
        chain,
        hidden=(front, *([behind, *chain.hidden[1:]] if chain.hidden else [])),
        output=chain.output if chain.hidden else behind,
        modules=(rule.new_module(), *chain.modules),
    )


def _held_behind(chain: Chain, limits: Limits) -> Chain:
    """Put a layer that holds the outputs behind a chain."""
    rule = front_rule(chain.modules[-1] if chain.modules else nn.ReLU())
    units, read = front_layer(limits, np.arange(len(limits)), rule)
    hidden, modules = (*chain.hidden, units.after(chain.output)), (*chain.modules, rule.new_module())
    return replace(chain, hidden=hidden, output=read, modules=modules)


def front_rule(module: nn.Module) -> Activation:
    """Return the activation of a layer in front: the network's own if it can hold features exactly, or ReLU."""
    try:
        rule = activation_rule(module)
    except NetworkError:
        return activation_rule("relu")
    return rule if rule.kind is Kind.EXACT else activation_rule("relu")


def front_layer(limits: Limits, used: NDArray[np.intp], rule: Activation) -> tuple[Layer, Layer]:
    """Return the layer whose units hold the features ``used``, and how all features, held, are read from them."""
    units = _Units(len(limits))
    read: list[tuple[int, int, float]] = []  # feature, unit, factor
    constant = np.zeros(len(limits))

    def bend(f: int, sign: float, at: float, factor: float) -> None:
        """Add factor·R(sign·(x − at))."""
        read.append((f, units.add(f, sign, -sign * at), factor * rule.towards))
        if rule.away != 0:
            read.append((f, units.add(f, -sign, sign * at), factor * rule.away))

    for f in used.tolist():
        low, high = float(limits.lower[f]), float(limits.upper[f])
        if np.isfinite(low):
            constant[f] = low
            bend(f, 1.0, low, 1.0)
            if np.isfinite(high):
                bend(f, 1.0, high, -1.0)
        elif np.isfinite(high):
            constant[f] = high
            bend(f, -1.0, high, -1.0)
        else:
            read += [(f, units.add(f, sign, 0.0), sign * rule.line) for sign in (1.0, -1.0)]
    if not units.bias:  # a layer keeps a unit, which adds nothing
        units.add(0, 0.0, 0.0)
    held = np.zeros((len(limits), len(units.bias)))
    for f, unit, factor in read:
        held[f, unit] = factor
    return units.layer(), Layer(torch.from_numpy(held), torch.from_numpy(constant))
