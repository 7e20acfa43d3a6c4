"""What the report shows, as plain JSON values: one function per section of the page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork import __version__
from knotwork.arrays import Floats
from knotwork.data.columns.part import Part
from knotwork.errors import DataError
from knotwork.explanation.contributions import contributions
from knotwork.explanation.effects import BACKGROUND, Effect, Surface, background, effects
from knotwork.explanation.exported import exported_model
from knotwork.explanation.quality import error_name
from knotwork.explanation.subject import Rows, Subject, matrix_of, sources

if TYPE_CHECKING:
    from knotwork.explanation.explanation import Explanation

# How much the page shows: people read it.
MAX_UNITS = 40
MAX_STRONGEST = 10
MAX_KNOTS = 300
MAX_SURFACES = 12
MAX_KNOT_ROWS = 12
MAX_COLUMNS = 12
MAX_ROWS = 200

MEASURES = {
    "permutation": ("Permutation", "Rise in the model's error when the column's values are shuffled among the rows."),
    "subsets": ("Subsets", "In how many of the best subsets of terms, one for each size, the column appears."),
    "gcv": (
        "GCV",
        "Decrease in generalised cross-validation error over the subsets with the column, scaled to a maximum of 100.",
    ),
    "rss": (
        "RSS",
        "Decrease in the residual sum of squares over the subsets with the column, scaled to a maximum of 100.",
    ),
    "coefficient": (
        "Coefficients",
        "Absolute coefficients of the spline's terms times the terms' std, in the response's unit of measurement.",
    ),
}


def page_content(explanation: Explanation) -> dict[str, Any]:
    """Return everything that the page needs."""
    subject, rows = explanation.subject, explanation.rows
    measures = _importances(explanation)
    order = list(explanation.importances.index) if measures else list(subject.columns)
    curves = explanation.effects
    parts = {part.name: part for part in subject.parts}
    return {
        "meta": _meta(explanation),
        "quality": _quality(explanation),
        "importances": measures,
        "effects": [_effect(curves[name], parts[name]) for name in order],
        "surfaces": [
            {"columns": s.columns, "grids": [_short(g) for g in s.grids], "categories": s.categories,
             "values": _short(np.moveaxis(s.values, 2, 0))}
            for s in largest(explanation.interactions.values())
        ],
        "knots": _knots(explanation, order),
        "rowColumns": _row_columns(rows, order),
        "history": _history(explanation),
        "drift": _drift(explanation),
        "sparsity": _sparsity(explanation),
        "model": _model(explanation),
        "rows": _rows(subject, rows),
    }  # fmt: skip


def largest(surfaces: Iterable[Surface]) -> list[Surface]:
    """Return the surfaces that move the prediction most."""
    return sorted(surfaces, key=lambda s: -float(np.ptp(s.values, axis=(0, 1)).max()))[:MAX_SURFACES]


def _short(values: Any) -> Any:
    """Seven digits are more than a picture shows."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim:
        return [_short(item) for item in array]
    return float(f"{float(array):.7g}")


def _response(subject: Subject, rows: Rows | None) -> str:
    return rows.response if rows is not None and rows.response != "y" else ", ".join(subject.output_names)


def _meta(explanation: Explanation) -> dict[str, Any]:
    subject, rows = explanation.subject, explanation.rows
    response = _response(subject, rows)
    figures: list[dict[str, Any]] = []

    def add(label: str, value: Any) -> None:
        figures.append({"label": label, "value": value})

    if rows is not None:
        add("rows", len(rows))
    add("columns", len(subject.columns))
    if subject.spline is not None:
        add("terms of the spline", len(subject.spline.terms))
    if subject.network is not None:
        add("hidden units", " × ".join(str(w) for w in subject.network.widths))
    if rows is not None and rows.y is not None:
        table = explanation.quality
        name = "trained network" if "trained network" in table.index else table.index[0]
        place = list(table.index).index(name)
        for column, value in zip(table.columns[:2], table.to_numpy()[place, :2], strict=True):
            add(f"{column}, these rows", float(value))
    elif subject.search is not None and subject.classes is None:
        add("R², training rows", subject.search.quality.rsq)
    partial = explanation.curves == "partial"
    return {
        "version": __version__,
        "kind": f"{subject.kind} report",
        "response": response,
        "headline": f"What {response} depends on",
        "outputs": subject.output_names,
        "figures": figures,
        "formula": str(subject.spline) if subject.spline is not None else None,
        "effects": (
            "How the prediction moves, around its mean, when one column moves and the others stay as they are"
            if partial
            else "Accumulated local effects: how the prediction moves as each row moves within its neighbourhood"
        )
        + (", the mean over rows of the data." if rows is not None else "."),
    }


