"""Choosing a start: one function from data, hidden widths and loss to the spline that a network begins as.

A spline makes a good start when it is narrow enough for the network and has no large coefficients that cancel. Held-out
rows, where there are any, choose the ridge and whether interactions pay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import expit
from torch import nn

from knotwork.arrays import Floats
from knotwork.compute.blas import one_blas_thread
from knotwork.compute.workers import thread_count
from knotwork.data.coordinates import Coordinates
from knotwork.data.losses import ResponseLoss
from knotwork.errors import NetworkError
from knotwork.network.compile.units import count_units
from knotwork.network.start.ridge import RIDGES, held_out_cost, ridge_refits, ridges_of, steeper
from knotwork.network.start.task import StartOptions, StartTask
from knotwork.network.train.losses import Deviance, LogLoss
from knotwork.pwl.through import in_coordinates, spline_with_outputs
from knotwork.spline import response
from knotwork.spline.coefficients import Coefficients, fit_coefficients
from knotwork.spline.columns import TermValues, term_units
from knotwork.spline.fit import FitOptions, default_max_terms, fit_spline
from knotwork.spline.likelihood import default_terms, fit_terms, search_classes
from knotwork.spline.logits import LogitFit, fit_logits
from knotwork.spline.model import Hinge, Linear, Spline
from knotwork.spline.pair_test import interacting_features
from knotwork.spline.result import SplineFit

# Knots of a feature that a search for logits chooses from: labels do not distinguish more of them.
CLASS_KNOTS = 63
# What a knot costs in the GCV of logits without interactions. For two classes it is more than usual: lines cost nothing
# and often separate the classes as well. For more classes it is nothing: the ridge keeps superfluous terms harmless.
TWO_CLASS_PENALTY, MORE_CLASS_PENALTY = 6.0, 0.0
# Tolerance of the logits: the share of the log-loss that a Newton step must promise. Training finds what is left.
CLASS_TOLERANCE = 1e-2
# The same for other responses.
RESPONSE_TOLERANCE = 1e-4
# Terms that a search may always have, however few the rows.
MIN_TERMS = 21
# Terms of a start with interactions, and knots of a feature to choose from: more of them cost more than they gain.
PAIR_TERMS, PAIR_KNOTS = 31, 31
# Fewer rows show interactions that are not there: on five tables of 200 to 400 rows a spline with interactions was
# worse on held-out rows in three splits of five.
MIN_PAIR_ROWS = 400
# Features among which all interactions are searched for, besides those of features that a test points at.
MAX_SEARCHED = 30


def choose_start(task: StartTask, options: StartOptions) -> Spline:
    """Fit the splines to choose from, and choose by the held-out rows: (N, d) → (N, outputs)."""
    with one_blas_thread():
        return _chosen(task, options)


def _chosen(task: StartTask, options: StartOptions) -> Spline:
    first, *more = _degrees(task, options)
    fit_options = FitOptions(
        max_terms=options.max_terms, max_degree=first, penalty=options.penalty, threshold=options.threshold,
        threads=thread_count(options.n_jobs), spacing="free",
    )  # fmt: skip
    candidates = [_first_best(task, fit_options, options.ridge)]
    for degree in more:
        for features in _interacting(task, candidates[0][0]):
            pairs = replace(fit_options, max_degree=degree, interacting=features)
            candidates.append(_first_best(task, pairs, options.ridge))
    spline, _, ridge = min(candidates, key=lambda candidate: candidate[1])
    return spline if task.refit is None else _refitted(spline, replace(task, rows=task.refit), ridge)


def _refitted(spline: Spline, task: StartTask, ridge: float) -> Spline:
    """Fit the coefficients of a spline's terms to the task's rows."""
    if not spline.terms:
        return spline
    if isinstance(task.loss, Deviance):
        rows = task.rows
        units = term_units(spline.terms, rows.X, rows.weight, task.coordinates.x_scale, spline.limits)
        found = fit_coefficients(
            TermValues(spline.terms, rows.X, spline.limits), rows.y[:, 0], task.loss.loss, rows.weight,
            ridge * float(rows.weight.sum()), units, RESPONSE_TOLERANCE,
        )  # fmt: skip
        return replace(spline, intercept=found.intercept, coef=found.coef)
    if not isinstance(task.loss, LogLoss):
        return ridge_refits(spline, task, (ridge,))[0]
    rows, classes = task.rows, max(2, task.outputs)
    units = term_units(spline.terms, rows.X, rows.weight, task.coordinates.x_scale, spline.limits)
    values = TermValues(spline.terms, rows.X, spline.limits)
    logits = fit_logits(values, rows.y, classes, rows.weight, ridge, units, CLASS_TOLERANCE)
    fitted = replace(spline, intercept=logits.intercept, coef=logits.coef)
    return two_logits(fitted) if task.outputs == 2 else fitted


def _degrees(task: StartTask, options: StartOptions) -> tuple[int, ...]:
    """Return the degrees to choose from; each takes a hidden layer."""
    layers = len(task.widths)
    if not isinstance(options.max_degree, str):
        return (min(int(options.max_degree), layers),)
    # With many classes a search for interactions takes as long as a dozen epochs, and rarely finds any that last.
    many_classes = isinstance(task.loss, LogLoss) and task.outputs > 1
    pairs = task.held_out is not None and task.rows.weight.sum() >= MIN_PAIR_ROWS and not many_classes
    return (1, 2) if pairs and layers > 1 else (1,)


def _first_best(task: StartTask, options: FitOptions, ridge: float | str) -> tuple[Spline, float, float]:
    """Take splines of smaller and smaller ridges, or larger ones, while their held-out loss falls.

    Return the last that lowers it, its loss, and its ridge. Steep effects, of squared errors, get ridges smaller still.
    """
    best: tuple[Spline, float, float] | None = None
    ridges = ridges_of(task, ridge)
    for spline, own in zip(_splines(task, options, ridges), ridges, strict=False):
        cost = held_out_cost(spline, task)
        if best is not None and not cost < best[1]:
            break
        best = spline, cost, own
    assert best is not None
    if ridges != RIDGES or best[2] != RIDGES[0] or task.held_out is None or isinstance(task.loss, Deviance):
        return best
    return steeper(best, task, task.held_out)


def _splines(task: StartTask, options: FitOptions, ridges: Sequence[float]) -> Iterator[Spline]:
    """Fit a spline whose terms fit into the layers, with each ridge to choose from."""
    if isinstance(task.loss, LogLoss):
        return fit_classes_to_width(task, options, ridges)
    if isinstance(task.loss, Deviance):
        return fit_response_to_width(task, task.loss.loss, options, ridges)
    return iter(ridge_refits(fit_spline_to_width(task, options), task, ridges))


def _interacting(task: StartTask, spline: Spline) -> list[tuple[int, ...]]:
    """Return sets of features to search for interactions in, by what a spline without them leaves of its rows."""
    X, y, weight = task.rows.X, task.rows.y, task.rows.weight
    if isinstance(task.loss, LogLoss):
        p = expit(spline(X))  # of the second of two classes: with more there is no choice of a degree
        found = interacting_features(X, y - p, p * (1 - p), weight)
        # The test sees few kinds of interactions, so that those it finds are reason to look for others, if that is
        # cheap; but a search among all features may miss what one among these few finds.
        every = tuple(range(X.shape[1]))
        sets = [found, every] if len(every) <= MAX_SEARCHED and found != every else [found]
        return sets if found else []
    if isinstance(task.loss, Deviance):
        score, curvature = response.scores(spline(X).reshape(-1), y[:, 0], task.loss.loss, weight)
        features = interacting_features(X, score, curvature * (weight @ score**2 / (weight @ curvature)), weight)
        return [features] if features else []
    residuals = (y - spline(X).reshape(y.shape)) / task.coordinates.y_scale  # their squares exist in any unit
    variances = np.broadcast_to(weight @ np.square(residuals) / weight.sum(), residuals.shape)
    each = [interacting_features(X, *columns, weight) for columns in zip(residuals.T, variances.T, strict=True)]
    features = tuple(sorted({f for features in each for f in features}))
    return [features] if features else []


def fit_spline_to_width(task: StartTask, options: FitOptions) -> Spline:
    """Fit a spline with as many terms as the hidden layers can hold."""
    X = task.rows.X
    # In training every response counts the same, so it does in the search; a single one keeps its bits.
    scale = task.coordinates.y_scale if task.outputs > 1 else np.ones(1)
    y = task.rows.y / scale

    def fit(options: FitOptions) -> SplineFit:
        if options.max_degree != 1:
            options = replace(options, max_knots=PAIR_KNOTS)
        return fit_spline(X, y, weights=task.weights, names=task.names, options=options)

    spline = narrowed(fit, options, lambda degree: start_terms(len(X), X.shape[1], degree), task).spline
    return spline_with_outputs(spline, scale, np.zeros(task.outputs))


def fit_response_to_width(
    task: StartTask, loss: ResponseLoss, options: FitOptions, ridges: Sequence[float]
) -> Iterator[Spline]:
    """Fit a spline of the loss's link with as many terms as the hidden layers can hold: the same ones with each ridge.

    As in :func:`knotwork.spline.response.fit_response`, but the ridges are shares of the rows.
    """
    X, y, weight = task.rows.X, task.rows.y[:, 0], task.rows.weight
    total = float(weight.sum())

    def search(responses: Floats, weights: Floats | None) -> SplineFit:
        def fit(options: FitOptions) -> SplineFit:
            if options.max_degree != 1:
                options = replace(options, max_knots=PAIR_KNOTS)
            return fit_spline(X, responses, weights=weights, names=task.names, options=options)

        return narrowed(fit, options, lambda degree: start_terms(len(X), X.shape[1], degree), task)

    def fitted(found: SplineFit) -> Coefficients:
        return response.fit_terms(found, X, y, loss, weight, ridges[0] * total, RESPONSE_TOLERANCE)

    first = search(response.first_responses(y, loss, task.weights), task.weights)
    best = fitted(first)
    z, working = response.working_response(best.point.eta, y, loss, weight)
    second = search(z[:, None], working)
    other = fitted(second)
    if response.deviance_gcv(other, second) < response.deviance_gcv(best, first):
        first, best = second, other
    for ridge in ridges:
        best = best.refit(ridge * total, RESPONSE_TOLERANCE)
        yield replace(first.spline, intercept=best.intercept, coef=best.coef)


def start_terms(rows: int, features: int, degree: int) -> int:
    """Maximum number of terms of a start's search, with the intercept.

    As for a spline alone, but no more than a tenth of the rows, and fewer with interactions: training finds the rest,
    and sooner than the search would.

    >>> start_terms(200, 5, degree=1), start_terms(10_000, 5, degree=1), start_terms(10_000, 100, degree=2)
    (21, 21, 31)
    """
    max_terms = default_max_terms(features, degree) if degree == 1 else PAIR_TERMS
    return min(max_terms, max(MIN_TERMS, rows // 10 + 1))


def fit_classes_to_width(task: StartTask, options: FitOptions, ridges: Sequence[float]) -> Iterator[Spline]:
    """Fit logits with as many terms as the hidden layers can hold: the same ones with each ridge.

    A line in every feature is among them if there is room, so that the logits include those of a logistic regression.
    One output is the log-odds of the second of two classes; two outputs share them.
    """
    X, codes, classes = task.rows.X, task.rows.y, max(2, task.outputs)
    options = replace(options, max_knots=CLASS_KNOTS)
    if options.max_degree == 1 and options.penalty is None:
        options = replace(options, penalty=TWO_CLASS_PENALTY if classes == 2 else MORE_CLASS_PENALTY)

    def fit(options: FitOptions) -> SplineFit:
        return search_classes(X, codes, classes, weights=task.weights, names=task.names, options=options)

    rows_of = np.bincount(codes, minlength=classes).tolist()
    search = narrowed(fit, options, lambda degree: class_start_terms(rows_of, X.shape[1], degree), task)
    search = replace(search, spline=with_lines(search.spline, task))
    logits: LogitFit | None = None
    for ridge in ridges:
        if logits is None:
            # The ridges were chosen with interactions in units of their own stds.
            units = term_units(
                search.spline.terms, X, task.rows.weight, search.coordinates.x_scale, search.spline.limits
            )
            logits = fit_terms(
                search, X, codes, classes, weights=task.weights, ridge=ridge, tolerance=CLASS_TOLERANCE, units=units
            )
        else:
            logits = logits.refit(ridge, CLASS_TOLERANCE)
        spline = replace(search.spline, intercept=logits.intercept, coef=logits.coef)
        yield two_logits(spline) if task.outputs == 2 else spline


def two_logits(spline: Spline) -> Spline:
    """Write log-odds as two logits."""
    half = np.array([-0.5, 0.5])
    return replace(spline, intercept=half * spline.intercept, coef=spline.coef * half)


def class_start_terms(rows_of: Sequence[int], features: int, degree: int) -> int:
    """Maximum number of terms of a search for a start's logits, by the rows of each class.

    As for a spline alone, or twice as many with interactions or for more than two classes, which need not go by the
    same terms; but no more than a sixth of the rows outside the majority class: the search learns from those rows.

    >>> class_start_terms([100, 100], 5, degree=1), class_start_terms([500, 500], 64, degree=1)
    (21, 84)
    >>> class_start_terms([100] * 10, 64, degree=1), class_start_terms([9000, 100, 200], 64, degree=1)
    (151, 51)
    """
    times = 1 if degree == 1 and len(rows_of) == 2 else 2
    rows = sum(rows_of)
    return min(times * default_terms(rows, features, degree), max(MIN_TERMS, (rows - max(rows_of)) // 6 + 1))


def with_lines(spline: Spline, task: StartTask) -> Spline:
    """Add a line, of slope zero, in every feature that varies and has none, if the layers can hold them all."""
    X = task.rows.X
    there = {term.feature for term in spline.terms if isinstance(term, Linear)}
    lines = [Linear(int(f)) for f in np.flatnonzero(X.max(axis=0) > X.min(axis=0)) if f not in there]
    room = _room(task, max((len(term.features) for term in spline.terms), default=1))
    # A hinge and a line take a unit at least: no need to count where that is too many.
    if sum(isinstance(term, Hinge) for term in spline.terms) + len(lines) > room[0]:
        return spline
    coef = np.vstack([spline.coef, np.zeros((len(lines), spline.coef.shape[1]))])
    grown = replace(spline, terms=(*spline.terms, *lines), coef=coef)
    units = units_of(grown, task)
    return grown if all(need <= width for need, width in zip(units, room, strict=False)) else spline


def units_of(spline: Spline, task: StartTask) -> tuple[int, ...]:
    """Count the units of a spline in the coordinates of training: a hinge at zero and a line share units only there."""
    c = task.coordinates
    moved = in_coordinates(spline, Coordinates.of_features(c.x_centre, c.x_scale, spline.intercept.size))
    return count_units(moved, task.rule.module)


def _room(task: StartTask, degree: int) -> tuple[int, ...]:
    """Units that each of the first ``degree`` layers may hold.

    Layers behind them carry two units an output. Where one is too narrow for that, ReLU units are carried on instead,
    and it must hold all of those.
    """
    behind = min(task.widths[degree:], default=2 * task.outputs)
    if behind >= 2 * task.outputs:
        return task.widths[:degree]
    needed = 2 if isinstance(task.rule.module, nn.ReLU) else 2 * task.outputs
    if behind < needed:
        narrow = degree + task.widths[degree:].index(behind)
        raise NetworkError(
            f"hidden layer {narrow} needs a width of at least {needed} to carry the outputs, got {behind}"
        )
    return (*task.widths[: degree - 1], min(task.widths[degree - 1], behind))


def narrowed(
    fit: Callable[[FitOptions], SplineFit], options: FitOptions, default: Callable[[int], int], task: StartTask
) -> SplineFit:
    """Fit with fewer and fewer terms until the units suffice.

    A degree takes a hidden layer, so there are no more degrees than layers. Where a layer is too narrow for the terms
    of some degree, either fewer of them or a lower degree may be better; the generalised cross-validation decides.
    """
    assert not isinstance(options.max_degree, str)
    best: SplineFit | None = None
    for degree in range(min(options.max_degree, len(task.widths)), 0, -1):
        room = _room(task, degree)
        max_terms = min(room[0] + 1, options.max_terms or default(degree))
        narrowed = False
        while max_terms >= 2:
            found = fit(replace(options, max_terms=max_terms, max_degree=degree))
            # A term of k hinges takes no more than 2·k units of a layer (a linear one takes two).
            units = [2 * sum(len(term.features) for term in found.spline.terms)] * degree
            if max(units) > min(room):
                units = list(units_of(found.spline, task))
            excess = max(need - width for need, width in zip(units, room, strict=False))
            if excess <= 0:
                if best is None or found.quality.gcv < best.quality.gcv:
                    best = found
                break
            narrowed = True
            max_terms -= max(1, excess // (2 * len(units)))
        if not narrowed:
            break
    if best is None:
        raise NetworkError(f"hidden layers of {task.widths} units cannot hold any term; they need at least 2")
    return best
