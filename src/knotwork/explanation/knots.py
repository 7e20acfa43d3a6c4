"""Knots and the rows behind them: every knot of a fitted spline is a value that some row of the data has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knotwork.data.table import TableEncoder
from knotwork.errors import DataError
from knotwork.explanation.subject import Rows, Subject
from knotwork.spline.model import hinges_of

if TYPE_CHECKING:
    import pandas as pd

# Rows remembered per knot, as in a fit: a knot of a coarse column may have millions.
MAX_ROWS = 1000
# Units in the last place of a column's largest value, within which a value is a knot.
ROUNDING = 8


@dataclass(frozen=True)
class KnotRows:
    """A knot: the encoded feature, its value, how many rows carry it, and those rows (the first 1000)."""

    feature: int
    name: str
    value: float
    count: int
    rows: NDArray[np.intp]


def knots(subject: Subject, rows: Rows | None) -> tuple[KnotRows, ...]:
    """Return the spline's knots by feature and value, with the rows of the data (or of the training) behind them."""
    spline = subject.spline
    if spline is None:
        raise DataError(f"a {subject.kind} without a spline has no knots; fit it with start='spline'")
    names = spline.feature_names
    if rows is None:
        if subject.search is None:
            raise DataError(f"a {subject.kind} does not keep its training rows, got no X; pass explain(model, X)")
        found = [KnotRows(k.feature, names[k.feature], k.value, k.count, k.rows) for k in subject.search.knots]
        return tuple(sorted(found, key=lambda k: (k.feature, k.value)))
    keys = sorted({(h.feature, h.knot) for term in spline.terms for h in hinges_of(term)})
    result = []
    for feature, value in keys:
        column = rows.matrix[:, feature]
        # The knots of a pipeline were data values until they went through its scaling and back.
        near = ROUNDING * np.spacing(np.abs(column).max())
        at = np.flatnonzero(np.abs(column - value) <= near)
        result.append(KnotRows(feature, names[feature], value, at.size, at[:MAX_ROWS]))
    return tuple(result)


def knot_frame(found: tuple[KnotRows, ...], rows: Rows | None, table: TableEncoder) -> pd.DataFrame:
    """Return the knots as a frame: feature, knot, count, rows, and the rows' mean response where it is known.

    Where a column holds dates, durations or ordered categories, ``shown`` has the knots as people read them.
    """
    import pandas as pd

    frame: dict[str, Any] = {
        "feature": [k.name for k in found],
        "knot": [k.value for k in found],
        "count": [k.count for k in found],
        "rows": [k.rows.tolist() for k in found],
    }
    if not all(part.plain for part in table.parts):
        frame["shown"] = [table.value_text(k.feature, k.value) for k in found]
    if rows is not None and rows.y is not None and rows.y.ndim == 2 and rows.y.shape[1] == 1:
        y = rows.y[:, 0]
        frame[f"mean {rows.response}"] = [float(y[k.rows].mean()) if k.rows.size else np.nan for k in found]
    return pd.DataFrame(frame)