def _quality(explanation: Explanation) -> dict[str, Any] | None:
    table = explanation.quality
    if table.empty:
        return None
    held = any(str(c).startswith("validation") for c in table.columns)
    lead = "Errors on the rows of this page. On rows that the model was fitted to, they are optimistic."
    if held:
        lead += " The validation error is that of the held-out rows; training kept the epoch with its minimum."
    rows = [{"name": str(name), "values": [float(v) for v in line]} for name, line in
            zip(table.index, table.to_numpy(), strict=True)]  # fmt: skip
    return {"columns": [str(c) for c in table.columns], "rows": rows, "lead": lead}


def _importances(explanation: Explanation) -> list[dict[str, Any]]:
    try:
        table = explanation.importances
    except DataError:
        return []
    unit = {"permutation": f"rise in {error_name(explanation.subject)}", "subsets": "subsets"}
    found = []
    for name in table.columns:
        ordered = table.sort_values(name, ascending=False, kind="stable")
        label, lead = MEASURES[str(name)]
        found.append({"name": label, "lead": lead, "unit": unit.get(str(name), ""),
                      "columns": list(ordered.index), "values": _short(ordered[name])})  # fmt: skip
    return found


def _effect(effect: Effect, part: Part) -> dict[str, Any]:
    def curve(values: Floats | None) -> Any:
        return None if values is None else _short(values.T)

    def gap(values: Floats | None) -> Any:
        return None if values is None else _short(values)

    return {
        "column": effect.column, "categories": effect.categories, "grid": effect.grid.tolist(),
        "spline": curve(effect.spline), "network": curve(effect.network), "knots": effect.knots.tolist(),
        "edges": None if effect.edges is None else _short(effect.edges),
        "counts": None if effect.counts is None else effect.counts.tolist(),
        "missing": None if effect.missing is None else {
            "spline": gap(effect.missing.spline), "network": gap(effect.missing.network), "count": effect.missing.count,
        },
        **_scale(part),
    }  # fmt: skip


def _scale(part: Part) -> dict[str, Any]:
    """Return how the page shows the numbers of a part: steps, or days since a moment in a time zone, or a unit."""
    return {
        "steps": part.steps,
        "origin": None if part.origin is None else part.origin / 1e3,  # milliseconds, as browsers count
        "zone": re.sub(r"^UTC(?=[+-])", "", part.zone or "UTC"),  # browsers call a fixed offset +02:00
        "daily": part.daily,
        "unit": part.unit,
    }


def _row_columns(rows: Rows | None, order: list[str]) -> list[str]:
    if rows is None:
        return []
    return [*([rows.response] if rows.y is not None else []), *order[:MAX_COLUMNS]]


def _knots(explanation: Explanation, order: list[str]) -> list[dict[str, Any]]:
    subject, rows = explanation.subject, explanation.rows
    if subject.spline is None:
        return []
    columns = [subject.columns.index(name) for name in order[:MAX_COLUMNS]]

    def values(row: int) -> list[Any]:
        if rows is None:
            return []
        shown = [_value(subject, c, rows.codes[row, c]) for c in columns]
        return [*([truth(subject, rows, row)] if rows.y is not None else []), *shown]

    return [
        {"feature": k.name, "value": k.value, "shown": _knot_text(subject, k.feature, k.value),
         "count": int(k.count),
         "rows": [{"row": int(r), "values": values(int(r))} for r in k.rows[:MAX_KNOT_ROWS]]}
        for k in explanation.knot_rows[:MAX_KNOTS]
    ]  # fmt: skip


def _knot_text(subject: Subject, feature: int, value: float) -> str | None:
    """Return a knot as people read it, None where that is the number itself."""
    plain = subject.parts[sources(subject.parts)[feature]].plain
    return None if plain else subject.table.value_text(feature, value)


def _value(subject: Subject, column: int, code: float) -> Any:
    part = subject.parts[column]
    return float(code) if part.categories is None and part.plain and not np.isnan(code) else part.text(code)


def truth(subject: Subject, rows: Rows, row: int) -> str:
    """Return a row's response as text."""
    assert rows.y is not None
    if subject.classes is not None:
        return str(subject.classes[int(rows.y[row])])
    return ", ".join(f"{v:.6g}" for v in rows.y[row])


def _history(explanation: Explanation) -> dict[str, Any] | None:
    subject, history = explanation.subject, explanation.subject.history
    if history is None or len(history) < 2:
        return None
    root = subject.classes is None

    def losses(values: list[float]) -> Any:
        return _short(np.sqrt(values) if root else values)

    lead = f"Error after each epoch; epoch {history.best_epoch} of {len(history) - 1} was kept."
    if subject.spline is not None:
        lead += " Epoch 0 is the spline, rewritten as layers."
    other = explanation.random_start.history if explanation.random_start is not None else None
    return {
        "train": losses(history.train_loss), "validation": losses(history.validation_loss),
        "best": history.best_epoch, "unit": error_name(subject), "lead": lead,
        "random": losses(other.validation_loss) if other is not None else None,
    }  # fmt: skip


