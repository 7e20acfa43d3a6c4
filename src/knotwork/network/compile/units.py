"""The units of a spline, layer by layer, before anything is said about their scale.

A *value* is a number that a layer knows: an affine functional of its units. The first layer makes the hinges,
R(z) = towards·U(z) + away·U(−z), and lines out of two units each. An interaction takes one more layer per hinge: with
a and b values of one layer, min(a, b) = a − R(a − b) is a value of the next, exact for all a and b. What is finished
is summed for each output and carried on by two units, v = line·(U(v) − U(−v)); a term that finishes in a layer hands
its a to that sum and needs no unit but that of R(a − b). Terms that go on keep a, and the hinges that they still need:
these are never negative, so that one unit R(v) = v does where R is exact.

Units of the layers of a spline with p outputs, r units for an R (1; 2 for leaky activations) and q for a value that is
kept (1; 2 for smooth activations):

- layer 1: r for each distinct hinge, the two of a reflected pair being the same; 2 for each linear feature
- layer k ≥ 2: r for each distinct set of the first k hinges of a term, q for each distinct value that terms of more
  than k hinges keep (the minimum of their first k − 1, every hinge from the (k + 1)th on), and 2·p for the sums if any
  term has k hinges or fewer

"First" is in the order that the term lists them, which is how a search grows them, parent first; where an earlier term
begins with the same ones in another order, that order is taken, because then they share their units.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from torch import nn

from knotwork.arrays import Floats
from knotwork.errors import NetworkError
from knotwork.network.activations import Activation, Kind, activation_rule
from knotwork.network.compile.lower import Ideal, IdealLayer
from knotwork.spline.model import Hinge, Linear, Min, Product, Spline, Term, hinges_of, knots_by_feature

# A hinge of a Min and its slope; a set of them is the minimum of those hinges, whatever their order.
Part = tuple[Hinge, float]
_Key = TypeVar("_Key")


@dataclass
class Value:
    """An affine functional of the units of a layer, Σ weights[u]·U_u + constant.

    gains : by (layer, unit), maximum error of the value when that unit's error is one
    """

    weights: dict[int, float] = field(default_factory=dict)
    constant: float = 0.0
    gains: dict[tuple[int, int], float] = field(default_factory=dict)

    def add_weights(self, factor: float, other: Value) -> None:
        """Add a multiple of another functional of the same layer; the gains stay, for the caller to say."""
        _add(self.weights, factor, other.weights)
        self.constant += factor * other.constant

    def times(self, factor: float) -> Value:
        """Return a multiple of the value."""
        out = Value()
        out.add_weights(factor, self)
        _add(out.gains, abs(factor), self.gains)
        return out


def _add(total: dict[_Key, float], factor: float, other: Mapping[_Key, float]) -> None:
    for key, number in other.items():
        total[key] = total.get(key, 0.0) + factor * number


def _difference(a: Value, b: Value) -> Value:
    out = a.times(1.0)
    out.add_weights(-1.0, b)
    _add(out.gains, 1.0, b.gains)
    return out


def _minimum(kept: Value, bent: Value) -> Value:
    """Return min(a, b) = a − R(a − b), where ``kept`` is a and ``bent`` is R(a − b), one layer on."""
    out = Value()
    out.add_weights(1.0, kept)
    out.add_weights(-1.0, bent)
    # The error of a in both parts is the same, and the error of a minimum is at most the sum of its arguments' errors:
    # the gains of a − b cover both, those of the units that keep a come on top.
    out.gains = {key: max(kept.gains.get(key, 0.0), bent.gains.get(key, 0.0)) for key in {**kept.gains, **bent.gains}}
    return out


class _Layer:
    """A layer in the making: units are known by what they compute, so that no two compute the same."""

    def __init__(self, number: int, rule: Activation) -> None:
        self.number, self.rule = number, rule
        self.places: dict[tuple[Hashable, int], int] = {}
        self.inputs: list[Value] = []

    def _unit(self, name: Hashable, z: Value, direction: int) -> int:
        if (name, direction) not in self.places:
            self.places[name, direction] = len(self.inputs)
            self.inputs.append(z.times(direction))
        return self.places[name, direction]

    def _value(self, name: Hashable, z: Value, coefs: Mapping[int, float]) -> Value:
        weights = {self._unit(name, z, direction): coef for direction, coef in coefs.items()}
        gains = {(self.number, unit): abs(coef) for unit, coef in weights.items()}
        return Value(weights, 0.0, {**z.gains, **gains})

    def bend(self, name: Hashable, z: Value, direction: int = 1) -> Value:
        """R(direction·z)."""
        coefs = {direction: self.rule.towards}
        if self.rule.away != 0:
            coefs[-direction] = self.rule.away
        return self._value(name, z, coefs)

    def line(self, name: Hashable, z: Value) -> Value:
        """Carry z, of any sign."""
        return self._value(name, z, {1: self.rule.line, -1: -self.rule.line})

    def keep(self, name: Hashable, z: Value) -> Value:
        """Carry z ≥ 0."""
        if self.rule.kind is Kind.SMOOTH:  # bends near zero, while its line is exact or nearly so
            return self.line(name, z)
        return self._value(name, z, {1: 1.0})


def count_units(spline: Spline, activation: str | nn.Module = "relu") -> tuple[int, ...]:
    """Units that a spline needs in each hidden layer; the text of this module says how many and why.

    >>> a, b = Hinge(0, 1.0, 1), Hinge(1, 2.0, -1)
    >>> count_units(Spline((a, Min((a, b), (1.0, 1.0))), [0.0], [[1.0], [1.0]], ("x", "z")))
    (2, 3)
    """
    return spline_units(spline, activation_rule(activation)).widths if spline.terms else (0,)


def spline_units(spline: Spline, rule: Activation) -> Ideal:
    """Write the terms as units, shared where terms share them."""
    require_piecewise_linear(spline)
    layers = [_Layer(0, rule)]
    sums = [Value(constant=c) for c in spline.intercept.tolist()]
    known: dict[Hashable, Value] = {}
    pending: list[tuple[tuple[Part, ...], list[float]]] = []
    orders: dict[frozenset[Part], tuple[Part, ...]] = {}
    for term, beta in zip(spline.terms, spline.coef.tolist(), strict=True):
        match term:
            case Linear():
                _add_term(sums, beta, layers[0].line((term.feature, 0.0), _distance(term.feature, 0.0)))
            case Hinge():
                _add_term(sums, beta, _hinge(layers[0], term))
            case Min():
                pending.append((_in_shared_order(term, orders), beta))
                known |= {hinge: _hinge(layers[0], hinge) for hinge in term.hinges}
    for total in sums:  # coefficients of one unit may cancel, and so do its errors
        total.gains = {(0, unit): abs(weight) for unit, weight in total.weights.items()}
    if not layers[0].inputs:  # no terms: one unit that adds nothing, so that there is a layer to grow
        layers[0].bend((0, 0.0), _distance(0, 0.0))
    additive = len(pending) < len(spline.terms)
    for k in range(2, max((len(parts) for parts, _ in pending), default=1) + 1):
        layers.append(_Layer(k - 1, rule))
        additive = additive or any(len(parts) == k for parts, _ in pending)
        known, sums = _next_layer(layers[-1], k, pending, known, sums, additive)
        pending = [(parts, beta) for parts, beta in pending if len(parts) > k]
    hinges = any(beta.any() and isinstance(term, Hinge) for term, beta in zip(spline.terms, spline.coef, strict=True))
    size = float(spline_sizes(spline).max()) or 1.0
    # The sums of a deeper network are carried whatever the coefficients are.
    return _ideal(layers, sums, len(spline.feature_names), size, bends=hinges or len(layers) > 1)


def require_piecewise_linear(spline: Spline) -> None:
    """Refuse a spline that no network can hold."""
    for term in spline.terms:
        if isinstance(term, Product):
            raise NetworkError(
                f"a product of hinges is not piecewise linear, so no ReLU network computes it, got "
                f"{term.describe(spline.feature_names)}; fit with interaction='min', whose terms are"
            )


def _in_shared_order(term: Min, orders: dict[frozenset[Part], tuple[Part, ...]]) -> tuple[Part, ...]:
    """Return the parts of a term, in the order of earlier terms as far as these begin with the same ones.

    ``orders`` has the order of every set that a term so far begins with; those of this one are added.
    """
    parts = tuple(zip(term.hinges, term.slopes, strict=True))
    for k in range(len(parts), 1, -1):
        if (begun := orders.get(frozenset(parts[:k]))) is not None:
            parts = begun + parts[k:]
            break
    for k in range(2, len(parts) + 1):
        orders.setdefault(frozenset(parts[:k]), parts[:k])
    return parts


def _distance(feature: int, knot: float) -> Value:
    """x[feature] − knot, a functional of the features."""
    return Value({feature: 1.0}, -knot)


def _hinge(layer: _Layer, hinge: Hinge) -> Value:
    place = (hinge.feature, hinge.knot)
    return layer.bend(place, _distance(*place), hinge.sign)


def _add_term(sums: list[Value], beta: list[float], term: Value) -> None:
    for total, b in zip(sums, beta, strict=True):
        total.add_weights(b, term)


def _next_layer(
    layer: _Layer,
    k: int,
    pending: list[tuple[tuple[Part, ...], list[float]]],
    known: dict[Hashable, Value],
    sums: list[Value],
    additive: bool,
) -> tuple[dict[Hashable, Value], list[Value]]:
    """Take the k-th hinge into the terms that have one; return what the layer knows then, and the outputs' sums."""
    after: dict[Hashable, Value] = {}
    finishing: list[tuple[list[float], Value, Value]] = []
    for parts, beta in pending:
        # The minimum of one hinge is that hinge, known by itself and without its slope.
        name, factor = parts[0] if k == 2 else (frozenset(parts[: k - 1]), 1.0)
        hinge, slope = parts[k - 1]
        a, b = known[name].times(factor), known[hinge].times(slope)
        bent = layer.bend(frozenset(parts[:k]), _difference(a, b))
        if len(parts) == k:
            finishing.append((beta, a, bent))
        else:
            kept = layer.keep(name, known[name]).times(factor)
            after[frozenset(parts[:k])] = _minimum(kept, bent)
            after |= {later: layer.keep(later, known[later]) for later, _ in parts[k:]}
    if not additive:
        return after, sums
    carried: list[Value] = []
    for o, total in enumerate(sums):
        handed_on = total.times(1.0)
        for beta, a, _ in finishing:
            # Without its gains: the error of a is in those of the term.
            handed_on.add_weights(beta[o], a)
        new = layer.line(("sum", o), handed_on)
        for beta, _, bent in finishing:
            new.add_weights(-beta[o], bent)
            _add(new.gains, abs(beta[o]), bent.gains)
        carried.append(new)
    return after, carried


def _ideal(layers: list[_Layer], sums: list[Value], features: int, size: float, *, bends: bool) -> Ideal:
    """Write values as matrices. R and the line pass errors on without enlarging them; errors of units add up."""
    total = sum(len(layer.inputs) for layer in layers)
    hidden: list[IdealLayer] = []
    before = features
    for layer in layers:
        units = len(layer.inputs)
        own = np.array([max(v.gains.get((layer.number, unit), 0.0) for v in sums) for unit in range(units)])
        hidden.append(IdealLayer(*_matrix(layer.inputs, before), np.where(own > 0, own, 1.0) * total))
        before = units
    return Ideal(tuple(hidden), *_matrix(sums, before), size=size, bends=bends)


def _matrix(values: list[Value], columns: int) -> tuple[Floats, Floats]:
    weight = np.zeros((len(values), columns))
    for row, value in zip(weight, values, strict=True):
        row[list(value.weights)] = list(value.weights.values())
    return weight, np.array([value.constant for value in values])


def spline_sizes(spline: Spline) -> Floats:
    """Size of the parts of each output: Σ|β|·(spread of the feature's knots), (p,)."""
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
    return total
