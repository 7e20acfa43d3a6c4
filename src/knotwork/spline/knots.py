"""Where a feature may bend: candidate knots, always values of the data.

Two spans keep knots apart from each other and from the ends of the data, where a run of noise looks like a bend.
All positions count observations, so a row of weight two counts like two rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled
from knotwork.compute.workers import Workers
from knotwork.data.limits import reach, sampled_rows
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.scaling import Scaling
from knotwork.spline.sorting import Room, room_of, sorted_column
from knotwork.spline.units import KnotValues

NO_VALUES = np.empty(0)


@dataclass(frozen=True)
class Spans:
    """Minimum number of observations between two knots, and between a knot and the ends of the data."""

    minspan: int
    endspan: int


MAX_SPAN = 1 << 40


def default_spans(n: float, d: int, minspan: int | None, endspan: int | None) -> Spans:
    """Friedman's spans for n observations of d features: a run that long is noise with probability 5 % at most.

    >>> default_spans(4177, 10, None, None)
    Spans(minspan=7, endspan=10)
    """
    if minspan is None:
        minspan = int(-np.log2(-np.log(0.95) / max(d * n, 1.0)) / 2.5)
    if endspan is None:
        endspan = int(3 - np.log2(0.05 / d))
    # However few the observations, one position in the middle stays allowed. Kernels count in 64 bits.
    return Spans(minspan=max(1, min(minspan, MAX_SPAN)), endspan=max(1, min(endspan, int(n) // 2 - 1)))


@compiled
def _select_knots(ordered, upto, each, highest, minspan, endspan, max_knots, knots):  # type: ignore[no-untyped-def]
    """Write the knots of one column, rising; ``max_knots`` of them at most, unless it is 0. Return their number.

    ordered : the column, sorted
    upto : observations up to and including each entry; empty if every entry stands for ``each`` of them
    highest : the position of the highest knot if no maxima are tied
    knots : room for as many as there are positions, or entries if those are fewer
    """
    last, counted = ordered.size - 1, upto.size == 0
    top = last
    while top > 0 and ordered[top - 1] == ordered[last]:
        top -= 1
    if top == 0:
        return 0  # constant
    # Positions are counted from the first of the tied maxima.
    total, below = (each * ordered.size, each * top) if counted else (upto[last], upto[top - 1])
    tied = total - below - 1.0
    first = knots.size
    i, position = last, highest
    while position > endspan and position - tied > endspan:
        # Weights are sums of floats: a position counts as reached a rounding error early.
        adjusted = position - tied - 1e-9 * total
        if counted:
            i = int(adjusted / each)
            i -= i == adjusted / each
        else:
            while i > 0 and upto[i - 1] >= adjusted:
                i -= 1
        # A hinge at the minimum is the feature itself, moved.
        if i < top and ordered[i] > ordered[0] and (first == knots.size or ordered[i] != knots[first]):
            first -= 1
            knots[first] = ordered[i]
        # There may be far more observations than entries: positions that stay in an entry are passed over.
        if i == 0:
            break
        below = (each * i if counted else upto[i - 1]) + tied
        if position - minspan == position:
            position = below
        elif position - below > 4.0 * minspan:
            position -= minspan * np.floor((position - below) / minspan - 1.0)
        position -= minspan
    count = knots.size - first
    thin = 0 < max_knots < count
    # Spread evenly over the mean of rank and value: ranks alone would leave the tails without knots.
    kept, due = 0, 0.5
    bottom, width = knots[first], knots[-1] - knots[first]
    for k in range(count):
        knot = knots[first + k]
        if thin:
            place = max_knots * (0.5 * (k + 0.5) / count + 0.5 * (knot - bottom) / width)
            if place < due or kept == max_knots:
                continue
            due = int(place + 0.5) + 0.5
        knots[kept] = knot
        kept += 1
    return kept


def _knots_of_column(
    column: Floats,
    weights: Floats | None,
    total: float,
    highest: float,
    spans: Spans,
    max_knots: int | None,
    room: Room,
) -> tuple[Floats, tuple[float, float]]:
    """Choose the knots of a column that stands for so many observations, below a highest position.

    Return also how far its values may lie.
    """
    minspan, endspan = float(spans.minspan), float(spans.endspan)
    if weights is None:
        ordered, upto = sorted_column(column, room), NO_VALUES
    else:
        order = np.argsort(column, kind="stable")
        ordered, upto = column[order], np.cumsum(weights[order])
        upto *= total / upto[-1]
    knots = np.empty(min(int((highest - endspan) / minspan) + 1, column.size))
    each = total / column.size
    count = _select_knots(ordered, upto, each, highest, minspan, endspan, max_knots or 0, knots)
    return knots[:count], reach(ordered, upto)


def choose_candidates(
    columns: Floats,
    weights: Floats | None,
    spans: Spans,
    max_knots: int | None,
    workers: Workers,
    total: float | None = None,
) -> tuple[CandidateGrid, Floats]:
    """Choose the knots of standardised columns (d, N); at most ``max_knots`` a feature, evenly spread in rank.

    Return also how far down and up the values of each column may lie, (2, d): the columns are sorted here. Tables of
    more than 65 536 rows are judged by a sample of so many: their quantiles are as good as any, and sorting every
    column would cost as much as several passes of the search.

    total : the observations that the columns stand for, if they are such a sample themselves

    >>> grid, _ = choose_candidates(np.arange(12.0)[None, :], None, Spans(minspan=3, endspan=2), None, Workers(1))
    >>> grid.knots
    array([0., 2., 5., 8.])
    """
    d, n = columns.shape
    rows = None if max_knots is None else sampled_rows(n)
    reaches = np.array([[-np.inf], [np.inf]]).repeat(d, axis=1)
    knots: list[Floats] = [np.empty(0)] * d
    parts = workers.split(d, work=n * d)
    if total is None:
        total = float(n) if weights is None else float(weights.sum())
    spare = (total - 2.0 * spans.endspan) % spans.minspan
    highest = total - spans.endspan - (spans.minspan // 2 if spare == 0.0 else spare // 2.0)
    if rows is not None and weights is not None:
        weights = weights[rows]

    def task(k: int) -> None:
        size = n if rows is None else rows.size
        room = room_of(size)
        for f in range(*parts[k]):
            column = columns[f] if rows is None else columns[f].take(rows)
            knots[f], reaches[:, f] = _knots_of_column(column, weights, total, highest, spans, max_knots, room)

    if highest > spans.endspan:
        workers.run(task, len(parts))
    return lay_out(knots), reaches


def child_candidates(grid: CandidateGrid, max_knots: int, minimum: Floats) -> CandidateGrid:
    """Choose the knots of interactions: at most ``max_knots`` of a feature's knots, evenly spread over those there are.

    A feature without knots, one of two values, say, never bends on its own, but as a child it distinguishes rows: it
    gets its ``minimum`` (d,) as a knot, unless that is NaN.

    >>> grid = CandidateGrid(np.array([0, 6, 7]), np.array([0.0, 1, 2, 3, 4, 5, 0]), np.array([0, 0, 0, 0, 0, 0, 1]))
    >>> child_candidates(grid, 3, minimum=np.array([-9.0, -1.0])).knots
    array([ 0.,  1.,  3.,  5.,  0., -1.])
    """
    knots: list[Floats] = []
    for f, (first, last) in enumerate(itertools.pairwise(grid.offsets)):
        count = last - first - 1
        places = np.arange(count) if count <= max_knots else np.arange(max_knots) * (count - 1) // max(max_knots - 1, 1)
        chosen = grid.knots[first + 1 + places]
        knots.append(minimum[f : f + 1] if count == 0 and not np.isnan(minimum[f]) else chosen)
    return lay_out(knots)


def with_given(
    grid: CandidateGrid, given: Sequence[Floats | None], scaling: Scaling
) -> tuple[CandidateGrid, KnotValues]:
    """Put knots that a user gave, in the data's units, in the place of those that were chosen.

    Return the grid, and the values as they were given by (feature, standardised knot).
    """
    values: KnotValues = {}
    knots = []
    for f, (first, last) in enumerate(itertools.pairwise(grid.offsets)):
        own = given[f]
        if own is None:
            knots.append(grid.knots[first + 1 : last])
            continue
        standardised = own * scaling.scale[f] - scaling.centre[f]
        values |= {(f, float(z)): float(t) for z, t in zip(standardised, own, strict=True)}
        knots.append(np.unique(standardised))
    return lay_out(knots), values


def lay_out(knots: list[Floats]) -> CandidateGrid:
    """Lay out the knots of each feature, rising, behind the feature itself."""
    sizes = np.array([k.size + 1 for k in knots])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    flat = np.zeros(offsets[-1])
    for f, k in enumerate(knots):
        flat[offsets[f] + 1 : offsets[f + 1]] = k
    return CandidateGrid(offsets=offsets, knots=flat, feature=np.repeat(np.arange(len(sizes)), sizes))
