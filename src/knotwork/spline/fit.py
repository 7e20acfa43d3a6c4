"""The whole fit on one page: standardise → knots → sums → forward → prune → refit → Spline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.workers import Workers
from knotwork.data.coordinates import Coordinates
from knotwork.errors import DataError
from knotwork.spline.forward import Step, forward
from knotwork.spline.host import HostTable, SearchTable
from knotwork.spline.interactions import Interactions
from knotwork.spline.knots import Spans, default_spans
from knotwork.spline.model import Hinge, Linear, Min, Product, Spline, Term
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import Hinges, Opening
from knotwork.spline.prune import prune
from knotwork.spline.refit import Refit, refit
from knotwork.spline.result import Knot, Quality, Selection, SplineFit, StandardisedSearch
from knotwork.spline.rules import EARTH, OWN, gcv
from knotwork.spline.scaling import Scaling

if TYPE_CHECKING:  # a fit in memory does without torch
    from torch import Tensor

# Knots per feature when there are more to choose from: with the feature itself, 256 bins to a one-byte code.
AUTO_KNOTS = 255
# Terms that may have children at a time.
MAX_PARENTS = 20
# Where an automatic choice of the degree ends, and what the GCV of a higher degree must be below, over the best one.
MAX_AUTO_DEGREE = 3
MAX_GCV_RATIO = 0.99
# Of the tables of a forward pass: the products of terms with terms and with candidates.
MAX_BYTES = 1 << 33


@dataclass(frozen=True)
class FitOptions:
    """What a user may set; None asks for the default that depends on the data.

    max_degree : maximum number of features in a term, or "auto"
    interacting : the features that interactions may use, all if None
    sums : where the products of additive terms come from: "passes" over the rows, "tables" of pairs of features, tables
        of "counts", for which all values of a bin are their mean, or "auto": exact tables where they are cheaper
    extrapolate : "clip" holds features at their limits, in the search and in the spline; "linear" goes on
    """

    max_terms: int | None = None
    max_degree: int | str = 1
    penalty: float | None = None
    threshold: float = 1e-3
    minspan: int | None = None
    endspan: int | None = None
    max_knots: int | str | None = "auto"
    interaction: str = "min"
    interacting: tuple[int, ...] | None = None
    max_parents: int = MAX_PARENTS
    compat: str | None = None
    sums: str = "auto"
    extrapolate: str = "linear"
    threads: int = 1


def fit_spline(
    X: NDArray[np.floating] | Tensor,
    y: Floats | Tensor,
    *,
    weights: Floats | Tensor | None = None,
    names: Sequence[str] | None = None,
    options: FitOptions | None = None,
    report: Callable[[Step], None] | None = None,
) -> SplineFit:
    """Fit a spline to finite data: X (N, d), y (N, p), weights (N,) all positive; arrays, or tensors of one device.

    >>> x = np.arange(0.0, 101.0)[:, None]
    >>> fit = fit_spline(x, 3 * np.abs(x - 52) + 7, names=["x"])
    >>> print(fit.spline)
    7
      + 3·h(x - 52)
      + 3·h(52 - x)
    """
    options = options or FitOptions()
    if isinstance(options.max_degree, str):
        return _fit_best_degree(X, y, weights, names, options, report)
    rules = EARTH if options.compat == "earth" else OWN
    names = list(names) if names is not None else [f"x{f}" for f in range(X.shape[1])]
    degree = options.max_degree
    penalty = (2.0 if degree == 1 else 3.0) if options.penalty is None else float(options.penalty)
    total = float(len(X)) if weights is None else float(weights.sum())
    spans = default_spans(total, X.shape[1], options.minspan, options.endspan)
    max_terms = options.max_terms or default_max_terms(X.shape[1], degree)
    automatic = None if rules.free_knots else AUTO_KNOTS
    max_knots = automatic if isinstance(options.max_knots, str) else options.max_knots
    max_knots = None if max_knots is None else min(max_knots, len(X))

    with Workers(options.threads) as workers:
        table = _open(X, y, weights, workers)
        grid = table.candidates(spans, max_knots, clip=options.extrapolate == "clip")
        x_scaling, y_scaling, limits = table.x_scaling, table.y_scaling, table.limits
        with np.errstate(over="ignore", under="ignore"):  # squares of the response may be beyond the range of floats
            rss_unit = float(y_scaling.scale[0] ** -2.0)
        max_terms = _room(max_terms, len(X), grid.knots.size, degree)
        rows = table.sums(grid, max_terms, options.sums if degree == 1 else "passes")
        path = forward(
            rows,
            max_terms=max_terms,
            penalty=penalty,
            threshold=options.threshold,
            rules=rules,
            scale=x_scaling.scale,
            interactions=None if degree == 1 else _interactions(options, degree, table.minimum(), spans),
            unit=rss_unit,
            report=report,
        )
        prefixes = rules.prefixes if y.shape[1] == 1 else rules.prefixes_many
        pruned = prune(path, penalty=penalty, prefixes=prefixes)
        chosen = pruned.best
        fitted = refit(rows, path, chosen)

        knots = table.find_knots(path.terms)

    with np.errstate(over="ignore"):  # coefficients that are too large for a float are named below
        slopes = path.slopes * x_scaling.scale
    forward_terms = tuple(_term(hinges, knots, slopes, path.terms.product) for hinges in path.terms.entries())
    kept = [(f, knot) for hinges in fitted.terms.entries() for f, knot, sign in hinges if sign != 0]
    spline = _spline(fitted, [forward_terms[m - 1] for m in chosen[1:]], names, x_scaling, y_scaling, slopes)
    return SplineFit(
        spline=replace(spline, limits=limits) if options.extrapolate == "clip" else spline,
        knots=tuple(knots[key] for key in dict.fromkeys(kept)),
        quality=_quality(fitted, path.null_rss, total, penalty, rss_unit),
        coordinates=_coordinates(path.opening, grid, x_scaling, y_scaling),
        selection=Selection(
            forward_terms=forward_terms,
            selected=chosen[1:] - 1,
            steps=path.steps,
            stopped=path.stopped,
            observations=total,
            spans=spans,
            penalty=penalty,
            gcv_by_degree=(),
        ),
        standardised=StandardisedSearch(pruning=pruned, refit=fitted, rss_unit=rss_unit),
        limits=limits,
    )


def _fit_best_degree(
    X: Any,
    y: Any,
    weights: Any,
    names: Sequence[str] | None,
    options: FitOptions,
    report: Callable[[Step], None] | None,
) -> SplineFit:
    """Raise the degree while GCV, which charges more for the knots of interactions, falls by more than 1 %."""
    max_degree = min(MAX_AUTO_DEGREE, X.shape[1] if options.interacting is None else len(options.interacting))
    best: SplineFit | None = None
    tried: list[float] = []
    for degree in range(1, max(max_degree, 1) + 1):
        chosen = replace(options, max_degree=degree)
        fit = fit_spline(X, y, weights=weights, names=names, options=chosen, report=report)
        tried.append(fit.quality.gcv)
        if best is not None and not fit.quality.gcv < MAX_GCV_RATIO * best.quality.gcv:
            break
        best = fit
    assert best is not None
    return replace(best, selection=replace(best.selection, gcv_by_degree=tuple(tried)))


def default_max_terms(features: int, degree: int) -> int:
    """Maximum number of terms of the forward pass, with the intercept: twice as many where interactions need them."""
    return min(200, max(20 if degree == 1 else 40, 2 * features)) + 1


def _room(max_terms: int, rows: int, candidates: int, degree: int) -> int:
    """Return the number of terms to make room for: no more than there can be, and no more than memory holds.

    Every step adds a column that is independent of those before, and counts as two terms at most.
    """
    steps = rows if degree > 1 else min(rows, candidates)
    max_terms = min(max_terms, 2 * steps + 3)
    needed = 8 * max_terms * (2 * max_terms + candidates)
    if needed > MAX_BYTES:
        raise DataError(
            f"max_terms must leave room for its tables, {max_terms} terms and {candidates} candidate knots need "
            f"{needed / 2**30:.0f} GB (at most {MAX_BYTES >> 30}); choose a smaller max_terms"
        )
    return max_terms


def _open(X: Any, y: Any, weights: Any, workers: Workers) -> SearchTable:
    """Return the table as the search sees it, in memory or on a device."""
    if isinstance(X, np.ndarray):
        return HostTable(X, y, weights, workers)
    from knotwork.spline.device import DeviceTable

    return DeviceTable(X, y, weights, workers)


def _interactions(options: FitOptions, degree: int, minimum: Floats, spans: Spans) -> Interactions:
    features = np.full(len(minimum), options.interacting is None)
    features[list(options.interacting or ())] = True
    return Interactions(
        degree=degree,
        product=options.interaction == "product",
        max_parents=options.max_parents,
        features=features,
        minimum=minimum,
        min_mass=float(spans.endspan),
    )


def _term(hinges: Hinges, knots: dict[tuple[int, float], Knot], slopes: Floats, product: bool) -> Term:
    """Write a term of the search in the data's units of measurement."""
    if hinges[0][2] == 0:
        return Linear(hinges[0][0])
    found = tuple(Hinge(f, knots[f, knot].value, sign) for f, knot, sign in hinges)
    if len(found) == 1:
        return found[0]
    if product:
        return Product(found)
    return Min(found, tuple(float(slopes[h.feature] / slopes[found[0].feature]) for h in found))


