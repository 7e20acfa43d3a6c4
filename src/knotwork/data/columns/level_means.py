"""A column of many categories: each becomes a number, the mean response of the training rows that have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats, FrozenArrays
from knotwork.data.columns.part import Part
from knotwork.data.columns.series import factorise, recognised
from knotwork.data.columns.surprise import Surprise


@dataclass(frozen=True, eq=False)
class LevelMeans(FrozenArrays):
    """Text or categories by the mean response of their rows, drawn towards the mean of all rows where rows are few.

    levels : those that training saw; means : (levels, k) what each becomes
    default : (k,) what becomes of any other, the mean of all rows
    gap : (k,) what becomes of a gap; None if training had none, and the default stands in
    measures : names of the k numbers: "mean", or "mean of y0", "share of setosa", …

    Examples
    --------
    >>> column = LevelMeans("city", ("Bonn", "Rome"), np.array([[1.0], [3.0]]), np.array([2.0]), None, ("mean",))
    >>> column.feature_names
    ('city: mean',)
    """

    name: str
    levels: tuple[Any, ...]
    means: Floats
    default: Floats
    gap: Floats | None
    measures: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LevelMeans):
            return NotImplemented
        mine, theirs = ((c.name, c.levels, c.measures, c.gap is None) for c in (self, other))
        arrays = ((self.means, other.means), (self.default, other.default), (self.gap, other.gap))
        return mine == theirs and all(a is b or np.array_equal(a, b) for a, b in arrays)  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """A name for each of the k numbers."""
        return tuple(f"{self.name}: {measure}" for measure in self.measures)

    @property
    def parts(self) -> tuple[Part, ...]:
        """A number each."""
        return tuple(Part(name) for name in self.feature_names)

    @property
    def known(self) -> tuple[Any, ...]:
        """The categories that it knows."""
        return self.levels

    @property
    def unseen_means(self) -> str:
        """What becomes of a category that training did not see, in words."""
        return "they count as the mean of all categories"

    @property
    def note(self) -> str:
        """How to read it."""
        return (
            f"{self.name}: {len(self.levels)} categories, each by the mean response of its rows; training rows by the "
            f"mean without their own"
        )

    def write(self, values: Any, out: Floats) -> Surprise:
        """Write the numbers of a series or an array into their place, (N, k)."""
        codes, levels = factorise(values)
        where = self._places(levels)
        table = np.vstack([self.means, self.default, self.default if self.gap is None else self.gap])
        out[:] = table[where[codes]]
        unseen = _unseen(levels, where[:-1] == len(self.levels))
        return Surprise(0 if self.gap is not None else int(np.count_nonzero(codes < 0)), unseen)

    def codes(self, values: Any) -> NDArray[np.intp]:
        """Number the levels of a series or an array: (N,); behind those known, what training did not see, and gaps."""
        codes, levels = factorise(values)
        return self._places(levels)[codes]

    def _places(self, levels: list[Any]) -> NDArray[np.intp]:
        place = {level: k for k, level in enumerate(self.levels)}
        found = (place.get(level, len(place)) for level in recognised(levels, self.levels))
        return np.array([*found, len(place) + 1], dtype=np.intp)


def _unseen(levels: list[Any], mask: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(sorted(str(levels[k]) for k in np.flatnonzero(mask)))
