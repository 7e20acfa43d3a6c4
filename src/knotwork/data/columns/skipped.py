"""A column that nothing is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from knotwork.arrays import Floats
from knotwork.data.columns.part import Part
from knotwork.data.columns.surprise import NONE, Surprise


@dataclass(frozen=True)
class Skipped:
    """A column of the table without features; ``reason`` completes the sentence "column x was left out: it …"."""

    name: str
    reason: str = "is not used"

    @property
    def feature_names(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """None."""
        return ()

    @property
    def note(self) -> str:
        """Why."""
        return f"{self.name} was left out: it {self.reason}"

    def write(self, values: Any, out: Floats) -> Surprise:
        """Write nothing."""
        return NONE
