"""What people move and read: the features of a column that stand for one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.columns.instants import DAY, moment_text

MISSING = "missing"
# Rows that tell most columns from one of zeros and ones.
FIRST_ROWS = 256


@dataclass(frozen=True)
class Part:
    """One value, made of one or more features: a number, a number that may be missing, or one of some categories.

    name : of the column, or of the part of a date
    categories : their labels if the features are indicators of them; None for a number
    fill : what stands for a missing number, if the second feature says that it is missing; None without gaps
    steps : what the whole numbers from 0 on stand for, if they are ordered categories; None for other numbers
    origin, zone, daily : see :class:`knotwork.data.columns.date.Date`, if the number counts days from there
    unit : of measurement, if it is a length of time
    """

    name: str
    categories: tuple[str, ...] | None = None
    fill: float | None = None
    steps: tuple[str, ...] | None = None
    origin: float | None = None
    zone: str | None = None
    daily: bool = False
    unit: str | None = None

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Part:
        """Rebuild a part from its fields, texts in lists."""
        texts = {key: tuple(record[key]) for key in ("categories", "steps") if record.get(key) is not None}
        return cls(**{**record, **texts})

    @property
    def width(self) -> int:
        """Number of features."""
        if self.categories is not None:
            return len(self.categories)
        return 1 if self.fill is None else 2

    @property
    def plain(self) -> bool:
        """Whether its values are shown as the numbers they are."""
        return self.steps is None and self.origin is None and self.unit is None

    def text(self, value: float) -> str:
        """Return one of its values as people read it."""
        if np.isnan(value):
            return MISSING
        if self.categories is not None:
            return self.categories[int(value)] if value >= 0 else "(other)"
        if self.steps is not None and value == int(value) and 0 <= value < len(self.steps):
            return self.steps[int(value)]
        if self.origin is not None:
            return moment_text(self.origin + value * DAY, self.zone, self.daily)
        return f"{value:.6g}" if self.unit is None else f"{value:.6g} {self.unit}"

    def codes(self, block: Floats) -> Floats:
        """Return one number a row, (N, width) → (N,): the value, NaN if it is missing, or the category's position.

        A category that training did not see is −1.
        """
        if self.categories is not None:
            return np.where(block.any(axis=1), block.argmax(axis=1), -1).astype(np.float64)
        if self.fill is None:
            return block[:, 0]
        return np.where(block[:, 1] >= 0.5, np.nan, block[:, 0])

    def features(self, codes: Floats) -> Floats:
        """Undo :meth:`codes`: (N,) → (N, width)."""
        if self.categories is not None:
            return (codes[:, None] == np.arange(len(self.categories))).astype(np.float64)
        if self.fill is None:
            return codes[:, None]
        gaps = np.isnan(codes)
        return np.column_stack([np.where(gaps, self.fill, codes), gaps])


def read_parts(parts: Sequence[Part], matrix: Any) -> tuple[Part, ...]:
    """Return the parts of a table as people read it: a number that is 0 or 1 in all rows (N, d) has two steps.

    >>> read_parts([Part("member"), Part("age")], np.array([[0.0, 31.0], [1.0, 40.0]]))[0].steps
    ('0', '1')
    """
    if not isinstance(matrix, np.ndarray):  # on a device, where looking costs a pass
        return tuple(parts)
    found, position = [], 0
    for part in parts:
        plain = part.plain and part.categories is None and part.fill is None
        two = plain and _is_two_valued(matrix[:, position])
        found.append(replace(part, steps=("0", "1")) if two else part)
        position += part.width
    return tuple(found)


def _is_two_valued(column: Floats) -> bool:
    """Whether a column has zeros and ones and nothing else: most others are told by their first rows."""
    if column[0] != 0 and column[0] != 1:
        return False
    for part in (column[:FIRST_ROWS], column):
        values = np.ascontiguousarray(part)  # from a row-major table, which is slow to read, once
        filled = int(np.count_nonzero(values))
        if np.count_nonzero(values == 1) < filled:
            return False
    return 0 < filled < len(column)
