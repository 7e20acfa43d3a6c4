"""Where a feature may bend: candidate knots, always values of the data.

Two spans keep knots apart from each other and from the ends of the data, where a run of noise looks like a bend.
All positions count observations, so a row of weight two counts like two rows.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.compiled import compiled, compiled_reduction
from knotwork.spline.workers import Workers

# Above this many rows, knots are taken from a fixed sample of them: quantiles of 65 536 rows are as good as any,
# and sorting every column would cost as much as several passes of the search.
SAMPLE = 65_536


@dataclass(frozen=True)
class Spans:
    """Least number of observations between two knots, and between a knot and the ends of the data."""

    minspan: int
    endspan: int


@dataclass(frozen=True)
class CandidateGrid:
    """All columns the search may choose from, laid out flat.

    Feature f owns the positions ``offsets[f]`` to ``offsets[f + 1]``: first the feature itself, then one hinge
    (x − t)₊ per knot t in rising order. The same positions number the bins of a histogram over the feature: a
    value lies in the bin of the last candidate that is not zero for it. A suffix sum over the bins is therefore
    a sum over the rows where the candidate is active.

    offsets : (d + 1,) int64
    knots : (C,) standardised; 0 at the features' own positions
    feature : (C,) the feature of each position
    """

    offsets: NDArray[np.int64]
    knots: Floats
    feature: NDArray[np.int64]

    @property
    def linear(self) -> NDArray[np.int64]:
        """Position of each feature itself: (d,)."""
        return self.offsets[:-1]

    @property
    def most_bins(self) -> int:
        """Bins of the feature with most knots."""
        return int(np.diff(self.offsets).max())


def default_spans(n: float, d: int, minspan: int | None, endspan: int | None) -> Spans:
    """Friedman's spans for n observations of d features: a run that long is noise with probability 5 % at most.

    >>> default_spans(4177, 10, None, None)
    Spans(minspan=7, endspan=10)
    """
    if minspan is None:
        minspan = int(-np.log2(-np.log(0.95) / (d * n)) / 2.5)
    if endspan is None:
        endspan = int(3 - np.log2(0.05 / d))
    # However few the observations, one position in the middle stays allowed.
    return Spans(minspan=max(1, minspan), endspan=max(1, min(endspan, int(n) // 2 - 1)))


@compiled_reduction
def _range(x):  # type: ignore[no-untyped-def]
    low, high = x[0], x[0]
    for v in x:
        low, high = min(low, v), max(high, v)
    return low, high


@compiled
def _shell_sort(x):  # type: ignore[no-untyped-def]
    """Sort in place: a dozen lines, where numba's own sort takes longer to compile than everything else here."""
    gap = 1
    while gap < x.size // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, x.size):
            v = x[i]
            k = i - gap
            while k >= 0 and x[k] > v:
                x[k + gap] = x[k]
                k -= gap
            x[k + gap] = v
        gap //= 3


@compiled
def _sort(x):  # type: ignore[no-untyped-def]
    """Sort a column by dealing it into equal cells and sorting each: linear time unless the values are very uneven."""
    low, high = _range(x)
    cells = x.size
    factor = (cells - 1) / (high - low) if high > low else 0.0
    cell_of = np.empty(x.size, np.int32)
    for i in range(x.size):
        cell_of[i] = np.int32((x[i] - low) * factor)
    end = np.zeros(cells + 1, np.int32)
    for cell in cell_of:
        end[cell + 1] += 1
    for cell in range(cells):
        end[cell + 1] += end[cell]
    out = np.empty_like(x)
    for i in range(x.size):
        out[end[cell_of[i]]] = x[i]
        end[cell_of[i]] += 1
    # Values are out of order inside their cells only; many to a cell means that cells do not help here.
    patience = 16 * x.size
    for i in range(1, x.size):
        v = out[i]
        k = i - 1
        while k >= 0 and out[k] > v:
            out[k + 1] = out[k]
            k -= 1
        out[k + 1] = v
        patience -= i - k
        if patience < 0:
            _shell_sort(out)
            break
    return out


