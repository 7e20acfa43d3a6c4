"""A column of durations, or of times of the day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from knotwork.arrays import Floats
from knotwork.data.columns.instants import UNITS, lengths
from knotwork.data.columns.number import gap_name, write_numbers
from knotwork.data.columns.part import Part
from knotwork.data.columns.surprise import Surprise


@dataclass(frozen=True)
class Duration:
    """Durations, or times of the day since midnight: a number of days, hours or seconds.

    unit : one of "days", "hours", "seconds"
    fill : stands for a gap, the median of training; None if gaps are refused
    indicator : whether training had gaps
    """

    name: str
    unit: str
    fill: float | None = None
    indicator: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The column's name, and that of the indicator if there is one."""
        return (self.name, gap_name(self.name)) if self.indicator else (self.name,)

    @property
    def parts(self) -> tuple[Part, ...]:
        """One."""
        return (Part(self.name, fill=self.fill if self.indicator else None, unit=self.unit),)

    @property
    def note(self) -> str:
        """How to read it."""
        gaps = f"; missing ones count as {self.fill:.6g}" if self.fill is not None and self.indicator else ""
        return f"{self.name}: in {self.unit}{gaps}"

    def write(self, values: Any, out: Floats) -> Surprise:
        """Write the features of a series into their place, (N, 1) or (N, 2)."""
        return write_numbers(lengths(values, self.name) / UNITS[self.unit], self.fill, self.indicator, out)
