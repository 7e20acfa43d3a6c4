"""Small batches, joined: a part costs about a millisecond in each reading, however few rows it has.

Loaders of torch yield 64 rows at a time, and a million of these batches would take an hour. Only neighbours that look
alike are joined; what makes them unlike, another type of a column say, is for the survey to judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from knotwork.data.table import as_frame

if TYPE_CHECKING:
    from knotwork.data.batches import Rows

# Rows that are joined at most, and their numbers: 8 MB of them.
MAX_ROWS, MAX_CELLS = 65_536, 1 << 20


def joined(parts: Iterator[Rows]) -> Iterator[Rows]:
    """Yield the same rows in the same order, in fewer parts; empty ones are left out."""
    waiting = _Waiting()
    number = 0
    for rows in parts:
        size = len(rows)
        if size == 0:
            continue
        looks = _looks(rows, size)
        if waiting.rows and (looks is None or looks != waiting.looks or waiting.count + size > waiting.room):
            yield waiting.joined(number)
            waiting, number = _Waiting(), number + 1
        if looks is None:
            yield replace(rows, number=number)
            number += 1
            continue
        waiting.add(rows, size, looks)
        if waiting.count >= waiting.room:
            yield waiting.joined(number)
            waiting, number = _Waiting(), number + 1
    if waiting.rows:
        yield waiting.joined(number)


@dataclass
class _Waiting:
    """Batches that look alike, and their rows; room : how many there may be."""

    rows: list[Rows] = field(default_factory=list)
    count: int = 0
    room: int = 0
    looks: Any = None

    def add(self, rows: Rows, size: int, looks: Any) -> None:
        """Add a batch."""
        if not self.rows:
            columns = rows.X.shape[1]
            self.looks, self.room = looks, min(MAX_ROWS, MAX_CELLS // max(1, columns))
        self.rows.append(rows)
        self.count += size

    def joined(self, number: int) -> Rows:
        """Return the batches as one."""
        if len(self.rows) == 1:
            return replace(self.rows[0], number=number)
        tables = [rows.X for rows in self.rows]
        frames = [as_frame(X) for X in tables]
        X: Any
        if frames[0] is None:
            X = np.concatenate(tables)
        else:
            X = nw.to_native(nw.concat([frame for frame in frames if frame is not None], how="vertical"))
        weight = None
        if self.rows[0].weight is not None:
            weight = np.concatenate([_array(rows.weight) for rows in self.rows])
        return replace(
            self.rows[0], X=X, y=np.concatenate([_array(rows.y) for rows in self.rows]), weight=weight, number=number
        )


def _looks(rows: Rows, size: int) -> Any:
    """Return what two batches must have in common to be joined, None for one that stays alone."""
    beside = [rows.y] if rows.weight is None else [rows.y, rows.weight]
    ends = [_array_looks(_array(values), size) for values in beside]
    table = _array_looks(rows.X, size) if isinstance(rows.X, np.ndarray) else _frame_looks(rows.X)
    return None if table is None or None in ends else (type(rows.X), table, ends)


def _array(values: Any) -> Any:
    """Return a series of numpy's types as an array, everything else as it is."""
    return (
        values.to_numpy()
        if hasattr(values, "iloc") and isinstance(getattr(values, "dtype", None), np.dtype)
        else values
    )


def _array_looks(values: Any, size: int) -> Any:
    """Return the kind of an array of so many rows, and their shape; texts may have any lengths."""
    if type(values) is not np.ndarray or values.ndim == 0 or len(values) != size:
        return None
    return values.dtype.kind if values.dtype.kind in "US" else values.dtype.str, values.shape[1:]


def _frame_looks(X: Any) -> Any:
    """Return the columns of a frame; those with categories of their own stay as they are."""
    frame = as_frame(X)
    if frame is None or any(dtype in (nw.Categorical, nw.Enum) for dtype in frame.schema.values()):
        return None
    kinds = X.dtypes.tolist() if hasattr(X, "iloc") else frame.schema.values()
    return tuple(frame.columns), tuple(map(str, kinds))
