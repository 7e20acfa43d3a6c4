"""How large the network of a piecewise-linear function is, known without building it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from knotwork.network.activations import Activation, Kind, activation_rule
from knotwork.network.compile.convert import own_activation, resolve_network, scaling_of
from knotwork.network.compile.function import function_chain, is_held
from knotwork.network.compile.lattice import groups_of, step_widths
from knotwork.network.compile.units import spline_units
from knotwork.network.fold import folded, front_layer, front_rule
from knotwork.parameters import checked, switch
from knotwork.pwl.lattice import LatticePWL
from knotwork.pwl.through import in_coordinates
from knotwork.spline.model import Spline


@dataclass(frozen=True)
class NetworkSize:
    """Hidden layers and units of a converted function.

    widths : units of each hidden layer
    depth_bound : ⌈log₂ M⌉ + ⌈log₂ max|s|⌉ for M sets, at least 1; the depth of the network is never more
    published : units of each layer with four units a pair and nothing shared; None for functions that are no lattice
    """

    widths: tuple[int, ...]
    depth_bound: int
    published: tuple[int, ...] | None = None

    @property
    def units(self) -> int:
        """Hidden units in all."""
        return sum(self.widths)

    @property
    def layers(self) -> int:
        """Hidden layers."""
        return len(self.widths)


@checked(fold=switch())
def network_size(model: Any, activation: str | nn.Module | None = None, *, fold: bool = False) -> NetworkSize:
    """Count the hidden units and layers that ``to_network`` will make of a model; parameters as there.

    A line shares its units with a hinge that bends where they do: at zero in a folded network, at the centre otherwise.

    Examples
    --------
    >>> import knotwork as kw
    >>> f = kw.LatticePWL([[0.0, 1.0], [0.0, -1.0], [2.0, 0.0]], [(0, 1), (2,)])
    >>> size = network_size(f)
    >>> size.units, size.layers, size.depth_bound, sum(size.published)
    (4, 2, 2, 10)
    """
    parts = resolve_network(model)
    if parts.network is not None:
        own_activation(parts, activation)
        widths = (folded(parts.network) if fold else parts.network).widths
        return NetworkSize(widths, len(widths))
    function, rule = parts.function, activation_rule("relu" if activation is None else activation)
    assert function is not None
    if not fold:
        function = in_coordinates(function, scaling_of(function, parts.coordinates))
    if isinstance(function, Spline):
        widths = spline_units(function, rule).widths
        if fold and is_held(function):
            widths = folded_widths(function, rule, widths)
        return NetworkSize(widths, len(widths))
    theta, groups, _ = groups_of(function)
    max_sets = max(len(sets) for sets in groups)
    largest = max(len(s) for sets in groups for s in sets)
    bound = max(1, (max_sets - 1).bit_length() + (largest - 1).bit_length())
    published = published_widths(function) if isinstance(function, LatticePWL) else None
    return NetworkSize(step_widths(theta, groups, rule), bound, published)


def folded_widths(spline: Spline, rule: Activation, widths: tuple[int, ...]) -> tuple[int, ...]:
    """Units of each hidden layer, those that hold features and outputs among them; ``widths`` are the others."""
    if rule.kind is not Kind.BOXED:  # which asks for a box
        return folded(function_chain(spline, rule)).widths
    holding = front_rule(rule.module)
    used = np.unique([f for term in spline.terms for f in term.features] or [0])
    if spline.limits is not None:
        widths = (len(front_layer(spline.limits, used, holding)[0].bias), *widths)
    if spline.output_limits is not None:
        outputs = np.arange(len(spline.output_limits))
        widths = (*widths, len(front_layer(spline.output_limits, outputs, holding)[0].bias))
    return widths


def published_widths(lattice: LatticePWL) -> tuple[int, ...]:
    """Units of each hidden layer with four units a pair and nothing shared between sets."""
    return tuple(sum(2 if a == b else 4 for a, b in pairs) for _, pairs in published_levels(lattice))


def published_levels(lattice: LatticePWL) -> list[tuple[int, list[tuple[int, int]]]]:
    """Pairs of places of each level: first within sets (sense +1), then within outputs (−1); (a, a) is carried on."""
    sizes = [[len(s) for s in sets] for sets in lattice.outputs]
    levels: list[tuple[int, list[tuple[int, int]]]] = []
    counts = [n for sets in sizes for n in sets]
    for sense, run in ((1, counts), (-1, [len(sets) for sets in sizes])):
        run = list(run)
        while max(run) > 1 or (not levels and sense < 0):
            pairs: list[tuple[int, int]] = []
            start = 0
            for n in run:
                pairs += [(start + k, start + min(k + 1, n - 1)) for k in range(0, n, 2)]
                start += n
            run = [-(-n // 2) for n in run]
            levels.append((sense, pairs))
    return levels
