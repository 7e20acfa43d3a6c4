"""The knots and the rows behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from knotwork.explanation.page_numbers import column_value, truth
from knotwork.explanation.subject import Rows, Subject, sources

if TYPE_CHECKING:
    from knotwork.explanation.explanation import Explanation

MAX_KNOTS = 300
MAX_COLUMNS = 12
# Rows of a knot that are shown, and of all knots together.
MAX_KNOT_ROWS = 12
MAX_ROWS = 1500


def row_columns(rows: Rows | None, order: list[str]) -> list[str]:
    """Return the names of what is shown of a knot's rows."""
    if rows is None:
        return []
    return [*([rows.response] if rows.y is not None else []), *order[:MAX_COLUMNS]]


def knots(explanation: Explanation, order: list[str]) -> list[dict[str, Any]]:
    """Return the knots, each with the first of its rows."""
    subject, rows = explanation.subject, explanation.rows
    if subject.spline is None:
        return []
    columns = [subject.columns.index(name) for name in order[:MAX_COLUMNS]]
    found = explanation.knot_rows[:MAX_KNOTS]
    most = min(MAX_KNOT_ROWS, max(1, MAX_ROWS // max(1, len(found))))

    def values(row: int) -> list[Any]:
        if rows is None:
            return []
        shown = [column_value(subject, c, rows.codes[row, c]) for c in columns]
        return [*([truth(subject, rows, row)] if rows.y is not None else []), *shown]

    return [
        {"feature": k.name, "value": k.value, "shown": _knot_text(subject, k.feature, k.value),
         "count": int(k.count),
         "rows": [{"row": int(r), "values": values(int(r))} for r in k.rows[:most]]}
        for k in found
    ]  # fmt: skip


def _knot_text(subject: Subject, feature: int, value: float) -> str | None:
    """Return a knot as people read it, None where that is the number itself."""
    plain = subject.parts[sources(subject.parts)[feature]].plain
    return None if plain else subject.table.value_text(feature, value)
