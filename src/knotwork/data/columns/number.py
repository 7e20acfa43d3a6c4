"""A column of numbers, which may have gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.columns.part import Part
from knotwork.data.columns.series import floats
from knotwork.data.columns.surprise import NONE, Surprise


@dataclass(frozen=True)
class Number:
    """Numbers and booleans: one feature, and a second one that says where they are missing.

    fill : stands for a missing number: the median of those present in training, or their mean where none was missing;
        None if gaps are refused
    indicator : whether training had gaps, and the model therefore has the feature ``name is missing``

    Examples
    --------
    >>> Number("age", fill=40.0, indicator=True).feature_names
    ('age', 'age is missing')
    """

    name: str
    fill: float | None = None
    indicator: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The column's name, and that of the indicator if there is one."""
        return (self.name, gap_name(self.name)) if self.indicator else (self.name,)

    @property
    def parts(self) -> tuple[Part, ...]:
        """One."""
        return (Part(self.name, fill=self.fill if self.indicator else None),)

    @property
    def note(self) -> str | None:
        """What becomes of gaps."""
        if not self.indicator or self.fill is None:
            return None
        return f"{self.name}: missing values count as {self.fill:.6g}"

    def write(self, values: Any, out: Floats) -> Surprise:
        """Write the features of a series or an array into their place, (N, 1) or (N, 2)."""
        return write_numbers(floats(values, self.name), self.fill, self.indicator, out)


def gap_name(column: str) -> str:
    """Return the name of the feature that says where a column has no value."""
    return f"{column} is missing"


def write_numbers(numbers: Floats, fill: float | None, indicator: bool, out: Floats) -> Surprise:
    """Write numbers, NaN where they are missing, and the indicator if there is one; gaps stay NaN without a fill."""
    out[:, 0] = numbers
    gaps = np.isnan(out[:, 0])
    if indicator:
        out[:, 1] = gaps
    count = int(np.count_nonzero(gaps))
    if not count or fill is None:
        return NONE
    out[gaps, 0] = fill
    return NONE if indicator else Surprise(gaps=count)


def weighted_median(values: Floats, weights: Floats | None) -> float:
    """Return the median of values that are not missing; a weight counts like that many values.

    >>> weighted_median(np.array([3.0, 1.0, 2.0]), np.array([2.0, 1.0, 1.0]))
    2.5
    """
    if weights is None:
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    values, sums = values[order], np.cumsum(weights[order])
    half = sums[-1] / 2
    # The half may fall between two values; sums of weights round.
    near = 1e-12 * sums[-1]
    low = values[np.searchsorted(sums, half - near)]
    high = values[min(np.searchsorted(sums, half + near), len(values) - 1)]
    return float(low / 2 + high / 2) if low != high else float(low)
