"""A column of categories that somebody has given an order: numbers from 0, which a spline bends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.columns.number import gap_name, write_numbers
from knotwork.data.columns.part import Part
from knotwork.data.columns.series import factorise, recognised
from knotwork.data.columns.surprise import Surprise


@dataclass(frozen=True)
class Ordered:
    """Ordered categories: 0, 1, 2, … in their order, and a second feature that says where they are missing.

    categories : all of them in order, also those that training did not see
    fill : stands for a gap: the median of training; None if gaps are refused
    indicator : whether training had gaps

    Examples
    --------
    >>> Ordered("grade", ("low", "medium", "high")).feature_names
    ('grade',)
    """

    name: str
    categories: tuple[Any, ...]
    fill: float | None = None
    indicator: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The column's name, and that of the indicator if there is one."""
        return (self.name, gap_name(self.name)) if self.indicator else (self.name,)

    @property
    def parts(self) -> tuple[Part, ...]:
        """One."""
        return (Part(self.name, fill=self.fill if self.indicator else None, steps=tuple(map(str, self.categories))),)

    @property
    def known(self) -> tuple[Any, ...]:
        """The categories that it knows."""
        return self.categories

    @property
    def unseen_means(self) -> str:
        """What becomes of a category that is not in the order, in words."""
        return "they count as missing, for they have no place in the order"

    @property
    def note(self) -> str:
        """How to read it."""
        last = len(self.categories) - 1
        gaps = f"; missing ones count as {self.parts[0].text(self.fill or 0.0)}" if self.indicator else ""
        return f"{self.name}: from 0 ({self.categories[0]}) to {last} ({self.categories[-1]}){gaps}"

    def write(self, values: Any, out: Floats) -> Surprise:
        """Write the numbers of a series or an array into their place, (N, 1) or (N, 2)."""
        codes, levels = factorise(values)
        levels = recognised(levels, self.categories)
        ranks = self.ranks(codes, levels)
        known = set(self.categories)
        unseen = tuple(sorted(str(level) for level in levels if level not in known))
        surprise = write_numbers(ranks, self.fill, self.indicator, out)
        return Surprise(0 if unseen else surprise.gaps, unseen)

    def ranks(self, codes: NDArray[np.intp], levels: list[Any]) -> Floats:
        """Return the places of rows given by codes of levels, NaN for gaps and for what has no place."""
        place = {category: float(k) for k, category in enumerate(self.categories)}
        return np.array([*(place.get(level, np.nan) for level in levels), np.nan])[codes]
