"""What people move and read: the features of a column that stand for one value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from knotwork.arrays import Floats

MISSING = "missing"


@dataclass(frozen=True)
class Part:
    """One value, made of one or more features: a number, a number that may be missing, or one of some categories.

    name : of the column, or of the part of a date
    categories : their labels if the features are indicators of them; None for a number
    fill : what stands for a missing number, if the second feature says that it is missing; None without gaps
    steps : what the whole numbers from 0 on stand for, if they are ordered categories; None for other numbers
    """

    name: str
    categories: tuple[str, ...] | None = None
    fill: float | None = None
    steps: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        """Number of features."""
        if self.categories is not None:
            return len(self.categories)
        return 1 if self.fill is None else 2

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
