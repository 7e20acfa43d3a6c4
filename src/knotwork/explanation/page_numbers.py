"""Numbers as a page needs them: no more digits than it shows, and values of columns as people read them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from knotwork.data.columns.part import Part
from knotwork.explanation.subject import Rows, Subject


def short(values: Any, digits: int = 7) -> Any:
    """Round to significant digits; seven are more than a picture shows."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim:
        return [short(item, digits) for item in array]
    return float(f"{float(array):.{digits}g}")


def number_text(value: float) -> str:
    """Write a number: whole ones with all their digits, as years and ids are written.

    >>> number_text(20190305.0), number_text(0.1234567891)
    ('20190305', '0.123457')
    """
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:.6g}"


def scale(part: Part) -> dict[str, Any]:
    """Return how the page shows the numbers of a part: steps, or days since a moment in a time zone, or a unit."""
    return {
        "steps": part.steps,
        "origin": None if part.origin is None else part.origin / 1e3,  # milliseconds, as browsers count
        "zone": re.sub(r"^UTC(?=[+-])", "", part.zone or "UTC"),  # browsers call a fixed offset +02:00
        "daily": part.daily,
        "unit": part.unit,
    }


def column_value(subject: Subject, column: int, code: float) -> Any:
    """Return a value of a row: a number, or its text."""
    part = subject.parts[column]
    return float(code) if part.categories is None and part.plain and not np.isnan(code) else part.text(code)


def truth(subject: Subject, rows: Rows, row: int) -> str:
    """Return a row's response as text."""
    assert rows.y is not None
    if subject.classes is not None:
        return str(subject.classes[int(rows.y[row])])
    return ", ".join(number_text(float(v)) for v in rows.y[row])
