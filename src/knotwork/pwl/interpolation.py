"""Interpolation between points: tables of one feature, and triangulated points of several."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from knotwork.arrays import Floats
from knotwork.errors import DataError
from knotwork.pwl.lattice import LatticePWL
from knotwork.spline.model import Hinge, Linear, Spline, Term

# Simplices of a triangulation that are still turned into a lattice: the sets grow with their square at least.
MAX_SIMPLICES = 200


def table_spline(xp: ArrayLike, fp: ArrayLike, *, name: str = "x") -> Spline:
    """Write a table as ``numpy.interp`` reads it as a spline: straight between the points, constant beyond them.

    Parameters
    ----------
    xp : (n,) rising
    fp : (n,) or (n, outputs)

    Examples
    --------
    >>> f = table_spline([0.0, 1.0, 3.0], [0.0, 2.0, 1.0])
    >>> f([[-5.0], [0.5], [2.0], [9.0]])
    array([0. , 1. , 1.5, 1. ])
    """
    try:
        x, y = np.asarray(xp, dtype=np.float64), np.asarray(fp, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("a table must be two sequences of numbers (xp, fp), got something else") from None
    y = y[:, None] if y.ndim == 1 else y
    if x.ndim != 1 or len(x) == 0 or y.ndim != 2 or len(y) != len(x):
        raise DataError(f"a table must have one fp per xp, got shapes {x.shape} and {y.shape}")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise DataError("a table must be finite, got NaN or inf; leave those points out")
    if (np.diff(x) <= 0).any():
        k = int(np.argmax(np.diff(x) <= 0))
        raise DataError(
            f"xp must rise, got {x[k]:g} and then {x[k + 1]:g}: equal points would be a jump, which is not continuous; "
            f"sort the table and keep one value per point"
        )
    zero = np.zeros((1, y.shape[1]))
    slopes = np.concatenate([zero, np.diff(y, axis=0) / np.diff(x)[:, None], zero])
    return bends_spline([(0, x, slopes, y[0])], (name,))


def bends_spline(columns: list[tuple[int, Floats, Floats, Floats]], names: tuple[str, ...]) -> Spline:
    """Add up functions of single features: (feature, knots (n,), slopes (n + 1, p), value at the first knot (p,))."""
    terms: list[Term] = []
    coefs: list[Floats] = []
    intercept = np.zeros_like(columns[0][3]) if columns else np.zeros(1)
    for feature, knots, slopes, value in columns:
        intercept = intercept + value - slopes[0] * knots[0]
        if slopes[0].any():
            terms.append(Linear(feature))
            coefs.append(slopes[0])
        size = np.abs(slopes).max()
        for knot, change in zip(knots, np.diff(slopes, axis=0), strict=True):
            # A change that rounding made is no knot.
            if np.abs(change).max() > 1e-14 * size:
                terms.append(Hinge(feature, float(knot), 1))
                coefs.append(change)
    return Spline(tuple(terms), intercept, np.array(coefs).reshape(len(terms), len(intercept)), names)


def interpolator_lattice(interpolator: Any) -> LatticePWL:
    """Write a ``LinearNDInterpolator`` as a lattice, equal to it inside the convex hull of its points."""
    from scipy.interpolate import LinearNDInterpolator

    from knotwork.pwl.pieces import Piece, Pieces

    if not isinstance(interpolator, LinearNDInterpolator):
        raise DataError(
            f"of scipy's interpolators a LinearNDInterpolator is continuous and piecewise linear, got "
            f"{type(interpolator).__name__}; use it with the same points, or a table (xp, fp) in one dimension"
        )
    triangulation = interpolator.tri
    if len(triangulation.simplices) > MAX_SIMPLICES:
        raise DataError(
            f"a triangulation becomes a lattice up to {MAX_SIMPLICES} simplices, got {len(triangulation.simplices)}; "
            f"use fewer points, or fit kw.DCMaxAffineRegressor to them"
        )
    values = np.asarray(interpolator.values, dtype=np.float64).reshape(len(triangulation.points), -1)
    points = np.asarray(interpolator.points, dtype=np.float64)
    if getattr(interpolator, "scale", None) is not None:  # it was told to rescale its points
        points = points * interpolator.scale + interpolator.offset
    pieces = []
    for simplex in triangulation.simplices:
        corners = points[simplex]
        theta = np.linalg.solve(np.column_stack([np.ones(len(simplex)), corners]), values[simplex]).T
        pieces.append(Piece.hull(corners, theta))
    return Pieces(tuple(pieces)).to_lattice()
