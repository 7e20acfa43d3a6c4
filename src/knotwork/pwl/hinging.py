"""Hinging hyperplanes: an affine function plus oblique hinges c·R(w·x − t), found one at a time.

A hinge of either sign is a maximum or minimum of two planes; both are fitted to the residual, the better direction is
kept, and then the coefficients of all hinges are fitted again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from knotwork.arrays import Floats
from knotwork.pwl.maxaffine import FitRules, Rows, affine_fit, fit_max_affine
from knotwork.pwl.maxsum import MaxSum

# A hinge has to lower the RSS by this share of the initial RSS.
MIN_GAIN = 1e-4
# Keeps columns that depend on each other from blowing up.
MIN_RIDGE = 1e-8


def fit_hinges(rows: Rows, max_hinges: int, rules: FitRules) -> list[MaxSum]:
    """Add hinges greedily: return the fits with 0, 1, … hinges, at most ``max_hinges``.

    >>> x = np.linspace(-1, 1, 41)
    >>> rows = Rows(np.column_stack([np.ones(41), x]), np.maximum(x - 0.2, 0), np.ones(41), [np.array([0, 40])])
    >>> fits = fit_hinges(rows, 3, FitRules())
    >>> len(fits), bool(np.abs(fits[-1](x[:, None]) - rows.y).max() < 1e-4)
    (2, True)
    """
    directions = np.zeros((0, rows.Z.shape[1]))
    base = affine_fit(rows)
    current, rss = _refit(rows, base, directions, rules)
    first = rss
    fits = [current]
    for _ in range(max_hinges):
        residual = rows.y - current(rows.Z[:, 1:])
        trials = []
        for sign in (1.0, -1.0):
            theta, _ = fit_max_affine(replace(rows, y=sign * residual), 2, rules)
            if len(theta) == 2 and (theta[1] - theta[0])[1:].any():
                trials.append(_refit(rows, base, np.vstack([directions, _unit(theta[1] - theta[0])]), rules))
        if not trials:
            break
        fit, error = min(trials, key=lambda trial: trial[1])
        if not error < rss - MIN_GAIN * first:
            break
        current, rss = fit, error
        directions = current.theta[1:]
        fits.append(current)
    return fits


def _unit(direction: Floats) -> Floats:
    length = float(np.linalg.norm(direction[1:]))
    return direction / length if length > 0 else direction


def _refit(rows: Rows, base: Floats, directions: Floats, rules: FitRules) -> tuple[MaxSum, float]:
    """Fit the coefficients of hinges in these directions, and what the affine part differs from the base."""
    hinges = np.maximum(rows.Z @ directions.T, 0.0)
    basis = np.hstack([rows.Z, hinges])
    share = rows.weight / rows.weight.sum()
    d = rows.Z.shape[1]
    penalty = np.r_[np.full(d, MIN_RIDGE), np.full(len(directions), max(rules.ridge, MIN_RIDGE))]
    gram = (basis * share[:, None]).T @ basis + np.diag(penalty)
    coef = np.linalg.solve(gram, basis.T @ (share * (rows.y - rows.Z @ base)))
    coef[:d] += base
    # Piece 0 is zero: a hinge is the maximum of it and its own plane.
    theta = np.vstack([np.zeros(d), directions])
    groups = tuple((0, k + 1) for k in range(len(directions))) or ((0,),)
    slopes = coef[d:, None] if len(directions) else np.zeros((1, 1))
    rss = float(rows.weight @ np.square(rows.y - basis @ coef))
    return MaxSum(theta, groups, slopes, coef[None, :d]), rss
