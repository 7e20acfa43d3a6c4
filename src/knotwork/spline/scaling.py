"""Columns in the coordinates of the search: centred, and scaled by a power of two.

Sums of squares of raw values cancel (a year is 2000 ± 10) or overflow (1e155² is infinite), so the search works
on z = (x − centre)·scale. Scales are powers of two: scaling is then exact, equal values stay equal, and knots
come back as the data values they were.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.spline.compiled import compiled, compiled_reduction
from knotwork.spline.model import Floats
from knotwork.spline.workers import Workers


@dataclass(frozen=True)
class Scaling:
    """Per column: z = (x·scale − centre), so ``centre`` is in scaled units and cannot overflow."""

    scale: Floats
    centre: Floats


@compiled_reduction
def _describe(X, first, last, low, high, total):  # type: ignore[no-untyped-def]
    """Least, greatest and sum of each column over rows ``first`` to ``last``; sums of tiles, so that few digits go."""
    for start in range(first, last, 256):
        stop = min(start + 256, last)
        for f in range(X.shape[1]):
            least, most, tile = low[f], high[f], 0.0
            for i in range(start, stop):
                least = min(least, X[i, f])
                most = max(most, X[i, f])
                tile += X[i, f]
            low[f], high[f] = least, most
            total[f] += tile


@compiled
def _copy_scaled(X, scale, centre, first, last, columns):  # type: ignore[no-untyped-def]
    # A tile of rows at a time: X is usually row-major and the copy column-major.
    for start in range(first, last, 256):
        stop = min(start + 256, last)
        for f in range(X.shape[1]):
            for i in range(start, stop):
                columns[f, i] = X[i, f] * scale[f] - centre[f]


def power_of_two_scale(width: Floats) -> Floats:
    """Return the powers of two that bring the given widths (≥ 0) into [0.5, 1); 1 for a width of zero."""
    _, exponent = np.frexp(width)
    # 2^-exponent itself overflows beyond 2^1023, which only widths below 1e-308 ask for.
    return np.where(width > 0, np.ldexp(1.0, np.minimum(-exponent, 1023)), 1.0)


def standardise(X: NDArray[np.floating], workers: Workers) -> tuple[Floats, Scaling]:
    """Copy a table (N, d) into standardised columns (d, N).

    >>> columns, scaling = standardise(np.array([[1e9 + 1], [1e9 + 2], [1e9 + 3]]), Workers(1))
    >>> columns / scaling.scale[:, None]
    array([[-1.,  0.,  1.]])
    """
    n, d = X.shape
    parts = workers.split(n, work=n * d)
    low, high = np.full((len(parts), d), np.inf), np.full((len(parts), d), -np.inf)
    total = np.zeros((len(parts), d))
    workers.run(lambda k: _describe(X, *parts[k], low[k], high[k], total[k]), len(parts))
    low, high = low.min(axis=0), high.max(axis=0)
    # Halved first: the difference of two large values of opposite sign may not exist.
    scale = power_of_two_scale(high / 2 - low / 2)
    # Any centre inside the data is right, the mean just cancels least; it may have overflowed, or the weights differ.
    mean = np.clip(np.nan_to_num(total.sum(axis=0) / n, nan=0.0), low, high)
    centre = mean * scale
    columns = np.empty((d, n))
    workers.run(lambda k: _copy_scaled(X, scale, centre, *parts[k], columns), len(parts))
    return columns, Scaling(scale=scale, centre=centre)


def standardise_response(y: Floats, weights: Floats | None) -> tuple[Floats, Scaling]:
    """Copy responses (N, p) into rows (p, N) of (weighted) mean zero.

    They share one scale, because their relative sizes count in the search.
    """
    columns, scaling = standardise(y, Workers(1))
    shrink = scaling.scale.min() / scaling.scale
    columns *= shrink[:, None]
    mean = columns.mean(axis=1) if weights is None else columns @ weights / weights.sum()
    columns -= mean[:, None]
    return columns, Scaling(scale=scaling.scale * shrink, centre=scaling.centre * shrink + mean)
