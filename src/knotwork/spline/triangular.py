"""Triangular factors of small matrices, straight from LAPACK: calling numpy for them takes several times as long."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dgeqrf, dtrtri

from knotwork.arrays import Floats


def triangular(columns: Floats, responses: Floats) -> tuple[Floats, Floats]:
    """Return R and Qᵀy of columns = Q·R: (m, k), (m, p) → (k, k), (k, p). Q itself is never made.

    >>> factor, projection = triangular(np.array([[3.0], [4.0]]), np.array([[5.0], [10.0]]))
    >>> np.abs(factor), np.abs(projection)
    (array([[5.]]), array([[11.]]))
    """
    k = columns.shape[1]
    both = dgeqrf(np.concatenate([columns, responses], axis=1))[0][:k]
    return np.triu(both[:, :k]), np.ascontiguousarray(both[:, k:])


def inverse_of(factor: Floats) -> Floats:
    """Invert an upper triangular matrix: (k, k) → (k, k).

    >>> inverse_of(np.array([[2.0, 1.0], [0.0, 4.0]]))
    array([[ 0.5  , -0.125],
           [ 0.   ,  0.25 ]])
    """
    return np.ascontiguousarray(dtrtri(factor)[0])
