"""Where a network begins: as a spline of the data, grown to the wanted shape, or at random.

A spline makes a good start when it is narrow enough for the network and has no large coefficients that cancel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.errors import NetworkError
from knotwork.network.activations import Activation
from knotwork.network.chain import Chain
from knotwork.network.compile.assemble import count_units, spline_chain
from knotwork.network.compile.convert import rescale_spline
from knotwork.network.reshape import reshape_chain
from knotwork.spline.fit import FitOptions, default_max_terms, fit_spline
from knotwork.spline.likelihood import default_terms, fit_terms, search_classes
from knotwork.spline.logits import LogitFit
from knotwork.spline.model import Hinge, Linear, Product, Spline
from knotwork.spline.result import SplineFit

# Ridges of a start's coefficients, in standardised units: the smaller one holds steep functions, the larger one noisy
# data. Rows that the fit has not seen can tell which; without them the smaller one is taken.
RIDGES = (1e-3, 1e-2)
# Ridges of logits, in the units of MarsClassifier, to be tried until rows that the fit has not seen say no; without
# such rows the second. More than a spline alone needs: training makes logits steeper where that pays, but takes long to
# flatten those that are too sure.
CLASS_RIDGES = (3.0, 1.0, 0.3, 0.1, 0.03)
# Knots of a feature that a search for logits chooses from: labels do not tell more of them apart.
CLASS_KNOTS = 63
# What a knot costs in the GCV of logits without interactions: more than usual for two classes, which lines, that cost
# nothing, often tell apart as well; nothing for more classes, because the ridge keeps terms too many from doing harm.
TWO_CLASS_PENALTY, MORE_CLASS_PENALTY = 6.0, 0.0
# Share of the log-loss that a step towards the best logits must promise: what is left of it, training finds on its way.
CLASS_SETTLED = 1e-2
# Least gain in R² for which the search goes on: a network has room for terms that add little.
THRESHOLD = 1e-4
# Terms that a search may always have, however few the rows.
LEAST_TERMS = 21
# Terms of a start with interactions, and knots of a feature to choose from: more of them cost more than they gain.
PAIR_TERMS, PAIR_KNOTS = 31, 31


def fit_spline_to_width(
    X: Floats,
    y: Floats,
    weights: Floats | None,
    names: Sequence[str],
    options: FitOptions,
    rule: Activation,
    widths: Sequence[int],
) -> Spline:
    """Fit a spline with as many terms as hidden layers of these widths can hold."""

    def fit(options: FitOptions) -> SplineFit:
        if options.max_degree != 1:
            options = replace(options, max_knots=PAIR_KNOTS)
        return fit_spline(X, y, weights=weights, names=names, options=options)

    return _narrowed(fit, options, lambda degree: start_terms(len(X), X.shape[1], degree), rule, widths).spline


def start_terms(rows: int, features: int, degree: int) -> int:
    """Most terms of a start's search, with the intercept.

    As for a spline alone, but no more than a tenth of the rows, and fewer with interactions: training finds the rest,
    and sooner than the search would.

    >>> start_terms(200, 5, degree=1), start_terms(10_000, 5, degree=1), start_terms(10_000, 100, degree=2)
    (21, 21, 31)
    """
    most = default_max_terms(features, degree) if degree == 1 else PAIR_TERMS
    return min(most, max(LEAST_TERMS, rows // 10 + 1))


def fit_classes_to_width(
    X: Floats,
    codes: NDArray[np.intp],
    classes: int,
    weights: Floats | None,
    names: Sequence[str],
    options: FitOptions,
    rule: Activation,
    widths: Sequence[int],
    ridges: Sequence[float],
) -> Iterator[Spline]:
    """Fit logits with as many terms as hidden layers of these widths can hold: the same ones with each ridge.

    A line in every feature is among them if there is room, so that the logits are those of a logistic regression at
    least.
    """
    options = replace(options, max_knots=CLASS_KNOTS)
    if options.max_degree == 1 and options.penalty is None:
        options = replace(options, penalty=TWO_CLASS_PENALTY if classes == 2 else MORE_CLASS_PENALTY)

    def fit(options: FitOptions) -> SplineFit:
        return search_classes(X, codes, classes, weights=weights, names=names, options=options)

    rows_of = np.bincount(codes, minlength=classes).tolist()
    search = _narrowed(fit, options, lambda degree: class_start_terms(rows_of, X.shape[1], degree), rule, widths)
    search = replace(search, spline=_with_lines(search.spline, X, rule, widths))
    logits: LogitFit | None = None
    for ridge in ridges:
        if logits is None:
            logits = fit_terms(search, X, codes, classes, weights=weights, ridge=ridge, settled=CLASS_SETTLED)
        else:
            logits = logits.refit(ridge, CLASS_SETTLED)
        yield replace(search.spline, intercept=logits.intercept, coef=logits.coef)


def class_start_terms(rows_of: Sequence[int], features: int, degree: int) -> int:
    """Most terms of a search for a start's logits, by the rows of each class.

    As for a spline alone, or twice as many with interactions or for more than two classes, which need not go by the
    same terms; but no more than a sixth of the rows outside the largest class: they are what there is to learn from.

    >>> class_start_terms([100, 100], 5, degree=1), class_start_terms([500, 500], 64, degree=1)
    (21, 84)
    >>> class_start_terms([100] * 10, 64, degree=1), class_start_terms([9000, 100, 200], 64, degree=1)
    (151, 51)
    """
    times = 1 if degree == 1 and len(rows_of) == 2 else 2
    rows = sum(rows_of)
    return min(times * default_terms(rows, features, degree), max(LEAST_TERMS, (rows - max(rows_of)) // 6 + 1))


def _with_lines(spline: Spline, X: Floats, rule: Activation, widths: Sequence[int]) -> Spline:
    """Add a line, of slope zero, in every feature that varies and has none, if the layers can hold them all."""
    there = {term.feature for term in spline.terms if isinstance(term, Linear)}
    lines = [Linear(int(f)) for f in np.flatnonzero(X.max(axis=0) > X.min(axis=0)) if f not in there]
    # A hinge and a line take a unit at least: no need to count where that is too many.
    if sum(isinstance(term, Hinge) for term in spline.terms) + len(lines) > widths[0]:
        return spline
    coef = np.vstack([spline.coef, np.zeros((len(lines), spline.coef.shape[1]))])
    grown = replace(spline, terms=(*spline.terms, *lines), coef=coef)
    units = count_units(grown, rule.module)
    return grown if all(need <= width for need, width in zip(units, widths, strict=False)) else spline


def _narrowed(
    fit: Callable[[FitOptions], SplineFit],
    options: FitOptions,
    default: Callable[[int], int],
    rule: Activation,
    widths: Sequence[int],
) -> SplineFit:
    """Fit with fewer and fewer terms until the units suffice.

    A degree takes a hidden layer, so there are no more degrees than layers. Where a layer is too narrow for the terms
    of some degree, either fewer of them or a lower degree may be better; the generalised cross-validation decides.
    """
    if isinstance(options.max_degree, str):
        raise NetworkError(f"a start for a given shape needs max_degree as a number, got {options.max_degree!r}")
    best: SplineFit | None = None
    for degree in range(min(options.max_degree, len(widths)), 0, -1):
        most = min(widths[0] + 1, options.max_terms or default(degree))
        narrowed = False
        while most >= 2:
            found = fit(replace(options, max_terms=most, max_degree=degree))
            # A term of k hinges takes no more than 2·k units of a layer (a linear one takes two).
            units = [2 * sum(len(term.features) for term in found.spline.terms)] * degree
            if max(units) > min(widths[:degree]):
                units = list(count_units(found.spline, rule.module))
            excess = max(need - width for need, width in zip(units, widths, strict=False))
            if excess <= 0:
                if best is None or found.quality.gcv < best.quality.gcv:
                    best = found
                break
            narrowed = True
            most -= max(1, excess // (2 * len(units)))
        if not narrowed:
            break
    if best is None:
        raise NetworkError(f"a first hidden layer of {widths[0]} units cannot hold any term; it needs at least 2")
    return best


def ridge_refits(
    spline: Spline, X: Floats, y: Floats, weight: Floats, ridges: Sequence[float], coordinates: Coordinates
) -> list[Spline]:
    """Fit the coefficients again with each ridge on them, in standardised units; knots and terms stay."""
    if not spline.terms or not any(ridges):
        return [spline] * len(ridges)
    c = coordinates
    # What a term is in standardised units: itself over the scale of its first feature, or of all of a product's.
    features = [t.features if isinstance(t, Product) else t.features[:1] for t in spline.terms]
    unit = np.array([prod(c.x_scale[f] for f in own) for own in features])
    basis = spline.basis(X) / unit
    share = weight / weight.sum()
    mean = share @ basis
    basis -= mean
    target = c.responses(y)
    weighted = basis * share[:, None]
    gram, products = weighted.T @ basis, weighted.T @ target

    def refit(ridge: float) -> Spline:
        if ridge == 0:
            return spline
        coef = np.linalg.solve(gram + ridge * np.eye(len(gram)), products)
        intercept = c.y_centre + c.y_scale * (share @ target - mean @ coef)
        return replace(spline, intercept=intercept, coef=coef * c.y_scale / unit[:, None])

    return [refit(ridge) for ridge in ridges]


def spline_start(
    spline: Spline,
    coordinates: Coordinates,
    X: Floats,
    widths: Sequence[int],
    rule: Activation,
    fill: str,
    rng: np.random.Generator,
) -> Chain:
    """Write a spline as a network of the wanted shape, in standardised coordinates; X (N, d) places the new units."""
    c = coordinates
    inner = rescale_spline(spline, c.x_centre, c.x_scale, c.y_centre, c.y_scale)
    Z = c.features(X)
    chain = spline_chain(inner, rule, box=(Z.min(axis=0), Z.max(axis=0)))
    return reshape_chain(chain, widths, fill=fill, X=Z, rng=rng)


def kaiming(inputs: int, widths: tuple[int, ...], outputs: int, rule: Activation, seed: int) -> nn.Sequential:
    """Return the network from Kaiming's initialisation, in standardised coordinates."""
    modules: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):  # the CPU alone: a forked process must not touch the GPU
        torch.manual_seed(seed)
        for width in widths:
            layer = nn.Linear(inputs, width, dtype=torch.float64)
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
            modules += [layer, rule.new_module()]
            inputs = width
        modules.append(nn.Linear(inputs, outputs, dtype=torch.float64))
    return nn.Sequential(*modules)