@compiled
def _select_knots(ordered, upto, minspan, endspan, max_knots):  # type: ignore[no-untyped-def]
    """Return the knots of one column, rising; ``max_knots`` of them at most, unless it is 0.

    ordered : the column, sorted
    upto : observations up to and including each entry; an array of one entry says how many each of them stands for
    """
    last = ordered.size - 1
    each = upto[0]
    counted = upto.size == 1
    total = each * ordered.size if counted else upto[last]
    top = last
    while top > 0 and ordered[top - 1] == ordered[last]:
        top -= 1
    if top == 0:
        return np.empty(0)  # constant
    # Positions are counted from the first of the tied maxima.
    tied = total - (each * top if counted else upto[top - 1]) - 1.0
    spare = (total - 2.0 * endspan) % minspan
    position = total - endspan - (minspan // 2 if spare == 0.0 else spare // 2.0)
    falling = np.empty(max(0, int((position - endspan) / minspan) + 1))
    count = 0
    i = last
    while position > endspan and position - tied > endspan:
        # Weights are sums of floats: a position counts as reached a rounding error early.
        adjusted = position - tied - 1e-9 * total
        if counted:
            i = int(np.ceil(adjusted / each)) - 1
        else:
            while i > 0 and upto[i - 1] >= adjusted:
                i -= 1
        # A hinge at the least value is the feature itself, moved.
        if i < top and ordered[i] > ordered[0] and (count == 0 or ordered[i] != falling[count - 1]):
            falling[count] = ordered[i]
            count += 1
        position -= minspan
    if max_knots == 0 or count <= max_knots:
        return falling[:count][::-1].copy()
    # Spread evenly over the mean of rank and value: ranks alone would leave the tails without knots.
    knots = np.empty(max_knots)
    kept, due = 0, 0.5
    bottom, width = falling[count - 1], falling[0] - falling[count - 1]
    for k in range(count):
        knot = falling[count - 1 - k]
        place = max_knots * (0.5 * (k + 0.5) / count + 0.5 * (knot - bottom) / width)
        if place >= due and kept < max_knots:
            knots[kept] = knot
            kept += 1
            due = np.floor(place + 0.5) + 0.5
    return knots[:kept]


@compiled
def _knots_of_column(column, minspan, endspan, max_knots):  # type: ignore[no-untyped-def]
    low, high = _range(column)
    i = 0
    while i < column.size and (column[i] == low or column[i] == high):
        i += 1
    if i == column.size:
        return np.empty(0)  # two values: a hinge between them is the feature itself
    return _select_knots(_sort(column), np.ones(1), minspan, endspan, max_knots)


def _knots_of_weighted_column(
    column: Floats, weights: Floats | None, rows: NDArray[np.intp] | None, spans: tuple[float, float, int]
) -> Floats:
    """Choose the knots of a column whose rows count unequally, or of a sample of it that stands for all."""
    total = float(column.size) if weights is None else float(weights.sum())
    if rows is not None:
        column, weights = column[rows], None if weights is None else weights[rows]
    if weights is None:
        ordered, upto = _sort(column), np.array([total / column.size])
    else:
        order = np.argsort(column, kind="stable")
        ordered, upto = column[order], np.cumsum(weights[order])
        upto *= total / upto[-1]
    knots: Floats = _select_knots(ordered, upto, *spans)
    return knots


def choose_candidates(
    columns: Floats, weights: Floats | None, spans: Spans, max_knots: int | None, workers: Workers
) -> CandidateGrid:
    """Choose the knots of standardised columns (d, N); at most ``max_knots`` a feature, evenly spread in rank.

    >>> grid = choose_candidates(np.arange(12.0)[None, :], None, Spans(minspan=3, endspan=2), None, Workers(1))
    >>> grid.knots
    array([0., 2., 5., 8.])
    """
    d, n = columns.shape
    rows = None
    if n > SAMPLE and max_knots is not None:
        rows = np.sort(np.random.default_rng(0).choice(n, SAMPLE, replace=False))
    knots: list[Floats] = [np.empty(0)] * d

    limits = (float(spans.minspan), float(spans.endspan), max_knots or 0)

    parts = workers.split(d, work=n * d)

    def task(k: int) -> None:
        for f in range(*parts[k]):
            if weights is None and rows is None:
                knots[f] = _knots_of_column(columns[f], *limits)
            else:
                knots[f] = _knots_of_weighted_column(columns[f], weights, rows, limits)

    workers.run(task, len(parts))
    return _lay_out(knots)


@compiled
def rows_at(column, value, out):  # type: ignore[no-untyped-def]
    """Write the first rows where a column (N,) equals a value into ``out``; return how many there are in all."""
    count = 0
    for i in range(column.size):
        if column[i] == value:
            if count < out.size:
                out[count] = i
            count += 1
    return count


def child_candidates(grid: CandidateGrid, most: int, least: Floats) -> CandidateGrid:
    """Choose the knots of interactions: at most ``most`` of a feature's knots, evenly spread over those there are.

    A feature without knots, one of two values, say, bends nothing on its own, but beside another it tells rows apart:
    it gets its least value (d,) as a knot, unless that is NaN.

    >>> grid = CandidateGrid(np.array([0, 6, 7]), np.array([0.0, 1, 2, 3, 4, 5, 0]), np.array([0, 0, 0, 0, 0, 0, 1]))
    >>> child_candidates(grid, 3, least=np.array([-9.0, -1.0])).knots
    array([ 0.,  1.,  3.,  5.,  0., -1.])
    """
    knots: list[Floats] = []
    for f, (first, last) in enumerate(itertools.pairwise(grid.offsets)):
        count = last - first - 1
        places = np.arange(count) if count <= most else np.arange(most) * (count - 1) // max(most - 1, 1)
        chosen = grid.knots[first + 1 + places]
        knots.append(least[f : f + 1] if count == 0 and not np.isnan(least[f]) else chosen)
    return _lay_out(knots)


def _lay_out(knots: list[Floats]) -> CandidateGrid:
    sizes = np.array([k.size + 1 for k in knots])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    flat = np.zeros(offsets[-1])
    for f, k in enumerate(knots):
        flat[offsets[f] + 1 : offsets[f + 1]] = k
    return CandidateGrid(offsets=offsets, knots=flat, feature=np.repeat(np.arange(len(sizes)), sizes))
