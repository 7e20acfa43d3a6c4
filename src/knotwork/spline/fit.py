"""The whole fit on one page: standardise → knots → sums → forward → prune → refit → Spline."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.workers import Workers
from knotwork.data.coordinates import Coordinates
from knotwork.data.limits import Limits
from knotwork.data.split import held_out
from knotwork.errors import DataError
from knotwork.spline.degree import auto_degrees, chosen_degree, held_out_losses
from knotwork.spline.forward import ForwardPass, Step, forward
from knotwork.spline.host import HostTable, Knots, SearchTable
from knotwork.spline.interactions import Interactions
from knotwork.spline.knots import Spans, default_spans
from knotwork.spline.model import Hinge, Term, knots_by_feature
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import Opening, RowSums, TermTable
from knotwork.spline.monotone import made_exact
from knotwork.spline.monotone_prune import prune_monotone, refit_monotone
from knotwork.spline.prune import PruningPath, prune
from knotwork.spline.refit import MAX_PASSES, Refit, refit
from knotwork.spline.result import Quality, Selection, SplineFit, StandardisedSearch
from knotwork.spline.rules import APART, EARTH, FREE, OWN, Rules, gcv
from knotwork.spline.scaling import Scaling
from knotwork.spline.units import SearchPath, Units, data_term

if TYPE_CHECKING:  # a fit in memory does without torch
    from torch import Tensor

# Knots per feature when there are more to choose from: with the feature itself, 256 bins to a one-byte code.
AUTO_KNOTS = 255
# Terms that may have children at a time.
MAX_PARENTS = 20
# Charge of GCV for a knot: of additive fits that may bend anywhere, of those whose knots keep a distance, and of fits
# with interactions.
ADDITIVE_PENALTY = 2.0
SPACED_PENALTY = 2.5
INTERACTION_PENALTY = 3.0
# By how far apart knots must be; a search without held-out rows keeps off neighbouring values.
RULES = {"free": FREE, "paying": OWN, "apart": APART, "auto": APART}
# Share of the rows that say whether knots at neighbouring values pay.
HELD_OUT = 0.25
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
    terms : number of terms to keep, the intercept included; None leaves it to GCV
    knots : the knots that features may bend at, in the data's units, or None for those that the data suggest; one entry
        for each feature
    spacing : "free" lets knots be anywhere; "apart" keeps them at a distance unless a closer one pays, and never at two
        values with none between them; "paying" lets those pay too; "auto" asks held-out rows whether they do, if the
        table is in memory. Knots that are given are free.
    monotone : (d,) 1 for features along which the spline may only rise, −1 only fall, 0 either; None for no such rule
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
    terms: int | None = None
    knots: tuple[Floats | None, ...] | None = None
    spacing: str = "auto"
    monotone: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Plan:
    """What options come to for a table of so many observations and features: nothing is left open."""

    rules: Rules
    degree: int
    penalty: float
    total: float
    spans: Spans
    max_terms: int
    max_knots: int | None
    threshold: float
    monotone: tuple[int, ...] | None = None

    @classmethod
    def of(cls, options: FitOptions, rows: int, features: int, total: float) -> Plan:
        """Fill in the defaults."""
        assert not isinstance(options.max_degree, str)
        rules, degree = _rules(options), options.max_degree
        additive = ADDITIVE_PENALTY if rules.distance == 0 else SPACED_PENALTY
        penalty = additive if degree == 1 else INTERACTION_PENALTY
        automatic = None if rules.free_knots else AUTO_KNOTS
        max_knots = automatic if isinstance(options.max_knots, str) else options.max_knots
        return cls(
            rules=rules,
            degree=degree,
            penalty=penalty if options.penalty is None else float(options.penalty),
            total=total,
            spans=default_spans(total, features, options.minspan, options.endspan),
            max_terms=options.max_terms or default_max_terms(features, degree),
            max_knots=None if max_knots is None else min(max_knots, rows),
            threshold=options.threshold,
            monotone=options.monotone,
        )


def _rules(options: FitOptions) -> Rules:
    if options.compat == "earth":
        return EARTH
    return FREE if options.knots is not None else RULES[options.spacing]


def fit_spline(
    X: NDArray[np.floating] | Tensor,
    y: Floats | Tensor,
    *,
    weights: Floats | Tensor | None = None,
    names: Sequence[str] | None = None,
    options: FitOptions | None = None,
    report: Callable[[Step], None] | None = None,
    opened: HostTable | None = None,
) -> SplineFit:
    """Fit a spline to finite data: X (N, d), y (N, p), weights (N,) all positive; arrays, or tensors of one device.

    opened : the same data as the search sees them, if folds have had them

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
    if options.spacing == "auto" and options.compat is None and options.knots is None and isinstance(X, np.ndarray):
        return _fit_paying(X, y, weights, names, options, report, opened)
    names = list(names) if names is not None else [f"x{f}" for f in range(X.shape[1])]
    total = float(len(X)) if weights is None else float(weights.sum())
    plan = Plan.of(options, len(X), X.shape[1], total)
    with Workers(options.threads) as workers:
        table = _open(X, y, weights, workers) if opened is None else opened.with_workers(workers)
        grid = table.candidates(plan.spans, plan.max_knots, clip=options.extrapolate == "clip", given=options.knots)
        max_terms = room_for(plan.max_terms, len(X), grid.knots.size, plan.degree)
        plan = plan if max_terms == plan.max_terms else replace(plan, max_terms=max_terms)
        rows = table.sums(grid, plan.max_terms, options.sums if plan.degree == 1 else "passes")
        interactions = None if plan.degree == 1 else interactions_of(options, plan.degree, table.minimum(), plan.spans)
        path, pruned = search(rows, plan, table.x_scaling, table.y_scaling, interactions, report)
        return finish(table, rows, path, pruned, plan, names, options)


