"""Convex cells given by points: cut by hyperplanes, in any number of dimensions.

A cell is the convex hull of its points (n, d). In two dimensions they go around it; elsewhere their order means nothing
and some may lie inside.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from knotwork.arrays import Floats

# Points of a cell, as a multiple of the dimension, beyond which those inside are looked for and dropped.
MANY = 12


def box_cell(sides: Floats) -> Floats:
    """Return the corners of a box (2, d), going around it in two dimensions."""
    d = sides.shape[1]
    if d == 2:
        return sides[[0, 1, 1, 0], 0][:, None] * [1.0, 0.0] + sides[[0, 0, 1, 1], 1][:, None] * [0.0, 1.0]
    picks = (np.arange(2**d)[:, None] >> np.arange(d)) & 1
    return sides[picks, np.arange(d)]


def cut(points: Floats, values: Floats, tolerance: float) -> tuple[Floats | None, Floats | None]:
    """Cut a cell where an affine function is zero: return the parts where it is negative and positive.

    ``values`` are those of the function at the points. A part that is no thicker than the tolerance is None, and the
    other is the cell itself.

    >>> low, high = cut(np.array([[0.0], [1.0]]), np.array([-1.0, 3.0]), 1e-12)
    >>> low.ravel().tolist(), high.ravel().tolist()
    ([0.0, 0.25], [0.25, 1.0])
    """
    if not (values > tolerance).any():
        return points, None
    if not (values < -tolerance).any():
        return None, points
    return _below(points, values), _below(points, -values)


def clip(points: Floats, A: Floats, b: Floats, tolerance: float) -> Floats | None:
    """Return the part of a cell where A·x ≤ b, parts without thickness included; None if there is none.

    Rows of A have length one; ``tolerance`` is a distance.
    """
    for row, limit in zip(A, b, strict=True):
        values = points @ row - limit
        if (values > tolerance).all():
            return None
        if (values > tolerance).any():
            points = _below(points, values - tolerance)
    return points


def _below(points: Floats, values: Floats) -> Floats:
    """Return the points of the part where the values are not positive."""
    if points.shape[1] == 2 and len(points) > 2:
        return _below_around(points, values)
    kept = points[values <= 0]
    low, high = np.flatnonzero(values < 0), np.flatnonzero(values > 0)
    share = values[low][:, None] / (values[low][:, None] - values[high])
    crossing = points[low][:, None] + share[..., None] * (points[high] - points[low][:, None])
    return _outer(np.concatenate([kept, crossing.reshape(-1, points.shape[1])]))


def _below_around(points: Floats, values: Floats) -> Floats:
    """Return the same in two dimensions, keeping the order around the cell."""
    out = []
    following = np.roll(np.arange(len(points)), -1)
    for k, after in enumerate(following):
        if values[k] <= 0:
            out.append(points[k])
        if values[k] * values[after] < 0:
            share = values[k] / (values[k] - values[after])
            out.append(points[k] + share * (points[after] - points[k]))
    return np.array(out)


def _outer(points: Floats) -> Floats:
    """Drop points inside the hull where there are many."""
    d = points.shape[1]
    if d == 1:
        return np.array([points.min(axis=0), points.max(axis=0)])
    if len(points) <= MANY * d:
        return points
    try:
        return points[ConvexHull(points).vertices]
    except QhullError:  # flat: what is inside does no harm
        return np.unique(points, axis=0)
