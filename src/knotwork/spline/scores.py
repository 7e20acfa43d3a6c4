"""Linear scores of the features of a head: one for every output, by ridge regression, read as if on unseen rows.

Each feature of a large network carries a little information; most of it is in their combination. A few hinges of single
features cannot gather that; a linear map of all features can, and takes two units for each output. So the spline of a
head sees the scores in addition to the features. On the rows that a linear map was fitted to, its scores are optimistic
(with as many features as rows they are perfect), and a spline fitted to them would trust them too much. The
leave-one-out score of a row is ŷ_i − h_i·(y_i − ŷ_i)/(1 − h_i), with h_i its leverage: all rows for the price of one
fit. The same leave-one-out errors choose the ridge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import CHUNK, Floats
from knotwork.compute.blas import one_blas_thread

# Ridges tried, in units of the features' variance.
RIDGES = np.logspace(-4, 3, 22)


@dataclass(frozen=True)
class Scores:
    """Scores x·weight + offset of rows x (N, d): weight (d, p), offset (p,).

    held_out : (N, p) leave-one-out scores of the rows of the fit
    ridge : the one chosen, in units of the features' variance
    """

    weight: Floats
    offset: Floats
    held_out: Floats
    ridge: float


def fit_scores(X: NDArray[np.floating], y: Floats) -> Scores:
    """Fit scores to finite rows X (N, d), y (N, p), with the ridge of the minimum leave-one-out error.

    Rows are read in chunks, so that single-precision tables are never copied whole; the work is Θ(N·d² + d³).

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(40, 50))
    >>> scores = fit_scores(X, rng.normal(size=(40, 1)))  # nothing to learn: fitted well, but no better when left out
    >>> bool(np.abs(scores.held_out).max() < 1)
    True
    """
    n, d = X.shape
    mean = np.mean(X, axis=0, dtype=np.float64)
    centre = y.mean(axis=0)
    chunks = [slice(start, start + CHUNK) for start in range(0, n, CHUNK)]
    gram, right = np.zeros((d, d)), np.zeros((d, y.shape[1]))
    for rows in chunks:
        z = X[rows] - mean
        gram += z.T @ z
        right += z.T @ (y[rows] - centre)
    scale = np.sqrt(np.diagonal(gram) / n)
    scale = np.where(scale > 1e-12 * np.abs(mean), scale, np.inf)  # a constant gets no weight
    with one_blas_thread():  # threads wait for each other, for seconds on a busy machine
        sizes, axes = np.linalg.eigh(gram / scale / scale[:, None])
    sizes, right = np.maximum(sizes, 0.0), axes.T @ (right / scale[:, None])
    turned = axes / scale[:, None]  # to coordinates in which the Gram matrix is diagonal
    shrunk = 1 / (sizes + n * RIDGES[:, None])  # (ridges, d)
    spread = np.maximum(y.var(axis=0), np.finfo(float).tiny)
    errors = np.zeros(len(RIDGES))
    for rows in chunks:
        residuals = _left_out_residuals((X[rows] - mean) @ turned, shrunk, right, y[rows] - centre, n)
        errors += (np.square(residuals) / spread).sum(axis=(0, 2))
    best = int(np.argmin(errors))
    held_out = np.empty(y.shape)
    for rows in chunks:
        z = (X[rows] - mean) @ turned
        held_out[rows] = y[rows] - _left_out_residuals(z, shrunk[best:][:1], right, y[rows] - centre, n)[:, 0]
    weight = turned @ (shrunk[best][:, None] * right)
    return Scores(weight, centre - mean @ weight, held_out, float(RIDGES[best]))


def _left_out_residuals(z: Floats, shrunk: Floats, right: Floats, y: Floats, n: int) -> Floats:
    """Return leave-one-out residuals, in coordinates in which the Gram matrix is diagonal: (rows, ridges, p)."""
    leverage = 1 / n + np.square(z) @ shrunk.T
    maps = (shrunk.T[:, :, None] * right[:, None, :]).reshape(len(right), -1)
    fitted = (z @ maps).reshape(len(z), len(shrunk), -1)
    residuals: Floats = (y[:, None] - fitted) / np.maximum(1 - leverage, 1e-6)[:, :, None]
    return residuals
