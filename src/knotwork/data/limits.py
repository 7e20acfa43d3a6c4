"""Where a feature is held: the range of its training values, less values far beyond the bulk of them.

A function that was fitted to rows says nothing about rows far from them, and one value far out can decide the slope of
a whole column. So features are held at their limits, in training and in prediction: the function is flat beyond them.

Predictions of a regressor are held, too: the features of a row may each be at a limit that no training row had together
with the others. Their limits are the range of the training responses, widened by half at either end.

The bulk of a column lies between its order statistics at a share ``TAIL`` from either end. Values up to ``REACH`` times
its width beyond it are left as they are, which is all of them unless tails are heavier than a lognormal's. The limits
are the outermost of these values: data values, so that they follow the column when it is moved or scaled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import CHUNK, Floats, FrozenArrays, read_numbers
from knotwork.errors import DataError

# Share of the observations at either end that are no part of the bulk, one at least; with fewer than MIN_OBSERVATIONS
# nothing says what the bulk is.
TAIL = 1 / 50
MIN_OBSERVATIONS = 20
# How far beyond the bulk values may lie, in units of its width.
REACH = 2.0
# Rows that a column's bulk is measured on: a fixed sample of larger tables.
SAMPLE = 65_536
NO_COUNTS = np.empty(0)


@dataclass(frozen=True, eq=False)
class Limits(FrozenArrays):
    """Minimum and maximum of each feature, (d,) each; infinite for a feature without.

    >>> limits = Limits([0.0, -np.inf], [1.0, np.inf])
    >>> limits.hold(np.array([[-3.0, 5.0], [0.5, 5.0]])).tolist()
    [[0.0, 5.0], [0.5, 5.0]]
    """

    lower: Floats
    upper: Floats

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            values = np.array(read_numbers(getattr(self, name), name))
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        lower, upper = self.lower, self.upper
        if lower.ndim != 1 or lower.shape != upper.shape or not (lower <= upper).all():  # NaN is not
            raise DataError(
                f"limits must be a minimum and a maximum for every feature, (d,) each, got {lower.tolist()} and "
                f"{upper.tolist()}"
            )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Limits)
            and np.array_equal(self.lower, other.lower)
            and np.array_equal(self.upper, other.upper)
        )

    def __hash__(self) -> int:
        return hash((self.lower.tobytes(), self.upper.tobytes()))

    def __len__(self) -> int:
        return len(self.lower)

    def hold(self, X: Floats) -> Floats:
        """Return rows with every feature within its limits: (N, d) → (N, d) or (d,) → (d,), NaN stays NaN."""
        held: Floats = np.minimum(np.maximum(self._read(X, (1, 2)), self.lower), self.upper)
        return held

    def sides(self) -> list[list[float]]:
        """Return minima and maxima as plain numbers.

        >>> import knotwork as kw
        >>> kw.Limits([0.0], [1.0]).sides()
        [[0.0], [1.0]]
        """
        return [self.lower.tolist(), self.upper.tolist()]

    def outside(self, X: NDArray[np.floating]) -> NDArray[np.bool_]:
        """Say which rows have a feature beyond its limits: (N, d) → (N,).

        >>> import knotwork as kw
        >>> import numpy as np
        >>> kw.Limits(np.array([0.0]), np.array([1.0])).outside(np.array([[0.5], [2.0]])).tolist()
        [False, True]
        """
        X = self._read(X, (2,))
        found = np.empty(len(X), dtype=bool)
        for start in range(0, len(X), CHUNK):
            part = X[start : start + CHUNK]
            found[start : start + CHUNK] = ((part < self.lower) | (part > self.upper)).any(axis=1)
        return found

    def _read(self, X: NDArray[np.floating], axes: tuple[int, ...]) -> NDArray[np.floating]:
        """Check rows; numbers of single precision stay as they are."""
        rows = np.asarray(X) if isinstance(X, np.ndarray) and X.dtype.kind == "f" else read_numbers(X, "X")
        if rows.ndim not in axes or rows.shape[-1] != len(self):
            raise DataError(f"rows must have the features of the limits, (N, {len(self)}), got {rows.shape}")
        return rows


def limits_around(a: Limits, b: Limits) -> Limits:
    """Return the narrowest limits that contain both.

    >>> limits_around(Limits([0.0], [1.0]), Limits([-1.0], [0.5])).sides()
    [[-1.0], [1.0]]
    """
    return Limits(np.minimum(a.lower, b.lower), np.maximum(a.upper, b.upper))


def moved_limits(limits: Limits, gain: Floats, shift: Floats) -> Limits:
    """Return the limits of gain·x + shift, (d,) each, gains positive.

    >>> moved_limits(Limits([0.0], [1.0]), np.array([2.0]), np.array([1.0])).sides()
    [[1.0], [3.0]]
    """
    return Limits(limits.lower * gain + shift, limits.upper * gain + shift)


def range_of(X: NDArray[np.floating]) -> Limits:
    """Return minimum and maximum of each column: (N, d) → (d,) each."""
    return Limits(X.min(axis=0), X.max(axis=0))


def response_limits(low: Floats, high: Floats) -> Limits:
    """Return what predictions are held at, given minimum and maximum of each training response: (p,) each.

    >>> limits = response_limits(np.array([0.0]), np.array([10.0]))
    >>> limits.lower.tolist(), limits.upper.tolist()
    ([-5.0], [15.0])
    """
    half = high / 2 - low / 2  # halved first: the difference of two large values may not exist
    with np.errstate(over="ignore"):  # then there is no limit
        return Limits(low - half, high + half)


def binding(limits: Limits | None) -> Limits | None:
    """Return limits, None in place of those that hold nothing.

    >>> binding(Limits([-np.inf], [np.inf])) is None
    True
    """
    return None if limits is None or np.isinf(limits.sides()).all() else limits


def learn_limits(X: Floats, weights: Floats | None = None) -> Limits:
    """Return the limits of a table's columns (N, d); a row's weight counts like as many rows.

    >>> X = np.arange(200.0)[:, None]
    >>> X[7] = 5e6
    >>> limits = learn_limits(X)
    >>> limits.lower.tolist(), limits.upper.tolist()
    ([0.0], [199.0])
    """
    rows = sampled_rows(len(X))
    whole = range_of(X)
    counts = None if weights is None else weights if rows is None else weights[rows]
    lower, upper = whole.lower.copy(), whole.upper.copy()
    for f, column in enumerate(_columns(X)):
        known = column if rows is None else column[rows]
        if counts is None:
            low, high = reach(np.sort(known))
        else:
            order = np.argsort(known, kind="stable")
            low, high = reach(known[order], np.cumsum(counts[order]))
        lower[f], upper[f] = held_range(column, (low, high), (lower[f], upper[f]))
    return Limits(lower, upper)


def _columns(X: Floats) -> Iterator[Floats]:
    return (np.ascontiguousarray(column) for column in X.T)


def held_range(column: Floats, reach: tuple[float, float], ends: tuple[float, float]) -> tuple[float, float]:
    """Return the outermost values of a column within reach; ``ends`` are its minimum and maximum."""
    low, high = ends
    if low < reach[0]:
        low = float(column[column >= reach[0]].min())
    if high > reach[1]:
        high = float(column[column <= reach[1]].max())
    return low, high


def sampled_rows(rows: int, sample: int = SAMPLE) -> NDArray[np.intp] | None:
    """Return the rows that a large table is judged by, in order; None for all of a small one."""
    if rows <= sample:
        return None
    sampled = np.zeros(rows, np.bool_)  # which puts them in order in a tenth of the time of a sort
    sampled[np.random.default_rng(0).choice(rows, sample, replace=False)] = True
    return np.flatnonzero(sampled)


def reach(ordered: Floats, upto: Floats = NO_COUNTS) -> tuple[float, float]:
    """Return how far down and up the values of a sorted column may lie.

    upto : observations up to and including each value, if they do not all count the same

    >>> reach(np.arange(100.0))                       # the bulk is 2 to 97
    (-188.0, 287.0)
    """
    low, high = _bulk(ordered, upto)
    if low == high:  # nearly all values are one: the others have a bulk of their own
        others = ordered != low
        if not others.any():
            return -np.inf, np.inf
        counts = np.cumsum(np.diff(upto, prepend=0.0)[others]) if upto.size else upto
        least, most = _bulk(ordered[others], counts)
        low, high = min(low, least), max(high, most)
    return low - REACH * (high - low), high + REACH * (high - low)  # no limit where that is beyond the floats


def _bulk(ordered: Floats, upto: Floats) -> tuple[float, float]:
    total = float(upto[-1]) if upto.size else float(ordered.size)
    if total < MIN_OBSERVATIONS:
        return float(ordered[0]), float(ordered[-1])
    tail = max(TAIL * total, 1.0)
    if not upto.size:
        return float(ordered[int(tail)]), float(ordered[-1 - int(tail)])
    # Counts are sums of floats.
    first = int(np.searchsorted(upto, tail + 1e-9 * total, side="right"))
    last = int(np.searchsorted(upto, total - tail - 1e-9 * total, side="left"))
    return float(ordered[min(first, ordered.size - 1)]), float(ordered[last])
