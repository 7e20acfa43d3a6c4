"""Which of many features are worth a search: those that explain the response best, each alone and with two bends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import CHUNK, Floats

# Rows that the places of the bends are read from.
QUANTILE_ROWS = 4096
STRIP = 256


def explained(X: NDArray[np.floating], y: Floats) -> Floats:
    """Sum of squares of y (N, p) that each feature of X (N, d) explains by itself, with bends at its tertiles: (d,).

    The first step of a search at three candidates in place of hundreds; a strip of features at a time.

    >>> x = np.linspace(-1, 1, 301)
    >>> explained(np.stack([x, x**3, np.cos(40 * x)], axis=1), np.abs(x)[:, None]).argmax()
    np.int64(0)
    """
    n, d = X.shape
    y = y - y.mean(axis=0)
    sample = X[:: -(-n // QUANTILE_ROWS)]
    gains = np.empty(d)
    for start in range(0, d, STRIP):
        strip = slice(start, start + STRIP)
        bends = np.quantile(sample[:, strip].astype(np.float64), [1 / 3, 2 / 3], axis=0)
        width = bends.shape[1]
        total = np.zeros((width, 3))
        gram, right = np.zeros((width, 3, 3)), np.zeros((width, 3, y.shape[1]))
        shift = np.mean(X[:, strip], axis=0, dtype=np.float64)
        for first in range(0, n, CHUNK):
            x = X[first : first + CHUNK, strip].astype(np.float64)
            columns = np.stack([x - shift, *np.maximum(x - bends[:, None], 0.0)], axis=2).transpose(1, 2, 0)
            total += columns.sum(axis=2)
            gram += columns @ columns.transpose(0, 2, 1)
            right += columns @ y[first : first + CHUNK]
        gram -= total[:, :, None] * total[:, None, :] / n
        diagonal = np.diagonal(gram, axis1=1, axis2=2)
        # Relative to each column: where most values are equal, bends coincide with the line or with each other.
        unit = 1 / np.sqrt(np.where(diagonal > 0, diagonal, np.inf))
        correlation = gram * unit[:, :, None] * unit[:, None, :] + 1e-6 * np.eye(3)
        right *= unit[:, :, None]
        gains[strip] = (right * np.linalg.solve(correlation, right)).sum(axis=(1, 2))
    return gains


def strongest_features(X: NDArray[np.floating], y: Floats, max_features: int) -> NDArray[np.intp]:
    """Return the ``max_features`` features that explain most of y, in rising order: all if there are no more."""
    if X.shape[1] <= max_features:
        return np.arange(X.shape[1])
    return np.sort(np.argsort(-explained(X, y), kind="stable")[:max_features])