def search(
    rows: RowSums,
    plan: Plan,
    x: Scaling,
    y: Scaling,
    interactions: Interactions | None = None,
    report: Callable[[Step], None] | None = None,
) -> tuple[ForwardPass, PruningPath]:
    """Add terms, then find the best subset of every size: from sums alone; x and y say what they are in."""
    path = forward(
        rows,
        max_terms=plan.max_terms,
        penalty=plan.penalty,
        threshold=plan.threshold,
        rules=plan.rules,
        scale=x.scale,
        interactions=interactions,
        unit=_rss_unit(y),
        report=report,
    )
    if plan.monotone is not None:
        return path, prune_monotone(path, plan.monotone, penalty=plan.penalty)
    prefixes = plan.rules.prefixes if len(y.scale) == 1 else plan.rules.prefixes_many
    return path, prune(path, penalty=plan.penalty, prefixes=prefixes)


class Known(Protocol):
    """What the end of a fit asks of the place where the rows are, or were."""

    @property
    def x_scaling(self) -> Scaling:
        """As in :class:`SearchTable`."""
        ...

    @property
    def y_scaling(self) -> Scaling:
        """As in :class:`SearchTable`."""
        ...

    @property
    def limits(self) -> Limits:
        """As in :class:`SearchTable`."""
        ...

    def find_knots(self, terms: TermTable) -> Knots:
        """Look up the data values behind standardised knots."""
        ...


def finish(
    table: Known,
    rows: RowSums,
    path: ForwardPass,
    pruned: PruningPath,
    plan: Plan,
    names: Sequence[str],
    options: FitOptions,
    passes: int = MAX_PASSES,
) -> SplineFit:
    """Fit the coefficients of the best subset, or of the size asked for, and write all in the units of the data.

    passes : over the rows that correct the coefficients, at most
    """
    chosen = _chosen(pruned, options)
    signs = plan.monotone
    fitted = refit(rows, path, chosen, passes) if signs is None else refit_monotone(rows, path, chosen, signs)
    knots = table.find_knots(path.terms)
    slopes = _data_slopes(table, path)
    terms = _data_terms(path, knots, slopes)
    kept = [(f, knot) for hinges in fitted.terms.entries() for f, knot, sign in hinges if sign != 0]
    units = Units.of(terms, table.x_scaling, table.y_scaling, slopes)
    limits = table.limits if options.extrapolate == "clip" else None
    own = chosen[1:] - 1
    rss_unit = _rss_unit(table.y_scaling)
    spline = units[own].spline([terms[m] for m in own], fitted.intercept, fitted.coef, names, limits)
    return SplineFit(
        spline=spline if signs is None else made_exact(spline, signs),
        knots=tuple(knots[key] for key in dict.fromkeys(kept)),
        quality=_quality(fitted, path.null_rss, plan.total, plan.penalty, rss_unit),
        coordinates=_coordinates(path.opening, rows.grid, table.x_scaling, table.y_scaling),
        selection=Selection(
            forward_terms=terms,
            selected=own,
            steps=path.steps,
            stopped=path.stopped,
            observations=plan.total,
            spans=plan.spans,
            penalty=plan.penalty,
            gcv_by_degree=(),
            held_out_by_degree=(),
        ),
        standardised=StandardisedSearch(pruning=pruned, refit=fitted, rss_unit=rss_unit),
        limits=table.limits,
        path=SearchPath(path.factor, path.projection, units),
    )


def chosen_terms(table: Known, path: ForwardPass, pruned: PruningPath, options: FitOptions) -> tuple[Term, ...]:
    """Return the terms that a fit would have, in the units of the data."""
    terms = _data_terms(path, table.find_knots(path.terms), _data_slopes(table, path))
    return tuple(terms[m] for m in _chosen(pruned, options)[1:] - 1)


def _chosen(pruned: PruningPath, options: FitOptions) -> NDArray[np.intp]:
    return pruned.best if options.terms is None else pruned.of_size(options.terms)


def _data_slopes(table: Known, path: ForwardPass) -> Floats:
    with np.errstate(over="ignore"):  # coefficients that are too large for a float are named later
        slopes: Floats = path.slopes * table.x_scaling.scale
    return slopes


def _data_terms(path: ForwardPass, knots: Knots, slopes: Floats) -> tuple[Term, ...]:
    values = {key: knot.value for key, knot in knots.items()}
    return tuple(data_term(hinges, values, slopes, path.terms.product) for hinges in path.terms.entries())