def _quality(fitted: Refit, null_rss: float, total: float, penalty: float, rss_unit: float) -> Quality:
    """Return the quality of the refit, given its standardised RSS and that of the intercept, in the data's units."""
    rss = float(fitted.rss.sum())
    score, null_score = gcv(rss, total, 1 + len(fitted.coef), penalty), gcv(null_rss, total, 1, penalty)
    return Quality(
        rss=rss * rss_unit,
        gcv=score * rss_unit,
        # A constant response leaves nothing to explain.
        rsq=1 - rss / null_rss if null_rss > 0 else 0.0,
        grsq=1 - score / null_score if null_rss > 0 else 0.0,
    )


def _coordinates(opening: Opening, grid: CandidateGrid, scaling: Scaling, y_scaling: Scaling) -> Coordinates:
    """Means and stds of features and responses, in the units of the data; 1 for the std of a constant."""
    mean = opening.sums[grid.linear] / opening.total
    variance = opening.norms[grid.linear] / opening.total - mean**2
    std = np.sqrt(np.maximum(variance, 0.0)) / scaling.scale
    usable = np.isfinite(std) & (std > 0)
    y_std = np.sqrt(opening.squares / opening.total) / y_scaling.scale
    return Coordinates(
        x_centre=(mean + scaling.centre) / scaling.scale,
        x_scale=np.where(usable, std, 1.0),
        y_centre=y_scaling.centre / y_scaling.scale,
        y_scale=np.where(np.isfinite(y_std) & (y_std > 0), y_std, 1.0),
    )


