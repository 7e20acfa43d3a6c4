"""Pruning and refitting under the inequalities of monotone effects, see :mod:`knotwork.spline.monotone`.

Where the free way asks for the fall in RSS of each subset, this one solves the small constrained least squares of it:
as many as there are terms, times the few cheapest terms that are tried at each size.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.forward import ForwardPass
from knotwork.spline.moments.moments import RowSums
from knotwork.spline.monotone import fit_columns
from knotwork.spline.prune import PruningPath
from knotwork.spline.refit import MAX_PASSES, TOLERANCE, Refit
from knotwork.spline.rules import gcv
from knotwork.spline.triangular import inverse_of, triangular

# Terms that are tried at each size: those that look cheapest without the inequalities.
TRIED = 3


def prune_monotone(path: ForwardPass, signs: Sequence[int], *, penalty: float) -> PruningPath:
    """Leave out one term after the other, where that costs least; one response.

    Terms that the inequalities hold at zero go first: they cost nothing. Sizes that are passed over have an infinite
    GCV.
    """
    columns = len(path.factor)
    members = np.zeros((columns, columns), dtype=np.bool_)
    rss, scores = np.full(columns, np.inf), np.full(columns, np.inf)
    terms = list(path.terms.entries())
    whole = float(np.square(path.projection).sum())

    def solve(subset: NDArray[np.intp]) -> tuple[Floats, Floats, float]:
        factor, along = triangular(path.factor[:, subset], path.projection)
        beta = fit_columns(factor, along[:, 0], [terms[m - 1] for m in subset[1:]], signs)
        left = float(np.square(along[:, 0] - factor @ beta).sum())
        return beta, factor, path.rss + max(whole - float(np.square(along).sum()), 0.0) + left

    subset = np.arange(columns)
    beta, factor, reached = solve(subset)
    while True:
        idle = np.flatnonzero(beta[1:] == 0) + 1
        if idle.size:
            subset = np.delete(subset, idle)
            beta, factor, reached = solve(subset)
            continue
        size = len(subset) - 1
        members[size, subset], rss[size] = True, reached
        scores[size] = gcv(reached, path.opening.total, size + 1, penalty)
        if size == 0:
            return PruningPath(members=members, rss=rss, gcv=scores)
        costs = np.square(beta[1:]) / np.square(inverse_of(factor)[1:]).sum(axis=1)
        tried = [np.delete(subset, 1 + m) for m in np.argsort(costs, kind="stable")[:TRIED]]
        found = [(*solve(each), each) for each in tried]
        beta, factor, reached, subset = min(found, key=lambda one: one[2])


def refit_monotone(rows: RowSums, path: ForwardPass, chosen: NDArray[np.intp], signs: Sequence[int]) -> Refit:
    """Fit the chosen columns under the inequalities, and correct the coefficients by the true residual."""
    factor, along = triangular(path.factor[:, chosen], path.projection)
    inverse = inverse_of(factor)
    terms = path.terms[chosen[1:] - 1]
    hinges = list(terms.entries())
    beta = fit_columns(factor, along[:, 0], hinges, signs)
    best, rss = beta, np.inf
    for _ in range(MAX_PASSES):
        residual = rows.residual(terms, beta[:1], beta[1:, None])
        found = float(residual.rss.sum())
        if found >= rss:
            break  # only rounding is left
        better = found < rss * (1 - TOLERANCE)
        best, rss = beta, found
        if not better:
            break
        beta = fit_columns(factor, factor @ beta + inverse.T @ residual.dots[:, 0], hinges, signs)
    return Refit(terms=terms, intercept=best[:1], coef=best[1:, None], rss=np.array([rss]), inverse=inverse)
