"""A spline with fewer terms: each is left out where that costs least, and the others are fitted to the whole again.

The cost is measured on rows: the root mean square of the difference to the spline, as a share of the spline's std
there. The rows are those given, or points spread evenly between the limits of the features, the same ones every time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.coordinates import mean_and_std
from knotwork.data.limits import Limits
from knotwork.errors import DataError
from knotwork.parameters import is_number, shown
from knotwork.spline.monotone import directions, entries, fit_columns, made_exact
from knotwork.spline.prune import eliminate
from knotwork.spline.triangular import triangular

if TYPE_CHECKING:
    from knotwork.spline.model import Spline

# Points between the limits that stand in for rows.
POINTS = 4096


def simplify(spline: Spline, tolerance: float, X: Any = None) -> Spline:
    """Return the spline of the fewest terms found whose difference to this one is within the tolerance."""
    if not is_number(tolerance) or tolerance < 0:
        raise DataError(
            f"tolerance must be a share of the spline's std, 0.05 for 5 %, and at least 0, got {shown(tolerance)}"
        )
    if spline.output_limits is not None:  # no term can be fitted to values that are held
        free = simplify(replace(spline, output_limits=None), tolerance, X)
        return replace(free, output_limits=spline.output_limits)
    rows = _points(spline) if X is None else spline.rows(X)
    if len(rows) == 0:
        raise DataError("a spline is simplified on rows, got none")
    values = spline(rows).reshape(len(rows), -1)
    centre, std = mean_and_std(values)
    target = (values - centre) / std
    order = _subsets(spline.basis(rows), target)
    for kept in order:
        found = _refitted(spline, kept, rows, target, centre, std)
        if difference(found, spline, rows) <= tolerance:
            return found
    return spline


def difference(simple: Spline, spline: Spline, X: Floats) -> float:
    """Return the root mean square of the difference on rows as a share of the std there: the largest of the outputs.

    A spline that is constant on the rows has no std; the difference then counts as it is.
    """
    values = spline(X).reshape(len(X), -1)
    gap = simple(X).reshape(len(X), -1) - values
    _, std = mean_and_std(values)
    return float(np.max(np.sqrt(np.mean(np.square(gap), axis=0)) / std))


def _points(spline: Spline) -> Floats:
    """Return points between the limits: (POINTS, d)."""
    limits = spline.limits
    used = sorted({f for term in spline.terms for f in term.features})
    if limits is None or not np.isfinite([limits.lower[used], limits.upper[used]]).all():
        raise DataError(
            "a spline without limits is simplified on rows, got none; pass the training rows, simplify(tolerance, X)"
        )
    return _spread(limits, used, len(spline.feature_names))


def _spread(limits: Limits, used: list[int], features: int) -> Floats:
    # Two values of a column of zeros and ones are its ends, which the points include in equal shares for all columns:
    # a third of them at either end, and a third between.
    from scipy.stats import qmc

    points = np.zeros((POINTS, features))
    if used:
        unit = qmc.Sobol(len(used), scramble=True, rng=0).random(POINTS)
        share = np.clip(1.5 * unit - 0.25, 0.0, 1.0)
        lower, upper = limits.lower[used], limits.upper[used]
        points[:, used] = lower + share * (upper - lower)
    return points


def _subsets(basis: Floats, target: Floats) -> list[np.ndarray]:
    """Return the best subset of terms found for each number of terms, from none to all."""
    count = basis.shape[1]
    scale = np.sqrt(np.mean(np.square(basis - basis.mean(axis=0)), axis=0))
    varies = np.flatnonzero(scale > 1e-12 * np.abs(basis).max(axis=0, initial=0.0))
    columns = (basis[:, varies] - basis[:, varies].mean(axis=0)) / scale[varies]
    q, r = np.linalg.qr(np.column_stack([np.ones(len(basis)), columns]))
    independent = np.abs(np.diag(r)) > 1e-9 * np.sqrt(len(basis))
    if not independent.all():
        # Terms that others make up for on these rows: the first of them stay.
        varies = varies[independent[1:]]
        columns = columns[:, independent[1:]]
        q, r = np.linalg.qr(np.column_stack([np.ones(len(basis)), columns]))
    projection = q.T @ target
    rss = max(float(np.sum(np.square(target)) - np.sum(np.square(projection))), 0.0)
    members, _ = eliminate(r, projection, rss, prefixes=True)
    subsets = [varies[np.flatnonzero(row[1:])] for row in members]
    return subsets if len(varies) == count else [*subsets, np.arange(count)]


def _refitted(spline: Spline, kept: Any, rows: Floats, target: Floats, centre: Floats, std: Floats) -> Spline:
    """Fit the coefficients of some terms to the values of all."""
    if len(kept) == len(spline.terms):
        return spline
    terms = tuple(spline.terms[m] for m in kept)
    part = replace(spline, terms=terms, coef=spline.coef[kept])
    basis = part.basis(rows)
    mean = basis.mean(axis=0)
    # One scale for the terms of a feature: inequalities compare their coefficients.
    spread = np.sqrt(np.mean(np.square(basis - mean), axis=0))
    scale = np.array([max(spread[k] for k, t in enumerate(terms) if t.features[0] == u.features[0]) for u in terms])
    columns = np.column_stack([np.ones(len(rows)), (basis - mean) / scale])
    factor, along = triangular(columns, target)
    coef = np.empty((1 + len(kept), target.shape[1]))
    for output in range(target.shape[1]):
        # What the spline only rises or only falls along, it goes on to.
        signs = directions(spline, output).tolist()
        coef[:, output] = fit_columns(factor, along[:, output], entries(terms), signs)
    found = replace(
        part,
        intercept=centre + std * (coef[0] - (mean / scale) @ coef[1:]),
        coef=coef[1:] / scale[:, None] * std,
    )
    for output in range(target.shape[1]):
        found = made_exact(found, directions(spline, output).tolist(), output)
    return found
