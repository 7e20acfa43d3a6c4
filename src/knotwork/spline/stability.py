"""How a fit would have come out on other rows: blocks of them drawn with replacement, from sums alone.

Each block of rows is summed once (:mod:`knotwork.spline.moments.stored`). A draw is a combination of blocks, each as
many times as it was drawn, and its fit a search from the combined sums: no pass over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.workers import Workers
from knotwork.spline.fit import FitOptions, Plan, room_for, search
from knotwork.spline.host import HostTable
from knotwork.spline.model import Hinge, Linear, Spline
from knotwork.spline.moments.stored import StoredRows, StoredSums
from knotwork.spline.refit import refit
from knotwork.spline.scaling import Scaling
from knotwork.spline.units import Units, data_term

# Knots of a feature: their exact places matter less here than the time of a hundred searches.
MAX_KNOTS = 63


def draw_splines(
    X: NDArray[np.floating],
    y: Floats,
    weights: Floats | None,
    names: Sequence[str],
    options: FitOptions,
    *,
    blocks: int,
    draws: int,
    generator: np.random.Generator,
) -> list[Spline]:
    """Fit a spline to each of so many draws of blocks of neighbouring rows, as many as there are, with replacement."""
    n, d = X.shape
    total = float(n) if weights is None else float(weights.sum())
    plan = Plan.of(options, n, d, total)
    plan = replace(plan, max_knots=MAX_KNOTS if plan.max_knots is None else min(plan.max_knots, MAX_KNOTS))
    edges = [n * b // blocks for b in range(blocks + 1)]
    splines: list[Spline] = []
    with Workers(options.threads) as workers:
        table = HostTable(X, y, weights, workers)
        clip = options.extrapolate == "clip"
        grid = table.candidates(plan.spans, plan.max_knots, clip=clip, given=options.knots)
        plan = replace(plan, max_terms=room_for(plan.max_terms, n, grid.knots.size, 1))
        sums = [StoredSums.of(table.some(grid, np.arange(*edges[b : b + 2]), workers)) for b in range(blocks)]
        limits = table.limits if clip else None
    for _ in range(draws):
        times = np.bincount(generator.integers(blocks, size=blocks), minlength=blocks)
        drawn = np.flatnonzero(times)
        rows = StoredRows([sums[b] for b in drawn], times[drawn].astype(float).tolist())
        x, scale = table.x_scaling, Scaling(table.y_scaling.scale, table.y_scaling.centre + rows.means)
        path, pruned = search(rows, replace(plan, total=rows.opening().total), x, scale)
        chosen = pruned.best if options.terms is None else pruned.of_size(options.terms)
        fitted = refit(rows, path, chosen)
        terms = [data_term(h, table.knot_values(h), x.scale, False) for h in fitted.terms.entries()]
        units = Units.of(terms, x, scale, x.scale)
        splines.append(units.spline(terms, fitted.intercept, fitted.coef, names, limits))
    return splines


@dataclass(frozen=True)
class Band:
    """A feature's curve, and where draws put it: effects less their mean over the rows.

    grid : (G,) values of the feature; lower, middle, upper : (G, p) quantiles of the draws' curves
    """

    grid: Floats
    lower: Floats
    middle: Floats
    upper: Floats


@dataclass(frozen=True)
class Stability:
    """What other rows would have made of a fit.

    frequencies : share of the draws in which each column has a term, by name, in the order of the table
    sizes : (draws,) numbers of terms, the intercept included
    bands : of each encoded feature that any draw uses, by name
    """

    frequencies: dict[str, float]
    sizes: NDArray[np.intp]
    bands: dict[str, Band]


def bands_of(splines: Sequence[Spline], X: NDArray[np.floating], points: int, coverage: float) -> dict[str, Band]:
    """Return the curves of additive splines at quantiles of each feature, and the band that holds a share of them."""
    names = splines[0].feature_names
    used = sorted({term.feature for spline in splines for term in spline.terms})  # type: ignore[union-attr]
    out = {}
    for f in used:
        quantiles = np.quantile(X[:, f], np.linspace(0, 1, points))
        curves = np.stack([_effect(spline, f, quantiles) for spline in splines])  # (draws, points, p)
        curves -= curves.mean(axis=1, keepdims=True)  # quantiles stand for the rows
        grid, place = np.unique(quantiles, return_index=True)
        low, middle, high = np.quantile(curves[:, place], [(1 - coverage) / 2, 0.5, (1 + coverage) / 2], axis=0)
        out[names[f]] = Band(grid, low, middle, high)
    return out


def _effect(spline: Spline, feature: int, values: Floats) -> Floats:
    """Return the sum of a feature's terms at some values: (G,) → (G, p)."""
    held = values
    if spline.limits is not None:
        held = np.clip(values, spline.limits.lower[feature], spline.limits.upper[feature])
    out = np.zeros((len(values), spline.intercept.size))
    for term, coef in zip(spline.terms, spline.coef, strict=True):
        assert isinstance(term, (Hinge, Linear))
        if term.feature == feature:
            line = held if isinstance(term, Linear) else np.maximum(term.sign * (held - term.knot), 0.0)
            out += line[:, None] * coef
    return out
