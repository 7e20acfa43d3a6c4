"""Batches of a size that suits: small ones are joined, and large ones are cut.

A part costs about a millisecond in each reading, however few rows it has. Loaders of torch yield 64 rows at a time, and
a million of these batches would take an hour. What a fit makes of a part takes several times its memory, so that parts
have a size at most as well. Only neighbours that look alike are joined; what makes them unlike, another type of a
column say, is for the survey to judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from knotwork.data.table import as_frame

if TYPE_CHECKING:
    from knotwork.data.batches import Rows

# Rows that are joined at most, and their numbers: 8 MB of them.
MAX_ROWS, MAX_CELLS = 65_536, 1 << 20


def cut(parts: Iterator[Rows], most_of: Callable[[int], int]) -> Iterator[Rows]:
    """Yield the same rows in the same order, so many at a time at most; what cannot be cut stays as it is.

    most_of : from the number of columns to that of rows
    """
    for rows in parts:
        shape: Any = getattr(rows.X, "shape", ())
        size, most = (shape[0], most_of(shape[1])) if len(shape) == 2 else (0, 0)
        beside = [values for values in (rows.y, rows.weight) if values is not None]
        if size <= most or any(getattr(values, "shape", ())[:1] != (size,) for values in beside):
            yield rows
            continue
        for first in range(0, size, most):
            X, y, weight = (_slice(values, first, most) for values in (rows.X, rows.y, rows.weight))
            yield replace(rows, X=X, y=y, weight=weight)


def _slice(values: Any, first: int, count: int) -> Any:
    """Return some rows of a table, a series or an array; nothing is copied."""
    if values is None or isinstance(values, np.ndarray):
        return None if values is None else values[first : first + count]
    return values.iloc[first : first + count] if hasattr(values, "iloc") else values.slice(first, count)


def joined(parts: Iterator[Rows]) -> Iterator[Rows]:
    """Yield the same rows in the same order, in fewer parts; empty ones are left out."""
    waiting = _Waiting()
    number = 0
    for rows in parts:
        frame = as_frame(rows.X)
        size = len(rows) if frame is None else len(frame)
        if size == 0:
            continue
        looks = _looks(rows, frame, size)
        if waiting.rows and (looks is None or looks != waiting.looks or waiting.count + size > waiting.room):
            yield waiting.joined(number)
            waiting, number = _Waiting(), number + 1
        if looks is None:
            yield replace(rows, number=number)
            number += 1
            continue
        waiting.add(rows, frame, size, looks)
        if waiting.count >= waiting.room:
            yield waiting.joined(number)
            waiting, number = _Waiting(), number + 1
    if waiting.rows:
        yield waiting.joined(number)


@dataclass
class _Waiting:
    """Batches that look alike, their tables, and the number of their rows; room : how many there may be."""

    rows: list[Rows] = field(default_factory=list)
    tables: list[Any] = field(default_factory=list)
    count: int = 0
    room: int = 0
    looks: Any = None

    def add(self, rows: Rows, frame: nw.DataFrame[Any] | None, size: int, looks: Any) -> None:
        """Add a batch."""
        if not self.rows:
            self.looks, self.room = looks, min(MAX_ROWS, MAX_CELLS // max(1, rows.X.shape[1]))
        self.rows.append(rows)
        self.tables.append(rows.X if frame is None else frame)
        self.count += size

    def joined(self, number: int) -> Rows:
        """Return the batches as one."""
        first = self.rows[0]
        if len(self.rows) == 1:
            return replace(first, number=number)
        if isinstance(first.X, np.ndarray):
            X = np.concatenate(self.tables)
        else:
            X = nw.to_native(nw.concat(self.tables, how="vertical"))
        weight = None if first.weight is None else np.concatenate([_array(rows.weight) for rows in self.rows])
        y = np.concatenate([_array(rows.y) for rows in self.rows])
        return replace(first, X=X, y=y, weight=weight, number=number)


def _looks(rows: Rows, frame: nw.DataFrame[Any] | None, size: int) -> Any:
    """Return what two batches must have in common to be joined, None for one that stays alone."""
    beside = [rows.y] if rows.weight is None else [rows.y, rows.weight]
    ends = [_array_looks(_array(values), size) for values in beside]
    table = _frame_looks(rows.X, frame) if frame is not None else None
    if frame is None and getattr(rows.X, "ndim", 0) == 2:
        table = _array_looks(rows.X, size)
    return None if table is None or None in ends else (type(rows.X), table, ends)


def _array(values: Any) -> Any:
    """Return a series of numpy's types as an array, everything else as it is."""
    plain = hasattr(values, "iloc") and isinstance(getattr(values, "dtype", None), np.dtype)
    return values.to_numpy() if plain else values


def _array_looks(values: Any, size: int) -> Any:
    """Return the kind of an array of so many rows, and their shape; texts may have any lengths."""
    if type(values) is not np.ndarray or values.ndim == 0 or len(values) != size:
        return None
    return values.dtype.kind if values.dtype.kind in "US" else values.dtype.str, values.shape[1:]


def _frame_looks(X: Any, frame: nw.DataFrame[Any]) -> Any:
    """Return the columns of a frame; those with categories of their own stay as they are."""
    kinds = X.dtypes.tolist() if hasattr(X, "iloc") else list(frame.schema.values())
    names = tuple(map(str, kinds))
    own = any(name.startswith(("category", "Categorical", "Enum")) for name in names)
    return None if own else (tuple(frame.columns), names)
