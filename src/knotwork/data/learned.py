"""What learning a column gives: its record, and how to write the training rows; what fills its gaps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.columns.kinds import Column
from knotwork.data.columns.number import weighted_median
from knotwork.data.columns.skipped import Skipped
from knotwork.errors import ColumnWarning, warn


class Learned(NamedTuple):
    """A column, and what writes its features of the training rows into their place, (N, features)."""

    column: Column
    write: Callable[[Floats], Any]


class ManyLevels(NamedTuple):
    """A column of many categories, to be encoded by the response: codes (N,), −1 for a gap, and what they stand for."""

    name: str
    codes: NDArray[np.intp]
    levels: list[Any]


def fill_of(numbers: Floats, weights: Floats | None, always: bool = False) -> tuple[float | None, bool]:
    """Return the median of numbers (N,) with NaN for gaps, and whether rows that count have gaps.

    The median is None if no number is there, and if nothing is missing unless ``always``.
    """
    gaps = np.isnan(numbers)
    counted = None if weights is None else weights > 0
    indicator = bool((gaps if counted is None else gaps & counted).any())
    present = ~gaps if counted is None else ~gaps & counted
    if not (indicator or always) or not present.any():
        return None, indicator
    return weighted_median(numbers[present], None if weights is None else weights[present]), indicator


def left_out(name: str, reason: str) -> Learned:
    """Leave a column out, and say so."""
    warn(f"column {name!r} was left out: it {reason}", ColumnWarning)
    return Learned(Skipped(name, reason), lambda out: None)
