"""Where a feature may bend: candidate knots, always values of the data.

Two spans keep knots apart from each other and from the ends of the data, where a run of noise looks like a bend.
All positions count observations, so a row of weight two counts like two rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.spline.compiled import compiled
from knotwork.spline.model import Floats
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


@compiled
def _sort(x):  # type: ignore[no-untyped-def]
    """Sort a column by dealing it into equal cells and sorting each: linear time unless the values are very uneven."""
    low, high = x[0], x[0]
    for v in x:
        low, high = min(low, v), max(high, v)
    cells = x.size
    factor = (cells - 1) / (high - low) if high > low else 0.0
    end = np.zeros(cells + 1, np.int32)
    for v in x:
        end[int((v - low) * factor) + 1] += 1
    for cell in range(cells):
        end[cell + 1] += end[cell]
    out = np.empty_like(x)
    for v in x:
        cell = int((v - low) * factor)
        out[end[cell]] = v
        end[cell] += 1
    first = 0
    for cell in range(cells):
        last = end[cell]
        if last - first > 24:
            i = first + 1
            while i < last and out[i - 1] <= out[i]:  # equal values fill a cell in order
                i += 1
            if i < last:
                out[first:last].sort()
        else:
            for i in range(first + 1, last):
                v = out[i]
                k = i - 1
                while k >= first and out[k] > v:
                    out[k + 1] = out[k]
                    k -= 1
                out[k + 1] = v
        first = last
    return out


@compiled
def _select_knots(ordered, upto, minspan, endspan, out):  # type: ignore[no-untyped-def]
    """Write the knots of one column in falling order, return how many.

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
        return 0  # constant
    # Positions are counted from the first of the tied maxima.
    tied = total - (each * top if counted else upto[top - 1]) - 1.0
    spare = (total - 2.0 * endspan) % minspan
    position = total - endspan - (minspan // 2 if spare == 0.0 else spare // 2.0)
    count = 0
    i = last
    while position > endspan:
        # Weights are sums of floats: a position counts as reached a rounding error early.
        adjusted = position - tied - 1e-9 * total
        if adjusted + 1e-9 * total <= endspan:
            break
        if counted:
            i = int(np.ceil(adjusted / each)) - 1
        else:
            while i > 0 and upto[i - 1] >= adjusted:
                i -= 1
        if i < top and (count == 0 or ordered[i] != out[count - 1]):
            out[count] = ordered[i]
            count += 1
        position -= minspan
    return count


def _ordered(column: Floats, weights: Floats | None, rows: NDArray[np.intp] | None) -> tuple[Floats, Floats]:
    """Sort one column, or the given rows of it, standing for all; the second result is as ``_select_knots`` takes it."""
    total = float(column.size) if weights is None else float(weights.sum())
    if rows is not None:
        column, weights = column[rows], None if weights is None else weights[rows]
    if weights is None:
        return _sort(column), np.array([total / column.size])
    order = np.argsort(column, kind="stable")
    upto = np.cumsum(weights[order])
    return column[order], upto * (total / upto[-1])


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

    def choose(f: int) -> None:
        ordered, upto = _ordered(columns[f], weights, rows)
        buffer = np.empty(ordered.size)
        count = _select_knots(ordered, upto, float(spans.minspan), float(spans.endspan), buffer)
        chosen = buffer[:count][::-1]
        if max_knots is not None and count > max_knots:
            chosen = chosen[np.linspace(0, count - 1, max_knots).round().astype(np.intp)]
        knots[f] = chosen.copy()

    parts = workers.split(d, work=n * d)
    workers.run(lambda k: [choose(f) for f in range(*parts[k])], len(parts))
    sizes = np.array([k.size + 1 for k in knots])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    flat = np.zeros(offsets[-1])
    for f, k in enumerate(knots):
        flat[offsets[f] + 1 : offsets[f + 1]] = k
    return CandidateGrid(offsets=offsets, knots=flat, feature=np.repeat(np.arange(len(sizes)), sizes))