def _spline(
    fitted: Refit,
    terms: Sequence[Term],
    names: Sequence[str],
    x_scaling: Scaling,
    y_scaling: Scaling,
    slopes: Floats,
) -> Spline:
    """Undo the scaling: a hinge of z is a hinge of x times the scale, a linear term moves the intercept too.

    A minimum is the one of the search divided by the first slope, (d,) in the units of the data.
    """
    intercept = fitted.intercept + y_scaling.centre
    factor = np.ones(len(terms))
    for m, term in enumerate(terms):
        match term:
            case Linear():
                intercept = intercept - x_scaling.centre[term.feature] * fitted.coef[m]
                factor[m] = x_scaling.scale[term.feature]
            case Min():
                factor[m] = slopes[term.hinges[0].feature]
            case Hinge():
                factor[m] = x_scaling.scale[term.feature]
            case _:  # in extended precision, whose range is larger
                factor[m] = prod(x_scaling.scale[list(term.features)].astype(np.longdouble))
    with np.errstate(over="ignore"):
        coef = fitted.coef * factor[:, None] / y_scaling.scale[0]
    if not np.isfinite(coef).all():
        worst = terms[int(np.argwhere(~np.isfinite(coef))[0, 0])]
        raise DataError(
            f"coefficients must be floats, that of {worst.describe(names)} is infinite: its values are too small "
            f"beside those of y; multiply its columns by 1e100, say"
        )
    return Spline(
        terms=tuple(terms),
        intercept=intercept / y_scaling.scale[0],
        coef=coef,
        feature_names=tuple(names),
    )
