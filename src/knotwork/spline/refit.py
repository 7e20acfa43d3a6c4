"""Coefficients of the chosen terms, checked against the rows themselves.

The triangular factor comes out of recurrences over sums, so its coefficients are corrected by the true residual:
each pass costs Θ(N·M), where a QR decomposition of the basis would cost Θ(N·M²), more than the rest of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.forward import ForwardPass
from knotwork.spline.moments.moments import RowSums, TermTable
from knotwork.spline.triangular import inverse_of, triangular

# The residual's products are exact to rounding, so each pass gains as many digits as the factor has: the second
# is already enough up to condition numbers near 1e7, the others are for worse, and for sums that are not exact.
MAX_PASSES = 12
# Share of the RSS that a correction may have gained and be the last: predictions then move by less than 1e-9 of it.
TOLERANCE = 1e-18


@dataclass(frozen=True)
class Refit:
    """Least squares on the chosen terms, in standardised coordinates.

    terms : the chosen terms; intercept : (p,); coef : (M, p); rss : (p,) of the true residual
    inverse : (1 + M, 1 + M) inverse of the triangular factor of [1, B]
    """

    terms: TermTable
    intercept: Floats
    coef: Floats
    rss: Floats
    inverse: Floats


def refit(rows: RowSums, path: ForwardPass, chosen: NDArray[np.intp], passes: int = MAX_PASSES) -> Refit:
    """Fit the chosen columns of the forward pass (0 is the intercept) and polish the coefficients.

    passes : over the rows, at most
    """
    factor, projection = triangular(path.factor[:, chosen], path.projection)
    inverse = inverse_of(factor)
    beta = inverse @ projection
    terms = path.terms[chosen[1:] - 1]
    last_gain = np.inf
    for _ in range(passes):
        residual = rows.residual(terms, beta[0], beta[1:])
        correction = inverse @ (inverse.T @ residual.dots)
        gain = (residual.dots * correction).sum(axis=0)  # what the correction would take from the RSS
        if gain.sum() >= last_gain:  # only rounding is left
            break
        beta, rss, last_gain = beta + correction, np.maximum(residual.rss - gain, 0.0), gain.sum()
        if last_gain <= TOLERANCE * rss.sum():
            break
    return Refit(terms=terms, intercept=beta[0], coef=beta[1:], rss=rss, inverse=inverse)


def term_costs(fit: Refit) -> Floats:
    """Rise in RSS when each term is left out and the others are fitted again: (M,)."""
    return np.square(fit.coef).sum(axis=1) / np.square(fit.inverse[1:]).sum(axis=1)


def feature_costs(fit: Refit, features: int) -> Floats:
    """Rise in RSS when all terms with a feature are left out and the others are fitted again: (features,)."""
    inverse = fit.inverse[1:]
    costs = np.zeros(features)
    for f in np.unique(fit.terms.feature):
        group = fit.terms.users(int(f))
        # βᵀ(AAᵀ)⁻¹β is the square of the shortest z with Az = β, which there is for near-collinear rows of A too.
        costs[f] = np.square(np.linalg.lstsq(inverse[group], fit.coef[group])[0]).sum()
    return costs
