"""The units of minima of maxima of affine functions, layer by layer.

max(x, y) = x + R(y − x) and min(x, y) = x − R(x − y) cost one unit each, plus what it takes to carry x on:

- two units R(v), R(−v) for a value v of either sign: three units a pair, the general case;
- one unit for the part of x that is a sum of units already, because that is not negative and R leaves it alone;
- the affine part of x needs two units per *feature* in all (features are carried, and every affine function can be read
  off them) or two per distinct leading piece, whichever is less; nothing at all if it is constant.

The first layers split x like this as long as it pays, the others carry values whole; where to change is decided by
counting. A layer of p distinct pairs that splits has at most 2p + 2·min(d, p) units if it takes maxima; all layers
together never have more than three units a pair and two for every value without a partner. Leaky activations take one
unit more for every R, and hold the same function exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from knotwork.arrays import Floats
from knotwork.network.activations import Activation, Kind
from knotwork.network.compile.lower import Ideal, IdealLayer
from knotwork.network.compile.pairing import Level, Plan, plan_pairs
from knotwork.pwl.lattice import LatticePWL, Sets
from knotwork.pwl.maxsum import MaxSum

Key = tuple[str, int]


@dataclass(frozen=True)
class Node:
    """What is known of a value while units are counted: its leading piece, whether parts are added and taken off."""

    root: int
    plus: bool = False
    minus: bool = False


@dataclass(frozen=True)
class Step:
    """One hidden layer: what it computes, in order. ``signed`` and ``line`` keys take two units, ``new`` one R."""

    level: Level
    keys: tuple[Key, ...]
    split: bool


def lattice_units(function: LatticePWL | MaxSum, rule: Activation) -> Ideal:
    """Write minima of maxima, or sums of maxima, as units."""
    theta, groups, combine = groups_of(function)
    plan, steps = planned_steps(theta, groups, rule)
    layers, output = _ideal_layers(plan, steps, theta, rule)
    # Maxima and minima pass errors on without enlarging them, so that every layer adds no more than those of a bend and
    # of its line.
    gain = len(layers) * max(float(np.abs(combine).sum(axis=1).max()), np.finfo(float).tiny)
    gain *= (rule.error + rule.line_error) / rule.unit_error if rule.unit_error > 0 else 1.0
    hidden = tuple(IdealLayer(weight, bias, np.full(len(bias), gain)) for weight, bias in layers)
    bends = any(kind == "new" for step in steps for kind, _ in step.keys)
    size = float(np.abs(theta).max()) or 1.0
    return Ideal(hidden, combine @ output[0], combine @ output[1], size=size, bends=bends)


def groups_of(function: LatticePWL | MaxSum) -> tuple[Floats, tuple[Sets, ...], Floats]:
    """Return pieces (P, d + 1), groups of sets, and what each group adds to each output (outputs, groups)."""
    if isinstance(function, LatticePWL):
        return function.theta, function.outputs, np.eye(len(function.outputs))
    groups: tuple[Sets, ...] = tuple((g,) for g in function.groups)
    combine = function.coef.T
    sloped = np.flatnonzero(function.affine.any(axis=1))
    # The affine part of an output is one more piece, in a group of its own.
    first = len(function.theta)
    groups += tuple((((first + k),),) for k in range(len(sloped)))
    extra = np.eye(len(function.affine))[:, sloped]
    return np.concatenate([function.theta, function.affine[sloped]]), groups, np.hstack([combine, extra])


def planned_steps(
    theta: Floats, groups: Sequence[Sequence[Sequence[int]]], rule: Activation
) -> tuple[Plan, tuple[Step, ...]]:
    """Decide what each layer computes, with as few units as the rules above can do."""
    plan = plan_pairs(theta, groups)
    if not plan.levels:  # affine functions: one layer that carries them, so that there is a layer to grow
        number = {end: k for k, end in enumerate(dict.fromkeys(plan.ends))}
        plan = Plan((Level(1, tuple((end, -1) for end in number)),), tuple(number[end] for end in plan.ends))
    if rule.kind is Kind.SMOOTH:  # nothing passes such a unit unchanged, so only differences of two units carry
        return plan, _steps(plan, theta, 0, exact=False)
    choices = [_steps(plan, theta, switch, exact=True) for switch in range(len(plan.levels) + 1)]
    return plan, min(choices, key=lambda steps: sum(_width(s, rule) for s in steps))


def _width(step: Step, rule: Activation) -> int:
    cost = {"new": 1 if rule.away == 0 else 2, "plus": 1, "minus": 1, "signed": 2, "piece": 2, "x": 2}
    return sum(cost[kind] for kind, _ in step.keys)


def step_widths(theta: Floats, groups: Sequence[Sequence[Sequence[int]]], rule: Activation) -> tuple[int, ...]:
    """Units of each hidden layer, without building it."""
    return tuple(max(1, _width(step, rule)) for step in planned_steps(theta, groups, rule)[1])


def _steps(plan: Plan, theta: Floats, switch: int, *, exact: bool) -> tuple[Step, ...]:
    """List the keys of every layer when the first ``switch`` of them split what they carry."""
    flat = np.asarray(~theta[:, 1:].any(axis=1))
    nodes = [Node(j) for j in range(len(theta))]
    steps = []
    for t, level in enumerate(plan.levels):
        split = t < switch
        keys: dict[Key, None] = {}
        roots: dict[int, None] = {}
        merged = []
        for i, (lead, other) in enumerate(level.merges):
            node = nodes[lead]
            if other >= 0:
                keys["new", i] = None
            apart = split or (flat[node.root] and exact)
            if apart:
                if node.plus:
                    keys["plus", lead] = None
                if node.minus:
                    keys["minus", lead] = None
                if not flat[node.root]:
                    roots[node.root] = None
            else:
                keys["signed", lead] = None
            merged.append(
                Node(
                    node.root,
                    plus=(apart and node.plus) or (other >= 0 and level.sense > 0),
                    minus=(apart and node.minus) or (other >= 0 and level.sense < 0),
                )
            )
        features = np.flatnonzero(theta[list(roots), 1:].any(axis=0)).tolist() if roots else []
        carried = [("x", f) for f in features] if len(features) < len(roots) else [("piece", p) for p in roots]
        steps.append(Step(level, (*keys, *carried), split))
        nodes = merged
    return tuple(steps)


@dataclass(frozen=True)
class Forms:
    """Values as functions of a layer's ideal units u: affine·u + constant + plus·u − minus·u, a row per node.

    features, roots : the rows that give features and leading pieces (without their constants), where they are carried
    """

    affine: sparse.csr_array
    plus: sparse.csr_array
    minus: sparse.csr_array
    constant: Floats
    root: list[int]
    features: dict[int, sparse.csr_array]
    roots: dict[int, sparse.csr_array]


def _ideal_layers(
    plan: Plan, steps: Sequence[Step], theta: Floats, rule: Activation
) -> tuple[list[tuple[sparse.csr_array, Floats]], tuple[sparse.csr_array, Floats]]:
    """Return hidden layers (weight, bias) for units of scale one, and the layer that reads the groups off the last."""
    pieces, d = len(theta), theta.shape[1] - 1
    linear = sparse.csr_array(theta[:, 1:])
    eye = sparse.csr_array(sparse.eye_array(d))
    forms = Forms(
        affine=linear,
        plus=sparse.csr_array((pieces, d)),
        minus=sparse.csr_array((pieces, d)),
        constant=theta[:, 0].copy(),
        root=list(range(pieces)),
        features={f: eye[[f]] for f in range(d)},
        roots={},
    )
    layers = []
    for step in steps:
        weight, bias, forms = _layer(step, forms, theta, linear, rule)
        layers.append((weight, bias))
    ends = list(plan.ends)
    value = sparse.csr_array(forms.affine[ends] + forms.plus[ends] - forms.minus[ends])
    return layers, (value, forms.constant[ends])


def _layer(
    step: Step, forms: Forms, theta: Floats, linear: sparse.csr_array, rule: Activation
) -> tuple[sparse.csr_array, Floats, Forms]:
    value = sparse.csr_array(forms.affine + forms.plus - forms.minus)
    merges = np.array(step.level.merges)
    sense = step.level.sense
    by_kind: dict[str, list[int]] = {kind: [] for kind in ("new", "plus", "minus", "signed", "piece", "x")}
    for kind, index in step.keys:
        by_kind[kind].append(index)
    new = by_kind["new"]
    lead, other = merges[new, 0], merges[new, 1]
    inputs = value.shape[1]
    rises = sense * (value[other] - value[lead])
    rise_bias = sense * (forms.constant[other] - forms.constant[lead])
    blocks = [(rises, rise_bias)]
    if rule.away != 0:
        blocks.append((-rises, -rise_bias))
    blocks.append((forms.plus[by_kind["plus"]], np.zeros(len(by_kind["plus"]))))
    blocks.append((forms.minus[by_kind["minus"]], np.zeros(len(by_kind["minus"]))))
    # What needs two units: whole values with their constants, pieces and features without.
    signed = by_kind["signed"]
    pieces = [_root_form(forms, p) for p in by_kind["piece"]]
    lines = _stack([value[signed], *pieces, *(forms.features[f] for f in by_kind["x"])], inputs)
    line_bias = np.r_[forms.constant[signed], np.zeros(len(by_kind["piece"]) + len(by_kind["x"]))]
    blocks += [(lines, line_bias), (-lines, -line_bias)]
    weight = _stack([w for w, _ in blocks], inputs)
    bias = np.concatenate([b for _, b in blocks])
    units = len(bias)
    if units == 0:  # constants only: one unit that adds nothing
        weight, bias, units = sparse.csr_array((1, inputs)), np.zeros(1), 1

    # Where things are now.
    n = len(new)
    place = np.cumsum([0, n, n if rule.away != 0 else 0, len(by_kind["plus"]), len(by_kind["minus"]), len(line_bias)])
    count = len(merges)
    position = {kind: {index: k for k, index in enumerate(by_kind[kind])} for kind in by_kind}
    entries: dict[str, list[tuple[int, int, float]]] = {"affine": [], "plus": [], "minus": []}
    kept = "plus" if sense > 0 else "minus"
    for k, i in enumerate(new):
        entries[kept].append((i, place[0] + k, rule.towards))
        if rule.away != 0:
            entries[kept].append((i, place[1] + k, rule.away))
    constant = np.zeros(count)
    root = [forms.root[a] for a, _ in step.level.merges]
    split_rows = []
    for i, (a, _) in enumerate(step.level.merges):
        if a in position["signed"]:
            column = place[4] + position["signed"][a]
            entries["affine"] += [(i, column, rule.line), (i, column + len(line_bias), -rule.line)]
            continue
        constant[i] = forms.constant[a]
        for kind, start in (("plus", place[2]), ("minus", place[3])):
            if a in position[kind]:
                entries[kind].append((i, start + position[kind][a], 1.0))
        if theta[root[i], 1:].any():
            split_rows.append(i)

    def line_form(k: int) -> sparse.csr_array:
        column = place[4] + k
        data = ([rule.line, -rule.line], ([0, 0], [column, column + len(line_bias)]))
        return sparse.csr_array(data, shape=(1, units))

    offset = len(signed)
    roots = {p: line_form(offset + k) for k, p in enumerate(by_kind["piece"])}
    offset += len(by_kind["piece"])
    features = {f: line_form(offset + k) for k, f in enumerate(by_kind["x"])}
    affine = _entries(entries["affine"], count, units)
    if split_rows:
        if by_kind["x"]:
            basis = _stack([features[f] for f in by_kind["x"]], units)
            read = linear[[root[i] for i in split_rows]][:, by_kind["x"]] @ basis
        else:
            read = _stack([roots[root[i]] for i in split_rows], units)
        spread = sparse.csr_array(
            (np.ones(len(split_rows)), (split_rows, np.arange(len(split_rows)))), shape=(count, len(split_rows))
        )
        affine = affine + spread @ read
    return weight, bias, Forms(
        affine=sparse.csr_array(affine),
        plus=_entries(entries["plus"], count, units),
        minus=_entries(entries["minus"], count, units),
        constant=constant,
        root=root,
        features=features,
        roots=roots,
    )  # fmt: skip


def _root_form(forms: Forms, piece: int) -> sparse.csr_array:
    if piece in forms.roots:
        return forms.roots[piece]
    return forms.affine[[forms.root.index(piece)]]


def _stack(rows: Sequence[sparse.csr_array], columns: int) -> sparse.csr_array:
    rows = [r for r in rows if r.shape[0]]
    return sparse.csr_array(sparse.vstack(rows)) if rows else sparse.csr_array((0, columns))


def _entries(entries: list[tuple[int, int, float]], rows: int, columns: int) -> sparse.csr_array:
    if not entries:
        return sparse.csr_array((rows, columns))
    i, j, value = (np.array(v) for v in zip(*entries, strict=True))
    return sparse.csr_array((value, (i, j)), shape=(rows, columns))
