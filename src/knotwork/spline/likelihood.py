"""Classes: terms found by least squares on the class indicators, coefficients by multinomial likelihood.

The search sees each indicator divided by the root of its class's share: its score for a candidate is then the score
statistic of the multinomial likelihood at the intercept, and the sums are those of a regression with several responses.
Pruning is by GCV on the same sums. Only the coefficients of the terms that remain are fitted by likelihood, with a
small ridge that keeps them finite where classes are separable. Searches by the likelihood's own gradient, and pruning
by AIC or BIC, measured no better on twenty tables, and worse where classes are separable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.spline.columns import TermValues, feature_units
from knotwork.spline.degree import auto_degrees, chosen_degree, held_out_losses
from knotwork.spline.fit import FitOptions, default_max_terms, fit_spline, with_held_out_losses
from knotwork.spline.forward import Step
from knotwork.spline.logits import TOLERANCE, LogitFit, fit_logits
from knotwork.spline.model import Spline
from knotwork.spline.monotone import entries, made_exact
from knotwork.spline.monotone_logits import constrained
from knotwork.spline.result import Knot, SplineFit

# Tolerance of coefficients that are only compared.
COMPARED_TOLERANCE = 1e-4


@dataclass(frozen=True)
class ClassFit:
    """A spline of logits and how it came about.

    spline : the logits, as functions of the features in the data's units of measurement; one output, the log-odds of
        the second class, for two classes, else one per class, and they sum to zero
    search : the least-squares fit to the class indicators that found the terms
    deviance, null_deviance : −2·log-likelihood of the spline and of the intercept alone
    term_costs, feature_costs : (M,) and (d,) rise in deviance without the term, or any term of the feature (Wald)
    shares : (K,) of the classes, weighted
    """

    spline: Spline
    search: SplineFit
    deviance: float
    null_deviance: float
    term_costs: Floats
    feature_costs: Floats
    shares: Floats
    ridge: float

    @property
    def knots(self) -> tuple[Knot, ...]:
        """The knots of the spline, with their rows."""
        return self.search.knots

    @property
    def coordinates(self) -> Coordinates:
        """Means and stds of the features; logits stay as they are."""
        found = self.search.coordinates
        return Coordinates.of_features(found.x_centre, found.x_scale, self.spline.intercept.size)


def fit_classes(
    X: NDArray[np.floating],
    codes: NDArray[np.intp],
    classes: int,
    *,
    weights: Floats | None = None,
    names: Sequence[str] | None = None,
    options: FitOptions | None = None,
    ridge: float = 0.1,
    report: Callable[[Step], None] | None = None,
) -> ClassFit:
    """Fit logits to finite data: X (N, d), codes (N,) from 0 to classes − 1, weights (N,) all positive.

    >>> x = np.linspace(-1.0, 1.0, 200)[:, None]
    >>> fit = fit_classes(x, (np.abs(x[:, 0]) < 0.5).astype(int), 2)
    >>> float(np.mean((fit.spline(x) > 0) == (np.abs(x[:, 0]) < 0.5)).round(2))
    0.98
    """
    held: tuple[float, ...] = ()
    if options is not None and isinstance(options.max_degree, str):
        held = held_out_log_losses(X, codes, classes, weights, options, ridge)
        options = replace(options, max_degree=chosen_degree(held))
    search = search_classes(X, codes, classes, weights=weights, names=names, options=options, report=report)
    search = with_held_out_losses(search, held)
    signs = None if options is None else options.monotone
    fitted = fit_terms(search, X, codes, classes, weights=weights, ridge=ridge)
    terms = search.spline.terms
    fitted = fitted.polished() if signs is None else constrained(fitted, entries(terms), signs)
    used = [term.features for term in terms]
    groups = [
        np.array([m for m, features in enumerate(used) if f in features], dtype=np.intp) for f in range(X.shape[1])
    ]
    spline = replace(search.spline, intercept=fitted.intercept, coef=fitted.coef)
    return ClassFit(
        spline=spline if signs is None else made_exact(spline, signs),
        search=search,
        deviance=-2 * fitted.log_likelihood,
        null_deviance=-2 * fitted.null_log_likelihood,
        term_costs=fitted.term_costs(),
        feature_costs=np.array([fitted.cost_without(group) if group.size else 0.0 for group in groups]),
        shares=class_shares(codes, classes, weights),
        ridge=ridge,
    )


def held_out_log_losses(
    X: NDArray[np.floating],
    codes: NDArray[np.intp],
    classes: int,
    weights: Floats | None,
    options: FitOptions,
    ridge: float,
) -> tuple[float, ...]:
    """Return the mean held-out log-losses of the degrees that an automatic choice tries."""

    def losses(degree: int, training: NDArray[np.intp], out: NDArray[np.intp]) -> Floats:
        own, known = replace(options, max_degree=degree), codes[training]
        weight = None if weights is None else weights[training]
        search = search_classes(X[training], known, classes, weights=weight, options=own)
        fitted = fit_terms(
            search, X[training], known, classes, weights=weight, ridge=ridge, tolerance=COMPARED_TOLERANCE
        )
        logits = replace(search.spline, intercept=fitted.intercept, coef=fitted.coef)(X[out])
        return -log_probabilities(logits)[np.arange(len(out)), codes[out]]

    return held_out_losses(X, losses, auto_degrees(X.shape[1], options.interacting), weights, codes)


def log_probabilities(logits: Floats) -> Floats:
    """Return the logarithms of the probabilities of all classes; (N,) are the log-odds of the second of two."""
    if logits.ndim == 1:
        logits = np.stack([np.zeros_like(logits), logits], axis=1)
    found: Floats = log_softmax(logits, axis=1)
    return found


def search_classes(
    X: NDArray[np.floating],
    codes: NDArray[np.intp],
    classes: int,
    *,
    weights: Floats | None = None,
    names: Sequence[str] | None = None,
    options: FitOptions | None = None,
    report: Callable[[Step], None] | None = None,
) -> SplineFit:
    """Find the terms that separate the classes, by least squares."""
    # Classes were measured with knots anywhere; the distance is that of regression.
    options = replace(options or FitOptions(threshold=1e-4), spacing="free")
    if options.max_terms is None:
        degree = 2 if isinstance(options.max_degree, str) else options.max_degree
        options = replace(options, max_terms=default_terms(len(X), X.shape[1], degree))
    responses = indicators(codes, class_shares(codes, classes, weights))
    return fit_spline(X, responses, weights=weights, names=names, options=options, report=report)


def fit_terms(
    search: SplineFit,
    X: NDArray[np.floating],
    codes: NDArray[np.intp],
    classes: int,
    *,
    weights: Floats | None = None,
    ridge: float = 0.1,
    tolerance: float = TOLERANCE,
    units: Floats | None = None,
) -> LogitFit:
    """Fit the logits of terms, until a step promises no more than a share ``tolerance`` of the objective.

    units : (M,) that the ridge measures coefficients in, those of the features if None
    """
    terms, limits = search.spline.terms, search.spline.limits
    weight = np.ones(len(X)) if weights is None else weights
    units = feature_units(terms, search.coordinates.x_scale) if units is None else units
    return fit_logits(TermValues(terms, X, limits), codes, classes, weight, ridge, units, tolerance)


def class_shares(codes: NDArray[np.intp], classes: int, weights: Floats | None) -> Floats:
    """Share of each class, weighted: (K,)."""
    shares: Floats = np.bincount(codes, weights, minlength=classes) / (len(codes) if weights is None else weights.sum())
    return shares


def default_terms(rows: int, features: int, degree: int) -> int:
    """Maximum number of terms of the search: as in regression, but at least √N; a label carries less information."""
    return max(default_max_terms(features, degree), min(200, int(np.sqrt(rows))) + 1)


def indicators(codes: NDArray[np.intp], shares: Floats) -> Floats:
    """Return the responses of the search: (N, K) indicators over √share, or one column for two classes."""
    if len(shares) == 2:
        return codes[:, None].astype(np.float64)
    columns = np.zeros((len(codes), len(shares)))
    columns[np.arange(len(codes)), codes] = 1 / np.sqrt(shares[codes])
    return columns
