"""What training did: its losses, what it changed, and how few weights would do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from knotwork.explanation.page_numbers import short
from knotwork.explanation.page_overview import UNCHANGED, unchanged
from knotwork.explanation.quality import error_name, reported_loss

if TYPE_CHECKING:
    from knotwork.explanation.explanation import Explanation

MAX_UNITS = 40
MAX_STRONGEST = 10


def history(explanation: Explanation) -> dict[str, Any] | None:
    """Return the losses of every epoch."""
    subject, found = explanation.subject, explanation.subject.history
    if found is None or len(found) < 2:
        return None

    def losses(values: list[float]) -> Any:
        return short([reported_loss(subject, value) for value in values])

    lead = f"Error after each epoch; epoch {found.best_epoch} of {len(found) - 1} was kept."
    if subject.spline is not None:
        lead += " Epoch 0 is the spline, rewritten as layers."
    if found.undone:
        what = "1 epoch" if len(found.undone) == 1 else f"{len(found.undone)} epochs"
        lead += f" Training undid {what} that made the validation error much worse; there the curves jump back."
    other = explanation.random_start.history if explanation.random_start is not None else None
    return {
        "train": losses(found.train_loss), "validation": losses(found.validation_loss),
        "best": found.best_epoch, "unit": error_name(subject), "lead": lead,
        "random": losses(other.validation_loss) if other is not None else None,
    }  # fmt: skip


def drift(explanation: Explanation) -> dict[str, Any] | None:
    """Return weights before and after; a sentence alone where they are the same."""
    subject = explanation.subject
    if subject.start is None or subject.coordinates is None:
        return None
    found = explanation.drift
    if not found.changed:
        same = "Training changed nothing: the network is its random start."
        return {"lead": UNCHANGED if unchanged(explanation) else same, "changed": False}
    first = found.units[found.units["layer"] == 0].sort_values("strength_after", ascending=False, kind="stable")
    known = first[first["origin"] == "spline"].head(MAX_UNITS)
    others = first[first["origin"] != "spline"].head(max(8, MAX_UNITS - len(known)) if len(known) else MAX_UNITS)
    units = [*known["unit"], *others["unit"]]
    names = {(u["layer"], u["unit"]): _unit_name(u) for u in found.units.to_dict("records")}
    before, after = found.before[0][units], found.after[0][units]
    inputs = found.inputs
    woke = [str(name) for name in inputs.index[inputs["woke_up"]]]
    relative = (found.layers["change"] / found.layers["norm"].where(found.layers["norm"] > 0)).fillna(0)
    layers = ["the output layer" if name == "output" else f"layer {int(name) + 1}" for name in found.layers["layer"]]
    shares = ["less than 0.5" if share < 0.005 else f"{100 * share:.0f}" for share in relative]
    lead = "In standardised coordinates, training changed " + ", ".join(
        f"{share} % of {layer}" for share, layer in zip(shares, layers, strict=True)
    )
    lead += " (norm of the change divided by norm of the weights)."
    if woke:
        shown = ", ".join(woke[:5]) + (f" and {len(woke) - 5} more" if len(woke) > 5 else "")
        lead += f" Inputs that the network uses and the spline did not: {shown}."
    strongest = found.units.sort_values("strength_after", ascending=False, kind="stable").head(MAX_STRONGEST)
    return {
        "lead": lead, "changed": True, "inputs": [str(name) for name in inputs.index],
        "units": [names[0, int(u)] for u in units],
        "before": short(before, 4), "after": short(after, 4), "change": short(after - before, 4),
        "strength_before": short(inputs["strength_before"]), "strength_after": short(inputs["strength_after"]),
        "strongest": [
            {"name": names[u["layer"], u["unit"]], "layer": u["layer"], "origin": u["origin"], "change": u["change"],
             "before": u["strength_before"], "after": u["strength_after"]}
            for u in strongest.to_dict("records")
        ],
    }  # fmt: skip


def _unit_name(unit: Mapping[Any, Any]) -> str:
    if unit["term"]:
        return str(unit["term"])
    what = "spline's unit" if unit["origin"] == "spline" else f"{unit['origin']} unit"
    return f"{what} {unit['unit']}"


def sparsity(explanation: Explanation) -> dict[str, Any] | None:
    """Return the errors of smaller networks."""
    subject, rows, basis = explanation.subject, explanation.rows, explanation.basis
    if subject.network is None or rows is None or rows.y is None or basis is None:
        return None
    table = explanation.sparsity
    place = "training rows" if basis.kind == "out-of-fold" else basis.name
    return {
        "weights": [int(w) for w in table["weights"]], "units": [int(u) for u in table["units"]],
        "threshold": short(table["threshold"]), "error": short(table["error"]),
        "unit": f"{error_name(subject)}, {place}",
        "lead": "The error after setting small weights (in standardised coordinates) to zero and removing the units "
        "that have no effect then.",
    }  # fmt: skip
