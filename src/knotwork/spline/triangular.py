"""Triangular factors of small matrices, straight from LAPACK: calling numpy for them takes several times as long."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dgeqrf, dtrtri, dtrtrs

from knotwork.arrays import Floats


def triangular(columns: Floats, responses: Floats) -> tuple[Floats, Floats]:
    """Return R and Qᵀy of columns = Q·R: (m, k), (m, p) → (k, k), (k, p). Q itself is never made.

    >>> factor, projection = triangular(np.array([[3.0], [4.0]]), np.array([[5.0], [10.0]]))
    >>> np.abs(factor), np.abs(projection)
    (array([[5.]]), array([[11.]]))
    """
    k = columns.shape[1]
    both = _both(columns, responses)
    return np.where(_upper(k), both[:, :k], 0.0), np.ascontiguousarray(both[:, k:])


def least_squares(columns: Floats, responses: Floats) -> Floats:
    """Return the coefficients of independent columns: (m, k), (m, p) → (k, p).

    >>> least_squares(np.array([[3.0], [4.0]]), np.array([[5.0], [10.0]]))
    array([[2.2]])
    """
    k = columns.shape[1]
    both = _both(columns, responses)
    found: Floats = dtrtrs(both[:, :k], both[:, k:])[0]
    return found


def inverse_of(factor: Floats) -> Floats:
    """Invert an upper triangular matrix: (k, k) → (k, k).

    >>> inverse_of(np.array([[2.0, 1.0], [0.0, 4.0]]))
    array([[ 0.5  , -0.125],
           [ 0.   ,  0.25 ]])
    """
    return np.ascontiguousarray(dtrtri(factor)[0])


def _both(columns: Floats, responses: Floats) -> Floats:
    """Return R and Qᵀy side by side, (k, k + p), with other numbers below the diagonal of R."""
    m, k = columns.shape
    both = np.empty((m, k + responses.shape[1]), order="F")
    both[:, :k], both[:, k:] = columns, responses
    found: Floats = dgeqrf(both, overwrite_a=True)[0][:k]
    return found


@cache
def _upper(size: int) -> NDArray[np.bool_]:
    """Mark the upper triangle of a matrix."""
    return np.tri(size, dtype=bool).T
