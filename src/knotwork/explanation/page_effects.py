"""What each column does, and what columns do together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.columns.level_means import LevelMeans
from knotwork.data.table import TableEncoder
from knotwork.explanation.effects import Effect, Surface
from knotwork.explanation.page_numbers import scale, short

if TYPE_CHECKING:
    from knotwork.explanation.explanation import Explanation

MAX_SURFACES = 12
# Categories that are named at either end, and letters of a name.
MAX_LEVELS = 5
MAX_LETTERS = 20


def effects(explanation: Explanation, order: list[str]) -> dict[str, Any]:
    """Return the curves in this order, those of columns that the model does not use last."""
    curves = explanation.effects
    ordered = sorted(order, key=lambda name: not curves[name].used)  # stable
    levels = _levels(explanation.subject.table)
    found = [_effect(curves[name], levels.get(name)) for name in ordered]
    lead = (
        "How the prediction changes when one column changes and the others stay as they are"
        if explanation.curves == "partial"
        else "Accumulated local effects: how the prediction changes as each row moves within its neighbourhood"
    )
    if explanation.subject.link == "log":
        lead = f"On a log scale: +0.1 multiplies the prediction by 1.105, −0.1 by 0.905. {lead}"
    lead += ": the mean over rows of the data, drawn around zero." if explanation.rows is not None else "."
    bands = {record["band"]["what"] for record in found if record["band"]}
    if bands:
        lead += f" Bands are the range over {bands.pop()}."
    return {"lead": lead, "curves": found}


def _levels(table: TableEncoder) -> dict[str, dict[str, str]]:
    """Say what the numbers stand for that take the place of many categories, by the names of these columns."""
    found = {}
    for column in table.columns:
        if not isinstance(column, LevelMeans):
            continue
        for k, (name, measure) in enumerate(zip(column.feature_names, column.measures, strict=True)):
            rising = [_cut(str(column.levels[i])) for i in np.argsort(column.means[:, k], kind="stable")]
            what = "mean response" if measure == "mean" else measure
            found[name] = {
                "summary": f"{len(rising)} categories, each drawn at its {what}",
                "text": f"The figure of a category with few training rows is shrunk towards that of all rows. Lowest: "
                f"{', '.join(rising[:MAX_LEVELS])}. Highest: {', '.join(rising[: -MAX_LEVELS - 1 : -1])}.",
            }
    return found


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LETTERS else text[: MAX_LETTERS - 1] + "…"


def _effect(effect: Effect, levels: dict[str, str] | None) -> dict[str, Any]:
    def curve(values: Floats | None) -> Any:
        return None if values is None else short(values.T)

    def gap(values: Floats | None) -> Any:
        return None if values is None else short(values)

    assert effect.part is not None
    record = {
        "column": effect.column, "categories": effect.categories, "binary": effect.binary, "used": effect.used,
        "note": _note(effect), "levels": levels, **scale(effect.part),
    }  # fmt: skip
    if not effect.used and not effect.used_by_spline:  # nothing to draw
        return record | {"band": None}
    return record | {
        "grid": short(effect.grid, 12), "spline": curve(effect.spline), "network": curve(effect.network),
        "knots": short(effect.knots, 12),
        "edges": None if effect.edges is None else short(effect.edges),
        "counts": None if effect.counts is None else effect.counts.tolist(),
        "missing": None if effect.missing is None else {
            "spline": gap(effect.missing.spline), "network": gap(effect.missing.network), "count": effect.missing.count,
        },
        "band": None if effect.band is None else {
            "lower": curve(effect.band.lower), "upper": curve(effect.band.upper), "what": effect.band.what,
        },
    }  # fmt: skip


def _note(effect: Effect) -> str | None:
    """Say who does not use the column."""
    if not effect.used:
        by_spline = effect.network is not None and effect.spline is not None and effect.used_by_spline
        return "not used by the network" if by_spline else "not used"
    if effect.network is not None and effect.spline is not None and not effect.used_by_spline:
        return "not used by the spline"
    return "no effect between these values" if effect.size == 0 else None


def surfaces(explanation: Explanation) -> list[dict[str, Any]]:
    """Return what pairs of columns do, those that move the prediction most."""
    parts = {part.name: part for part in explanation.subject.parts}
    return [
        {"columns": s.columns, "grids": [short(g) for g in s.grids], "categories": s.categories,
         "scales": [scale(parts[name]) for name in s.columns], "values": short(np.moveaxis(s.values, 2, 0), 5)}
        for s in largest(explanation.interactions.values())
    ]  # fmt: skip


def largest(found: Iterable[Surface]) -> list[Surface]:
    """Return the surfaces that move the prediction most, and none that do not move it."""
    sizes = [(float(np.ptp(s.values, axis=(0, 1)).max()), s) for s in found]
    return [s for size, s in sorted(sizes, key=lambda pair: -pair[0])[:MAX_SURFACES] if size > 0]
