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
from knotwork.compute.compiled import compiled, compiled_reduction
from knotwork.compute.workers import Workers
from knotwork.spline.moments.bins import SEARCH_TILE, encode, padded
from knotwork.spline.moments.grid import CandidateGrid

# Above this many rows, knots are taken from a fixed sample of them: quantiles of 65 536 rows are as good as any,
# and sorting every column would cost as much as several passes of the search.
SAMPLE = 65_536
# Parts of a column of heavy tails that are dealt into cells of their own.
SEGMENTS = 128
NO_VALUES, NO_SEGMENTS = np.empty(0), np.empty(0, np.uint8)
# What a sort works in: the sorted column, the cell of each value, the end of each cell.
Room = tuple[Floats, NDArray[np.int32], NDArray[np.int32]]


@dataclass(frozen=True)
class Spans:
    """Minimum number of observations between two knots, and between a knot and the ends of the data."""

    minspan: int
    endspan: int


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
def _deal(x, segment, low, base, factor, cell_of, end, out):  # type: ignore[no-untyped-def]
    """Sort by dealing values into as many cells as there are and sorting each; return whether cells were even enough.

    The cells of segment s begin with number ``base[s]``, at the value ``low[s]``, with ``factor[s]`` cells to a unit.
    segment : (N,) of each value; if it is empty, all cells are equal
    cell_of, end : (N,) and (N + 1,) room
    """
    size = x.size
    for cell in range(size + 1):
        end[cell] = 0
    if segment.size == 0:
        minimum, maximum = x[0], x[0]
        for i in range(size):
            minimum = x[i] if x[i] < minimum else minimum
            maximum = x[i] if x[i] > maximum else maximum
        scale = (size - 1) / (maximum - minimum) if maximum > minimum else 0.0
        for i in range(size):
            cell_of[i] = np.int32((x[i] - minimum) * scale)
    else:
        for i in range(size):
            s = segment[i]
            cell_of[i] = np.int32(base[s] + (x[i] - low[s]) * factor[s])
    for i in range(size):
        end[cell_of[i] + 1] += 1
    for cell in range(size):
        end[cell + 1] += end[cell]
    for i in range(size):
        cell = cell_of[i]
        out[end[cell]] = x[i]
        end[cell] += 1
    # Values are out of order inside their cells only; many to a cell means that cells do not help here.
    patience = 6 * size
    for i in range(1, size):
        v = out[i]
        k = i - 1
        while k >= 0 and out[k] > v:
            out[k + 1] = out[k]
            k -= 1
        out[k + 1] = v
        patience -= i - k
        if patience < 0:
            return False
    return True


def _sort(x: Floats, room: Room) -> Floats:
    """Sort a column: in a quarter of the time of ``np.sort``, with heavy tails in half of it.

    Cells are equal at first; if that fails, equal between quantiles of a sample; else ``np.sort`` does it.
    """
    n, (out, cell_of, end) = x.size, room
    if _deal(x, NO_SEGMENTS, NO_VALUES, NO_VALUES, NO_VALUES, cell_of, end, out):
        return out
    edges = np.sort(x[:: max(1, n // (4 * SEGMENTS))])
    edges = edges[np.arange(1, SEGMENTS) * edges.size // SEGMENTS]
    low, high = x.min(), x.max()
    segment = np.empty(n, np.uint8)
    encode(x, padded(edges, edges.size), 1.0, np.empty(SEARCH_TILE, np.uint32), segment)
    starts, widths = np.concatenate([[low], edges]), np.diff(edges, prepend=low, append=high)
    base = np.arange(SEGMENTS) * n // SEGMENTS
    cells = np.diff(base, append=n) - 1
    # Segments of no width hold equal values.
    factor = np.divide(cells, widths, out=np.zeros(SEGMENTS), where=(widths > 1e-200) & (cells > 0))
    if not _deal(x, segment, starts, base.astype(np.float64), factor, cell_of, end, out):
        out.sort()
    return out


@compiled
def _select_knots(ordered, upto, each, highest, minspan, endspan, max_knots, knots):  # type: ignore[no-untyped-def]
    """Write the knots of one column, rising; ``max_knots`` of them at most, unless it is 0. Return their number.

    ordered : the column, sorted
    upto : observations up to and including each entry; empty if every entry stands for ``each`` of them
    highest : the position of the highest knot if no maxima are tied
    knots : room for as many as there are positions
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
) -> Floats:
    """Choose the knots of a column that stands for so many observations, below a highest position."""
    minspan, endspan = float(spans.minspan), float(spans.endspan)
    if weights is None:
        ordered, upto = _sort(column, room), NO_VALUES
    else:
        order = np.argsort(column, kind="stable")
        ordered, upto = column[order], np.cumsum(weights[order])
        upto *= total / upto[-1]
    knots = np.empty(int((highest - endspan) / minspan) + 1)
    each = total / column.size
    return knots[: _select_knots(ordered, upto, each, highest, minspan, endspan, max_knots or 0, knots)]


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
    parts = workers.split(d, work=n * d)
    total = float(n) if weights is None else float(weights.sum())
    spare = (total - 2.0 * spans.endspan) % spans.minspan
    highest = total - spans.endspan - (spans.minspan // 2 if spare == 0.0 else spare // 2.0)
    if rows is not None and weights is not None:
        weights = weights[rows]

    def task(k: int) -> None:
        size = n if rows is None else rows.size
        room = np.empty(size), np.empty(size, np.int32), np.empty(size + 1, np.int32)
        for f in range(*parts[k]):
            column = columns[f] if rows is None else columns[f, rows]
            knots[f] = _knots_of_column(column, weights, total, highest, spans, max_knots, room)

    if highest > spans.endspan:
        workers.run(task, len(parts))
    return _lay_out(knots)


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
    return _lay_out(knots)


def _lay_out(knots: list[Floats]) -> CandidateGrid:
    sizes = np.array([k.size + 1 for k in knots])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    flat = np.zeros(offsets[-1])
    for f, k in enumerate(knots):
        flat[offsets[f] + 1 : offsets[f + 1]] = k
    return CandidateGrid(offsets=offsets, knots=flat, feature=np.repeat(np.arange(len(sizes)), sizes))