def _rss_unit(y: Scaling) -> float:
    """What one unit of a standardised sum of squares is worth, in squared units of the responses."""
    with np.errstate(over="ignore", under="ignore"):  # squares of the response may be beyond the range of floats
        return float(y.scale[0] ** -2.0)


def _fit_best_degree(
    X: Any,
    y: Any,
    weights: Any,
    names: Sequence[str] | None,
    options: FitOptions,
    report: Callable[[Step], None] | None,
) -> SplineFit:
    """Raise the degree while the squared errors of held-out rows fall."""
    if not isinstance(X, np.ndarray):  # a device has additive fits only, and says so
        degree = auto_degrees(X.shape[1], options.interacting)[-1]
        return fit_spline(X, y, weights=weights, names=names, options=replace(options, max_degree=degree))
    held = held_out_by_degree(X, y, weights, names, options)
    chosen = replace(options, max_degree=chosen_degree(held))
    fit = fit_spline(X, y, weights=weights, names=names, options=chosen, report=report)
    return with_held_out_losses(fit, held)


def held_out_by_degree(
    X: NDArray[np.floating], y: Floats, weights: Floats | None, names: Sequence[str] | None, options: FitOptions
) -> tuple[float, ...]:
    """Return the mean held-out squared errors of the degrees that an automatic choice tries."""
    # Whether neighbouring knots pay is a matter of the final fit: asking in every fold would take four fits each.
    spacing = "paying" if options.spacing == "auto" else options.spacing

    def losses(degree: int, training: NDArray[np.intp], out: NDArray[np.intp]) -> Floats:
        own = replace(options, max_degree=degree, spacing=spacing)
        weight = None if weights is None else weights[training]
        part = fit_spline(X[training], y[training], weights=weight, names=names, options=own)
        errors: Floats = np.square(part.spline(X[out]).reshape(-1, y.shape[1]) - y[out]).sum(axis=1)
        return errors

    return held_out_losses(X, losses, auto_degrees(X.shape[1], options.interacting), weights)


def with_held_out_losses(fit: SplineFit, held: tuple[float, ...]) -> SplineFit:
    """Let a fit remember by what its degree was chosen."""
    return replace(fit, selection=replace(fit.selection, held_out_by_degree=held))


def _fit_paying(
    X: NDArray[np.floating],
    y: Any,
    weights: Any,
    names: Sequence[str] | None,
    options: FitOptions,
    report: Callable[[Step], None] | None,
    opened: HostTable | None,
) -> SplineFit:
    """Keep knots at neighbouring values of a feature only if held-out rows say that they pay.

    Where the fit has some, a part of the rows is fitted with and without such knots, and the others decide: the knots
    stay if the squared error without them is larger by more than the standard error of the difference.
    """
    paying = replace(options, spacing="paying")
    fit = fit_spline(X, y, weights=weights, names=names, options=paying, report=report, opened=opened)
    if not has_neighbours(fit.spline.terms, X):
        return fit
    apart, out = replace(options, spacing="apart"), held_out(X, HELD_OUT, seed=0)
    if not 2 <= np.count_nonzero(out) <= len(X) - 2:
        return fit_spline(X, y, weights=weights, names=names, options=apart, report=report)
    w = np.ones(len(X)) if weights is None else weights
    errors = []
    for each in (apart, paying):
        part = fit_spline(X[~out], y[~out], weights=None if weights is None else w[~out], names=names, options=each)
        errors.append(np.square(part.spline(X[out]).reshape(-1, y.shape[1]) - y[out]).sum(axis=1))
    gain, share = errors[0] - errors[1], w[out] / w[out].sum()
    mean = float(share @ gain)
    error = math.sqrt(float(share @ np.square(gain - mean)) / w[out].sum())
    if mean > error:
        return fit
    return fit_spline(X, y, weights=weights, names=names, options=apart, report=report)


def has_neighbours(terms: Sequence[Term], X: NDArray[np.floating]) -> bool:
    """Whether two knots of a feature's own hinges have no value of the data between them."""
    own = [term for term in terms if isinstance(term, Hinge)]
    for f, knots in knots_by_feature(own).items():
        for low, high in itertools.pairwise(sorted(set(knots))):
            if not _any_between(X[:, f], low, high):
                return True
    return False


def _any_between(x: NDArray[np.floating], low: float, high: float) -> bool:
    """Whether a value lies between two others: a few nearly always tell."""
    parts = x[:128], x[128:4096], x[4096:]
    return any(np.count_nonzero((part > low) & (part < high)) > 0 for part in parts)


def default_max_terms(features: int, degree: int) -> int:
    """Maximum number of terms of the forward pass, with the intercept: twice as many where interactions need them."""
    return min(200, max(20 if degree == 1 else 40, 2 * features)) + 1


def room_for(max_terms: int, rows: int, candidates: int, degree: int) -> int:
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


def interactions_of(options: FitOptions, degree: int, minimum: Floats, spans: Spans) -> Interactions:
    """Return which interactions a search may make; minimum : (d,) of each feature, standardised."""
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
