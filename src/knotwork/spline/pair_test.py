"""Which features may interact: a test that costs a small part of a search for interactions, and shortens it."""

from __future__ import annotations

import numpy as np

from knotwork.arrays import Floats

# Rows to test on, evenly spread: an interaction that they do not show is not worth a search.
MAX_ROWS = 4096
# Probability of finding interactions where there are none.
LEVEL = 0.01
# Share of the strongest pair's statistic below which a pair counts as weak.
STRONG = 0.5
# Number of stds at which values are clipped: one row must not decide.
FARTHEST = 2.0


def interacting_features(X: Floats, residual: Floats, variance: Floats, weight: Floats) -> tuple[int, ...]:
    """Return the features whose products with another correlate with the residuals of a model without interactions.

    X (N, d), residuals (N,), their variances (N,) if nothing is left, and weights (N,), which count like so many rows.
    Each feature takes part with its distance from the mean, signed and absolute. The score statistic of every
    product is compared with a bound for so many: the tail of χ² with one degree of freedom is below exp(−t/2). Pairs
    that are weak compared with the strongest one do not count.

    >>> x = np.random.default_rng(0).normal(size=(1000, 3))
    >>> noise, one = np.random.default_rng(1).normal(size=1000), np.ones(1000)
    >>> interacting_features(x, noise, one, one), interacting_features(x, noise + x[:, 0] * np.abs(x[:, 2]), one, one)
    ((), (0, 2))
    """
    step = -(-len(X) // MAX_ROWS)
    X, residual, variance, weight = X[::step], residual[::step], variance[::step], weight[::step]
    d = X.shape[1]
    total = float(weight.sum())
    share = weight / total
    span = X.max(axis=0) - X.min(axis=0)
    z = (X - share @ X) / np.where(span > 0, span, np.inf)
    std = np.sqrt(share @ np.square(z))
    z /= np.where(std > 0, std, np.inf)
    np.clip(z, -FARTHEST, FARTHEST, out=z)
    u = np.hstack([z, np.abs(z)], dtype=np.float32, casting="same_kind")
    u -= share.astype(np.float32) @ u
    # Both values of a balanced indicator are as far from its mean: what is left of the distance is rounding.
    u[:, share @ np.square(u) < 1e-6] = 0.0
    score = (u * (share * residual)[:, None].astype(np.float32)).T @ u
    np.square(u, out=u)
    spread = (u * (share * variance)[:, None].astype(np.float32)).T @ u
    feature = np.tile(np.arange(d), 2)
    pair = (feature[:, None] < feature) & (spread > 0)
    statistic = total * np.divide(np.square(score), spread, out=np.zeros(pair.shape), where=pair)
    bound = max(2 * np.log(max(1, pair.sum()) / LEVEL), STRONG * statistic.max())
    return tuple(np.unique(feature[np.argwhere(statistic > bound)]).tolist())
