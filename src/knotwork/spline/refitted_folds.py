"""Folds whose coefficients are not those of least squares: classes, and other losses than squared errors.

Terms of each size are those of the search, by least squares; their coefficients are fitted by the loss, once for every
size, and judged by it on the rows held out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.losses import ResponseLoss
from knotwork.spline import coefficients, likelihood, response
from knotwork.spline.fit import FitOptions
from knotwork.spline.folds import Fold, FoldData, FoldPath
from knotwork.spline.model import Spline
from knotwork.spline.result import SplineFit

# Sizes are all tried up to the first number, from there on in steps of a share of the size: a fit of logits each.
EVERY, STEP = 12, 0.1
# Tolerance of coefficients that are only compared.
TOLERANCE = 1e-4


def class_fold_paths(
    data: FoldData, codes: NDArray[np.intp], classes: int, options: FitOptions, ridge: float
) -> list[FoldPath]:
    """Fit logits to every fold: one degree; ``codes`` (N,) take the place of the data's responses."""

    def path(fold: Fold, X: NDArray[np.floating]) -> FoldPath:
        rows = fold.training
        weights, own, labels = data.weight_of(rows), X[rows], codes[rows]
        search = likelihood.search_classes(own, labels, classes, weights=weights, names=data.names, options=options)

        def logits(size: int, final: bool) -> Spline:
            spline = search.of_size(size)
            found = likelihood.fit_terms(
                replace(search, spline=spline),
                own,
                labels,
                classes,
                weights=weights,
                ridge=ridge,
                tolerance=likelihood.COMPARED_TOLERANCE,
            )
            found = found.polished() if final else found
            return replace(spline, intercept=found.intercept, coef=found.coef)

        def losses(values: Floats) -> Floats:
            return -likelihood.log_probabilities(values)[np.arange(len(values)), codes[fold.held_out]]

        return _path(search, logits, losses, data, fold, X)

    return [path(fold, X) for fold, X in zip(data.folds, data.X, strict=True)]


def response_fold_paths(data: FoldData, loss: ResponseLoss, options: FitOptions) -> list[FoldPath]:
    """Fit every fold by a loss: one degree, one response."""
    y = data.y[:, 0]

    def path(fold: Fold, X: NDArray[np.floating]) -> FoldPath:
        rows = fold.training
        weights, own = data.weight_of(rows), X[rows]
        whole = response.fit_response(own, y[rows], loss, weights=weights, names=data.names, options=options)
        weight = np.ones(len(rows)) if weights is None else weights

        def eta(size: int, final: bool) -> Spline:
            spline = whole.search.of_size(size)
            tolerance = coefficients.TOLERANCE if final else TOLERANCE
            part = replace(whole.search, spline=spline)
            found = response.fit_terms(part, own, y[rows], whole.loss, weight, whole.ridge, tolerance)
            return replace(spline, intercept=found.intercept, coef=found.coef)

        def losses(values: Floats) -> Floats:
            return whole.loss.deviance(values, y[fold.held_out])

        return _path(whole.search, eta, losses, data, fold, X)

    return [path(fold, X) for fold, X in zip(data.folds, data.X, strict=True)]


def _path(
    search: SplineFit,
    spline_of: Callable[[int, bool], Spline],
    losses: Callable[[Floats], Floats],
    data: FoldData,
    fold: Fold,
    X: NDArray[np.floating],
) -> FoldPath:
    """Judge the sizes of a fold.

    spline_of : from a size, and whether it is the one that is kept, to a spline; losses : from its values to their loss
    """
    weights = data.weight_of(fold.held_out)
    weights = np.ones(len(fold.held_out)) if weights is None else weights
    total, held = float(weights.sum()), X[fold.held_out]
    sizes = np.array(tried_sizes(search.sizes))
    errors = [losses(spline_of(int(size), False)(held)) @ weights / total for size in sizes]
    return FoldPath(sizes, np.array(errors), total, lambda size: spline_of(size, True))


def tried_sizes(count: int) -> list[int]:
    """Return the sizes to compare: all small ones, and fewer and fewer of the others.

    >>> tried_sizes(24)
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 24]
    """
    sizes, size = [], 1
    while size <= count:
        sizes.append(size)
        size += max(1, int(STEP * size)) if size >= EVERY else 1
    return sizes


def probabilities_of(logits: Floats) -> Floats:
    """Return the probability of each class: (N,) log-odds of the second of two, or (N, K) logits → (N, K)."""
    return np.exp(likelihood.log_probabilities(logits))
