"""How far apart the knots of a feature are, by sums over the rows: candidates too close to a chosen knot must pay.

Two bends close together leave hardly a row between them to tell them from one. A bend at the wrong place invites a
second one beside it, which repairs it and follows the noise of the rows around. So a candidate within a distance of a
chosen knot is taken only if it explains far more than the largest of many chances would.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import Opening
from knotwork.spline.rules import Rules

# Share by which sums of rows may differ that ought to be the same.
ROUNDING = 1e-9


class Spacing:
    """Which candidates are close to a chosen knot of their feature.

    close : (C,) those that must pay; never : (C,) those that are not taken whatever they explain
    """

    def __init__(self, grid: CandidateGrid, opening: Opening, rules: Rules) -> None:
        self._grid, self._rules, self._total = grid, rules, opening.total
        self._place = _places(grid, opening)
        self._next = _neighbours(grid, opening)
        self.close = np.zeros(grid.knots.size, dtype=bool)
        self.never = np.zeros(grid.knots.size, dtype=bool)

    def take(self, position: int) -> None:
        """Take a candidate, the feature itself or a knot of it, into the model."""
        grid = self._grid
        _mark(
            grid.offsets, grid.feature, self._place, self._next, position, self._rules.distance,
            not self._rules.neighbours, self.close, self.never,
        )  # fmt: skip

    def pays(self, position: int, drop: float, rss: float, terms: int) -> bool:
        """Whether a close candidate explains enough: a fall in the RSS from ``rss``, with so many terms."""
        if self.never[position]:
            return False
        freedom = max(1.0, self._total - 1 - 1.5 * terms)
        return drop > self._rules.pays * math.log(max(self._total, 2.0)) * rss / freedom


@compiled
def _mark(offsets, feature, place, joined, position, distance, apart, close, never):  # type: ignore[no-untyped-def]
    """Mark the knots of a feature that are close to the one at a position; a feature itself has none close to it.

    joined : which knots have the next one at the next value; apart : whether such neighbours are never taken
    """
    first, last = offsets[feature[position]] + 1, offsets[feature[position] + 1]
    if position < first:
        return
    for i in range(first, last):
        near = (i == position + 1 and joined[position]) or (i == position - 1 and joined[i])
        close[i] |= near or abs(place[i] - place[position]) < distance
        never[i] |= near and apart


def _places(grid: CandidateGrid, opening: Opening) -> Floats:
    """Place of every knot from 0 to 1: the mean of the share of rows up to it and of the knots' range below it."""
    first, last = grid.offsets[:-1] + 1, grid.offsets[1:] - 1
    some = last >= first
    low = np.where(some, grid.knots[np.minimum(first, grid.knots.size - 1)], 0.0)
    width = np.where(some, grid.knots[last] - low, 0.0)
    width = np.where(width > 0, width, 1.0)
    rank = 1 - opening.mass / opening.total
    return (rank + (grid.knots - low[grid.feature]) / width[grid.feature]) / 2


def _neighbours(grid: CandidateGrid, opening: Opening) -> NDArray[np.bool_]:
    """Say which knots have the next one at the next value of the data: (C,).

    Then all rows above the knot lie at the next one or above, and Σ(x − t)₊ falls by exactly their number times the
    distance.
    """
    found = np.zeros(grid.knots.size, dtype=bool)
    same = grid.feature[1:] == grid.feature[:-1]
    same[grid.linear[grid.linear < same.size]] = False
    gap = np.where(same, grid.knots[1:] - grid.knots[:-1], 0.0)
    fall = opening.sums[:-1] - opening.sums[1:]
    whole = opening.mass[:-1] * gap
    found[:-1] = same & (np.abs(fall - whole) <= ROUNDING * np.maximum(np.abs(whole), np.abs(opening.sums[:-1])))
    return found
