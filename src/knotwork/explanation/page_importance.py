"""What matters: each measure as bars, the columns of no importance apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from knotwork.errors import DataError
from knotwork.explanation.labels import measure_unit
from knotwork.explanation.page_numbers import short

if TYPE_CHECKING:
    from knotwork.explanation.explanation import Explanation

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


def importance(explanation: Explanation) -> list[dict[str, Any]]:
    """Return the measures that there are, each with the columns in its own order."""
    try:
        table = explanation.importances
    except DataError:
        return []
    found = []
    for name in table.columns:
        ordered = table.sort_values(name, ascending=False, kind="stable")
        label, lead = MEASURES[str(name)]
        found.append({"name": label, "lead": lead, "unit": measure_unit(explanation, str(name)),
                      "columns": list(ordered.index), "values": short(ordered[name])})  # fmt: skip
    return found
