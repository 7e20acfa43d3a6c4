"""Columns in the coordinates of the search: centred, and scaled by a power of two.

Sums of squares of raw values cancel (a year is 2000 ± 10) or overflow (1e155² is infinite), so the search works
on z = (x − centre)·scale. Scales are powers of two: scaling is then exact, equal values stay equal, and knots
come back as the data values they were.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from knotwork.arrays import CHUNK, Floats
from knotwork.compute.workers import Workers, row_blocks
from knotwork.data.coordinates import MIN_STD
from knotwork.data.limits import Limits

# Values of a table that are turned into columns at a time.
TILE_VALUES = 65_536


@dataclass(frozen=True)
class Scaling:
    """Per column: z = (x·scale − centre), so ``centre`` is in scaled units and cannot overflow."""

    scale: Floats
    centre: Floats


def _copy_columns(
    X: NDArray[np.floating], columns: Floats, low: Floats, high: Floats, total: Floats, limits: Limits | None
) -> None:
    """Copy rows (n, d) into columns (d, n), held at limits; find minimum, maximum and sum of each, (d,) each.

    A tile of rows at a time, which stays in the cache: X is row-major.
    """
    tile = max(256, TILE_VALUES // X.shape[1])
    for start in range(0, len(X), tile):
        part = columns[:, start : start + tile]
        part[...] = X[start : start + tile].T
        if limits is not None:
            np.clip(part, limits.lower[:, None], limits.upper[:, None], out=part)
        np.minimum(low, part.min(axis=1), out=low)
        np.maximum(high, part.max(axis=1), out=high)
        with np.errstate(over="ignore", invalid="ignore"):  # a mean that does not exist is replaced
            total += part.sum(axis=1)


def power_of_two_scale(width: ArrayLike) -> Floats:
    """Return the powers of two that bring the given widths (≥ 0) into [0.5, 1); 1 for a width of zero."""
    width = np.asarray(width)
    _, exponent = np.frexp(width)
    # 2^-exponent itself overflows beyond 2^1023, which only widths below 1e-308 ask for.
    return np.where(width > 0, np.ldexp(1.0, np.minimum(-exponent, 1023)), 1.0)


def standardise(
    X: NDArray[np.floating], workers: Workers, limits: Limits | None = None
) -> tuple[Floats, Scaling, Limits]:
    """Copy a table (N, d) into standardised columns (d, N), held at limits; return their range too.

    >>> columns, scaling, ends = standardise(np.array([[1e9 + 1], [1e9 + 2], [1e9 + 3]]), Workers(1))
    >>> columns / scaling.scale[:, None], ends.upper - 1e9
    (array([[-1.,  0.,  1.]]), array([3.]))
    """
    n, d = X.shape
    blocks = row_blocks(n)
    parts = workers.split(len(blocks), work=n * d)
    columns = np.empty((d, n))
    low, high = np.full((len(blocks), d), np.inf), np.full((len(blocks), d), -np.inf)
    total = np.zeros((len(blocks), d))

    def copy(k: int) -> None:
        for block in range(*parts[k]):
            first, last = blocks[block]
            _copy_columns(X[first:last], columns[:, first:last], low[block], high[block], total[block], limits)

    workers.run(copy, len(parts))
    low, high = low.min(axis=0), high.max(axis=0)
    scale = power_of_two_scale(high / 2 - low / 2)
    ends = Limits(low, high)
    factor = _factor(scale, ends)
    # Any centre inside the data is right; the mean loses the fewest digits. It may have overflowed, or weights differ.
    with np.errstate(over="ignore", invalid="ignore"):
        mean = total.sum(axis=0) / n
    mean = np.minimum(np.maximum(np.where(np.isnan(mean), 0.0, mean), low), high)
    centre = mean * factor

    def centre_and_scale(k: int) -> None:
        for start in range(blocks[parts[k][0]][0], blocks[parts[k][1] - 1][1], CHUNK):
            part = columns[:, start : min(start + CHUNK, blocks[parts[k][1] - 1][1])]
            part *= factor[:, None]
            part -= centre[:, None]

    workers.run(centre_and_scale, len(parts))
    return columns, Scaling(scale=scale, centre=centre), ends


def standardised_rows(X: NDArray[np.floating], rows: NDArray[np.intp], scaling: Scaling, limits: Limits) -> Floats:
    """Return some rows of a table (N, d) as :func:`standardise` with these limits has them: columns (d, rows).

    A row's values lie side by side in the table; in its columns each would be fetched with its neighbours.
    """
    columns = np.empty((X.shape[1], len(rows)))
    factor = _factor(scaling.scale, limits)
    tile = max(256, TILE_VALUES // X.shape[1])
    for start in range(0, len(rows), tile):
        part = columns[:, start : start + tile]
        part[...] = X.take(rows[start : start + tile], axis=0).T
        np.maximum(part, limits.lower[:, None], out=part)
        np.minimum(part, limits.upper[:, None], out=part)
        part *= factor[:, None]
        part -= scaling.centre[:, None]
    return columns


def _factor(scale: Floats, limits: Limits) -> Floats:
    """What columns are multiplied by: one that varies too little for coefficients to exist counts as constant."""
    # Halved first: the difference of two large values of opposite sign may not exist.
    return np.where(limits.upper / 2 - limits.lower / 2 < MIN_STD, 0.0, scale)


def standardise_response(y: Floats, weights: Floats | None) -> tuple[Floats, Scaling]:
    """Copy responses (N, p) into rows (p, N) of (weighted) mean zero.

    They share one scale, because their relative sizes count in the search.
    """
    low, high = y.min(axis=0) / 2, y.max(axis=0) / 2
    scale = power_of_two_scale(np.max(high - low))
    # The middle first: it brings every value near zero, so that the mean can be trusted.
    centre = (low + high) * scale
    columns = np.ascontiguousarray(y.T) * scale
    columns -= centre[:, None]
    mean = columns.mean(axis=1) if weights is None else columns @ weights / weights.sum()
    columns -= mean[:, None]
    return columns, Scaling(scale=np.full(len(columns), scale), centre=centre + mean)
