"""One temperature for all logits: the number by which they are divided so that probabilities are right on average."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from knotwork.arrays import Floats

# The temperature is sought between e^−REACH and e^REACH.
REACH = 3.0
BINS = 15


def fit_temperature(logits: Floats, codes: NDArray[np.intp], weights: Floats) -> float:
    """Return the temperature of minimum log-loss: logits (N, K) of rows that the model had not seen, codes (N,).

    >>> from scipy.special import softmax
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(5000, 3))
    >>> codes = np.array([rng.choice(3, p=p) for p in softmax(logits, axis=1)])
    >>> round(fit_temperature(3 * logits, codes, np.ones(5000)), 1)
    3.0
    """

    def loss(log_temperature: float) -> float:
        chances = log_softmax(logits * np.exp(-log_temperature), axis=1)
        return float(-(weights @ chances[np.arange(len(codes)), codes]) / weights.sum())

    found = minimize_scalar(loss, bounds=(-REACH, REACH), method="bounded", options={"xatol": 1e-6})
    return float(np.exp(found.x)) if found.fun < loss(0.0) else 1.0


def calibration_error(probabilities: Floats, codes: NDArray[np.intp], weights: Floats) -> float:
    """Return the expected calibration error: |accuracy − confidence| of the most probable class, weighted over bins.

    Bins hold equal shares of the rows. 0 is perfect; (N, K), (N,), (N,).
    """
    best = probabilities.argmax(axis=1)
    confidence, right = probabilities[np.arange(len(best)), best], (best == codes).astype(np.float64)
    order = np.argsort(confidence, kind="stable")
    total = np.cumsum(weights[order])
    bins = np.minimum((BINS * (total - weights[order] / 2) / total[-1]).astype(np.intp), BINS - 1)
    gaps = np.bincount(bins, (weights * (right - confidence))[order], minlength=BINS)
    return float(np.abs(gaps).sum() / total[-1])
