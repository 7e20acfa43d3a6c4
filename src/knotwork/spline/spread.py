"""How large errors are, where: a spline of log|residual|, so that the width of an interval follows the noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.losses import weighted_quantile
from knotwork.spline.fit import FitOptions, fit_spline
from knotwork.spline.model import Spline

# Residuals below this share of their median count as this large: the logarithm of nothing would decide everything.
FLOOR = 0.05
# What a knot costs, and terms at most, the intercept included: noise in |residual| is large.
PENALTY, MAX_TERMS = 4.0, 11


def fit_spread(X: Floats, residuals: Floats, weights: Floats | None, names: Sequence[str] | None = None) -> Spline:
    """Fit log|residual| to rows: X (N, d), residuals (N,), weights (N,) → a spline of one output, held at its limits.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(0, 1, size=(4000, 1))
    >>> spread = fit_spread(x, rng.normal(size=4000) * np.exp(2 * x[:, 0]), None)
    >>> ends = spread(np.array([[0.05], [0.95]])).reshape(-1)
    >>> bool(1.5 < ends[1] - ends[0] < 2.1)
    True
    """
    size = np.abs(residuals)
    middle = weighted_quantile(size, 0.5, weights)
    floor = FLOOR * middle if middle > 0 else (float(size.max()) or 1.0)
    target = np.log(np.maximum(size, floor))
    options = FitOptions(max_terms=MAX_TERMS, penalty=PENALTY, extrapolate="clip")
    return fit_spline(X, target[:, None], weights=weights, names=names, options=options).spline
