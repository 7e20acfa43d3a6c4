"""How large the network of a piecewise-linear function is, known without building it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from knotwork.network.activations import activation_rule
from knotwork.network.compile.assemble import spline_chain
from knotwork.network.compile.convert import own_activation, resolve_network
from knotwork.network.compile.lattice import step_widths
from knotwork.network.compile.piecewise import groups_of
from knotwork.network.compile.published import published_widths
from knotwork.pwl.lattice import LatticePWL
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


def network_size(model: Any, activation: str | nn.Module | None = None) -> NetworkSize:
    """Count the hidden units and layers that ``to_network`` will make of a model; parameters as there.

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
        return NetworkSize(parts.network.widths, len(parts.network.widths))
    function, rule = parts.function, activation_rule("relu" if activation is None else activation)
    assert function is not None
    if isinstance(function, Spline):
        # Widths do not depend on the box that saturating activations ask for.
        widths = spline_chain(function, rule, box=(0.0, 1.0)).widths
        return NetworkSize(widths, len(widths))
    theta, groups, _ = groups_of(function)
    most_sets = max(len(sets) for sets in groups)
    largest = max(len(s) for sets in groups for s in sets)
    bound = max(1, (most_sets - 1).bit_length() + (largest - 1).bit_length())
    published = published_widths(function) if isinstance(function, LatticePWL) else None
    return NetworkSize(step_widths(theta, groups, rule), bound, published)


def arora_units(lattice: LatticePWL) -> int:
    """Units that Arora et al. (2018, lemma D.3) grant: 4(2m − 1) for a maximum of m values, per set and per output."""
    return sum(4 * (2 * len(sets) - 1) + sum(4 * (2 * len(s) - 1) for s in sets) for sets in lattice.outputs)


def arora_layers(lattice: LatticePWL) -> int:
    """Hidden layers that suffice for any function of d features: ⌈log₂(d + 1)⌉ (Arora et al. 2018, theorem 2.1)."""
    return lattice.inputs.bit_length()
