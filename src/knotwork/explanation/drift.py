"""What training changed: weights before and after, unit by unit and input by input, in standardised coordinates.

The strength of a unit is the sum, over all paths from the inputs to the outputs through it, of the product of the
absolute weights along the path: how much the output can move when the inputs move by one std. A unit that was added to
the spline's starts with strength 0, and so does an input that the spline did not use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.errors import DataError
from knotwork.explanation.page_numbers import number_text
from knotwork.explanation.subject import Subject, sources
from knotwork.spline.model import hinges_of

if TYPE_CHECKING:
    import pandas as pd

    from knotwork.data.coordinates import Coordinates
    from knotwork.network.chain import Chain

# Share of the maximum strength above which an input that was silent counts as awake.
AWAKE = 0.01
# Strengths and changes that are rounding, as a share of the maximum: networks may be kept in single precision.
SILENT = 1e-6


@dataclass(frozen=True)
class Drift:
    """The two networks side by side.

    units : frame, a row per hidden unit: layer, unit, origin ("spline", "added" or "random"), term (what it computed at
        the start), change (norm of the change of its incoming weights and bias), strength_before, strength_after
    inputs : frame, a row per encoded feature: strength_before, strength_after, woke_up
    layers : frame, a row per layer: norm before, norm of the change
    before, after : the weights of each layer, (out, in)
    """

    units: pd.DataFrame
    inputs: pd.DataFrame
    layers: pd.DataFrame
    before: tuple[Floats, ...]
    after: tuple[Floats, ...]

    @property
    def changed(self) -> bool:
        """Whether any weight or bias moved by more than rounding."""
        return bool((self.layers["change"] > 0).any() or (self.units["change"] > 0).any())


def standardised_layers(chain: Chain, coordinates: Coordinates) -> list[tuple[Floats, Floats]]:
    """Weights and biases of a chain that takes raw features, as they are for standardised ones and responses."""
    return [(layer.weight.numpy(), layer.bias.numpy()) for layer in chain.in_coordinates(coordinates).layers]


def strengths(weights: list[Floats]) -> tuple[Floats, list[Floats]]:
    """Sums of absolute path products: of each input (d,), and through each unit of each hidden layer."""
    up = [np.ones(weights[0].shape[1])]
    for weight in weights[:-1]:
        up.append(np.abs(weight) @ up[-1])
    down = [np.abs(weights[-1]).sum(axis=0)]
    for weight in reversed(weights[:-1]):
        down.append(np.abs(weight).T @ down[-1])
    down.reverse()
    return down[0], [a * b for a, b in zip(up[1:], down[1:], strict=True)]


def drift(subject: Subject) -> Drift:
    """Compare the network with the one that training began with."""
    import pandas as pd

    if subject.network is None or subject.start is None or subject.coordinates is None:
        raise DataError(
            f"drift compares a network with its start, this {subject.kind} has none; explain a SplineNetRegressor as "
            f"it was fitted"
        )
    before = standardised_layers(subject.start, subject.coordinates)
    after = _without_rounding(before, standardised_layers(subject.network, subject.coordinates))
    inputs_before, units_before = strengths([w for w, _ in before])
    inputs_after, units_after = strengths([w for w, _ in after])
    strongest = max(float(inputs_before.max(initial=0)), float(inputs_after.max(initial=0)))
    woke = (inputs_before <= SILENT * strongest) & (inputs_after > AWAKE * strongest)
    records: list[dict[str, Any]] = []
    for k, (strength, now) in enumerate(zip(units_before, units_after, strict=True)):
        (old, old_bias), (new, new_bias) = before[k], after[k]
        change = np.sqrt(np.square(new - old).sum(axis=1) + np.square(new_bias - old_bias))
        added = strength <= SILENT * max(float(strength.max(initial=0)), 1e-300)
        for u in range(len(strength)):
            origin = "random" if subject.spline is None else "added" if added[u] else "spline"
            records.append({
                "layer": k, "unit": u, "origin": origin,
                "term": _describe(subject, u) if k == 0 and origin == "spline" else "",
                "change": change[u], "strength_before": strength[u], "strength_after": now[u],
            })  # fmt: skip
    layers = [
        {"layer": "output" if k == len(before) - 1 else str(k), "norm": float(np.linalg.norm(old)),
         "change": float(np.linalg.norm(new - old))}
        for k, ((old, _), (new, _)) in enumerate(zip(before, after, strict=True))
    ]  # fmt: skip
    features = pd.Index(subject.table.feature_names, name="feature")
    inputs = {"strength_before": inputs_before, "strength_after": inputs_after, "woke_up": woke}
    return Drift(
        units=pd.DataFrame.from_records(records),
        inputs=pd.DataFrame(inputs, index=features),
        layers=pd.DataFrame.from_records(layers),
        before=tuple(w for w, _ in before),
        after=tuple(w for w, _ in after),
    )


def _without_rounding(
    before: list[tuple[Floats, Floats]], after: list[tuple[Floats, Floats]]
) -> list[tuple[Floats, Floats]]:
    """Return the later weights and biases, those of the start where they differ from them by rounding alone."""
    kept = []
    for old, new in zip(before, after, strict=True):
        size = max(float(np.abs(values).max(initial=0.0)) for values in (*old, *new))
        weight, bias = (np.where(np.abs(n - o) <= SILENT * size, o, n) for o, n in zip(old, new, strict=True))
        kept.append((weight, bias))
    return kept


def _describe(subject: Subject, unit: int) -> str:
    """Return what a first-layer unit computed at the start: a hinge of one feature, with the spline's own knot."""
    assert subject.start is not None
    assert subject.spline is not None
    start = subject.start.in_coordinates(Coordinates.identity(subject.start.inputs, subject.start.outputs))
    weight = start.hidden[0].weight[unit].numpy()
    used = np.flatnonzero(weight)
    if len(used) != 1:
        return ""
    feature = int(used[0])
    name = subject.table.feature_names[feature]
    bend = float(-start.hidden[0].bias[unit] / weight[feature])
    known = np.array([h.knot for t in subject.spline.terms for h in hinges_of(t) if h.feature == feature])
    # Stored in single precision: the knot is the nearest one of the spline.
    near = float(known[np.abs(known - bend).argmin()]) if known.size else np.inf
    scale = float(subject.coordinates.x_scale[feature]) if subject.coordinates is not None else 1.0
    if abs(near - bend) > 1e-4 * max(abs(bend), scale):  # a line is two units that bend anywhere, here at the mean
        return f"line of {name}, {'rising' if weight[feature] > 0 else 'falling'}"
    part = subject.parts[sources(subject.parts)[feature]]
    knot = number_text(near) if part.plain else part.text(near)
    if weight[feature] < 0:
        return f"h({knot} - {name})"
    return f"h({name} + {knot[1:]})" if part.plain and near < 0 else f"h({name} - {knot})"