def _drift(explanation: Explanation) -> dict[str, Any] | None:
    subject = explanation.subject
    if subject.start is None or subject.coordinates is None:
        return None
    found = explanation.drift
    first = found.units[found.units["layer"] == 0].sort_values("strength_after", ascending=False, kind="stable")
    known = first[first["origin"] == "spline"].head(MAX_UNITS)
    others = first[first["origin"] != "spline"].head(max(8, MAX_UNITS - len(known)) if len(known) else MAX_UNITS)
    units = [*known["unit"], *others["unit"]]
    names = {(u["layer"], u["unit"]): _unit_name(u) for u in found.units.to_dict("records")}
    before, after = found.before[0][units], found.after[0][units]
    inputs = found.inputs
    woke = [str(name) for name in inputs.index[inputs["woke_up"]]]
    relative = (found.layers["change"] / found.layers["norm"].where(found.layers["norm"] > 0)).fillna(0)
    lead = "In standardised coordinates, training changed " + ", ".join(
        f"{100 * share:.0f} % of {'the output layer' if name == 'output' else f'layer {int(name) + 1}'}"
        for name, share in zip(found.layers["layer"], relative, strict=True)
    )
    lead += " (norm of the change against norm of the weights)."
    if woke:
        shown = ", ".join(woke[:5]) + (f" and {len(woke) - 5} more" if len(woke) > 5 else "")
        lead += f" Inputs that the spline did not use and the network does: {shown}."
    strongest = found.units.sort_values("strength_after", ascending=False, kind="stable").head(MAX_STRONGEST)
    return {
        "lead": lead, "inputs": [str(name) for name in inputs.index],
        "units": [names[0, int(u)] for u in units],
        "before": _short(before), "after": _short(after), "change": _short(after - before),
        "strength_before": _short(inputs["strength_before"]), "strength_after": _short(inputs["strength_after"]),
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


def _sparsity(explanation: Explanation) -> dict[str, Any] | None:
    subject, rows = explanation.subject, explanation.rows
    if subject.network is None or rows is None or rows.y is None:
        return None
    table = explanation.sparsity
    return {
        "weights": [int(w) for w in table["weights"]], "units": [int(u) for u in table["units"]],
        "threshold": _short(table["threshold"]), "error": _short(table["error"]), "unit": error_name(subject),
        "lead": "Error when small weights, in standardised coordinates, are set to zero and units that then do nothing "
        "are taken out.",
    }  # fmt: skip


def _model(explanation: Explanation) -> dict[str, Any]:
    subject, rows = explanation.subject, explanation.rows
    model = exported_model(subject)
    curves = explanation.effects
    if explanation.curves != "partial" and subject.network is not None:
        curves = effects(subject, rows)
    model["columns"] = [
        {
            "name": e.column,
            "categories": e.categories,
            "low": float(e.grid[0]),
            "high": float(e.grid[-1]),
            "fill": part.fill,
            **_scale(part),
        }
        for e, part in zip(curves.values(), subject.parts, strict=True)
    ]
    model["classes"] = None if subject.classes is None else [str(c) for c in subject.classes]
    around = background(subject, rows)
    if subject.network is None:
        assert subject.spline is not None
        means = subject.spline.basis(matrix_of(subject.parts, around)).mean(axis=0)
        base = subject.spline.intercept + means @ subject.spline.coef
        model["parts"] = {"kind": "spline", "base": base.tolist(), "means": means.tolist()}
        lead = "Move a column and watch the prediction, computed here from the spline. The bars add up to it exactly."
    else:
        # Each column's curve, moved so that it is what the column adds to the mean prediction.
        corner = np.array([[e.grid[0] for e in curves.values()]])
        found = contributions(subject, rows, matrix_of(subject.parts, corner))
        model["parts"] = {
            "kind": "curves", "base": found.base.tolist(),
            "curves": [
                {"grid": e.grid.tolist(), "heights": (e.network - e.network[0] + found.values[0, c]).T.tolist(),
                 "missing": None if e.missing is None or e.missing.network is None
                 else (e.missing.network - e.network[0] + found.values[0, c]).tolist()}
                for c, e in enumerate(curves.values()) if e.network is not None
            ],
        }  # fmt: skip
        lead = (
            "Move a column and watch the prediction, computed here from the network's own weights. Bars are what the "
            "columns do alone, read off their curves; what is left is interaction."
        )
    model["lead"] = lead + (f" The mean is over {min(len(rows), BACKGROUND)} rows." if rows is not None else "")
    return model


def _rows(subject: Subject, rows: Rows | None) -> dict[str, Any]:
    if rows is None:
        return {"numbers": ["mean row"], "codes": background(subject, None).tolist(), "truth": None}
    chosen = np.arange(len(rows))
    if len(rows) > MAX_ROWS:
        chosen = np.sort(np.random.default_rng(0).choice(len(rows), MAX_ROWS, replace=False))
    return {
        "numbers": [int(r) for r in chosen],
        "codes": rows.codes[chosen].tolist(),
        "truth": [f"{rows.response} {truth(subject, rows, int(r))}" for r in chosen] if rows.y is not None else None,
    }
