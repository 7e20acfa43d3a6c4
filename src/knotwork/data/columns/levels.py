"""A column of a few categories: one indicator each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.columns.number import gap_name
from knotwork.data.columns.part import MISSING, Part
from knotwork.data.columns.series import factorise, listing, recognised
from knotwork.data.columns.surprise import Surprise


@dataclass(frozen=True)
class Levels:
    """Text or categories: an indicator for each, ``column=category``.

    categories : those with an indicator of their own, in order
    pooled : those too rare for one, which share an indicator; so does what training did not see
    gaps : whether training had gaps, which are a category of their own then

    Examples
    --------
    >>> Levels("Sex", ("F", "M"), gaps=True).feature_names
    ('Sex=F', 'Sex=M', 'Sex is missing')
    """

    name: str
    categories: tuple[Any, ...]
    pooled: tuple[Any, ...] = ()
    gaps: bool = False

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the indicators."""
        names = [f"{self.name}={category}" for category in self.categories]
        if self.pooled:
            names.append(f"{self.name}={self.pool}")
        return (*names, gap_name(self.name)) if self.gaps else tuple(names)

    @property
    def pool(self) -> str:
        """What the pooled categories are called together."""
        return "other" if "other" not in map(str, self.categories) else "(other)"

    @property
    def parts(self) -> tuple[Part, ...]:
        """One, with a label for every indicator."""
        labels = [str(category) for category in self.categories]
        labels += [self.pool] * bool(self.pooled) + [MISSING] * self.gaps
        return (Part(self.name, tuple(labels)),)

    @property
    def known(self) -> tuple[Any, ...]:
        """The categories that it knows."""
        return (*self.categories, *self.pooled)

    @property
    def unseen_means(self) -> str:
        """What becomes of a category that training did not see, in words."""
        if self.pooled:
            return f"they count as {self.pool!r}, like {listing([str(c) for c in self.pooled])}"
        return f"they count as none of {listing([str(c) for c in self.categories])}: all their indicators are 0"

    @property
    def note(self) -> str | None:
        """Which categories are pooled."""
        if not self.pooled:
            return None
        return f"{self.name}={self.pool}: {len(self.pooled)} rare categories, {listing([str(c) for c in self.pooled])}"

    def write(self, values: Any, out: Floats) -> Surprise:
        """Write the indicators of a series or an array into their place, (N, indicators)."""
        codes, levels = factorise(values)
        return self.write_codes(codes, recognised(levels, self.known), out)

    def write_codes(self, codes: NDArray[np.intp], levels: list[Any], out: Floats) -> Surprise:
        """Write the indicators of rows given by codes of levels, −1 for a gap."""
        place = {category: k for k, category in enumerate(self.categories)}
        known = len(self.categories)
        pool = known if self.pooled else -1
        place |= dict.fromkeys(self.pooled, pool)
        gap = known + bool(self.pooled) if self.gaps else pool
        # The last place is that of code −1.
        where = np.array([*(place.get(level, pool) for level in levels), gap], dtype=np.intp)
        out[:] = where[codes][:, None] == np.arange(out.shape[1])
        unseen = tuple(sorted(str(level) for level in levels if level not in place))
        return Surprise(0 if self.gaps else int(np.count_nonzero(codes < 0)), unseen)
