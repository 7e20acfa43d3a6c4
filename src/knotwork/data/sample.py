"""Rows to learn from: features, targets and weights side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from knotwork.arrays import Floats


@dataclass(frozen=True)
class Sample:
    """X (N, d), y (N, p) numbers or (N,) codes of classes, weight (N,)."""

    X: Floats
    y: NDArray[Any]
    weight: Floats

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: NDArray[Any]) -> Sample:
        """Return some of the rows, by mask or number."""
        return Sample(self.X[rows], self.y[rows], self.weight[rows])
