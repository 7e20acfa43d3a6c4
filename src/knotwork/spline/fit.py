"""The whole fit on one page: standardise → knots → sums → forward → prune → refit → Spline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.spline.forward import Step, forward
from knotwork.spline.knots import Spans, choose_candidates, default_spans
from knotwork.spline.model import Floats, Hinge, Linear, Spline, Term
from knotwork.spline.moments.cpu import CpuRows
from knotwork.spline.moments.moments import TermTable
from knotwork.spline.prune import prune
from knotwork.spline.refit import Refit, feature_costs, refit, term_costs
from knotwork.spline.rules import EARTH, OWN, gcv
from knotwork.spline.scaling import Scaling, standardise, standardise_response
from knotwork.spline.workers import Workers

# Knots per feature when there are more to choose from: with the feature itself, 256 bins to a one-byte code.
AUTO_KNOTS = 255


@dataclass(frozen=True)
class FitOptions:
    """What a user may set; None asks for the default that depends on the data."""

    max_terms: int | None = None
    penalty: float | None = None
    threshold: float = 1e-3
    minspan: int | None = None
    endspan: int | None = None
    max_knots: int | None | str = "auto"
    compat: str | None = None
    threads: int = 1


@dataclass(frozen=True)
class SplineFit:
    """A fitted spline and how it came about.

    spline : the pruned spline, in the units of the data
    forward_terms : all terms of the forward pass, in order
    selected : which of them the spline kept, (M,)
    rss, gcv, rsq, grsq : of the spline, summed over responses
    term_costs : (M,) rise in RSS without each term
    feature_costs : (d,) rise in RSS without any term of each feature
    steps, stopped : the forward pass, step by step, and why it ended
    path_rss, path_gcv : (sizes,) of the best subset of each size, the intercept alone first
    """

    spline: Spline
    forward_terms: tuple[Term, ...]
    selected: NDArray[np.intp]
    rss: float
    gcv: float
    rsq: float
    grsq: float
    term_costs: Floats
    feature_costs: Floats
    steps: tuple[Step, ...]
    stopped: str
    path_rss: Floats
    path_gcv: Floats
    spans: Spans
    penalty: float
    total: float


def fit_spline(
    X: NDArray[np.floating],
    y: Floats,
    *,
    weights: Floats | None = None,
    names: Sequence[str] | None = None,
    options: FitOptions | None = None,
    report: Callable[[Step], None] | None = None,
) -> SplineFit:
    """Fit a first-order spline to finite data: X (N, d), y (N, p), weights (N,) all positive.

    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> fit = fit_spline(x, np.abs(x), names=["x"])
    >>> print(fit.spline)
    0.00502513
      + 1·h(x - 0.00502513)
      + 1·h(0.00502513 - x)
    """
    options = options or FitOptions()
    rules = EARTH if options.compat == "earth" else OWN
    names = list(names) if names is not None else [f"x{f}" for f in range(X.shape[1])]
    penalty = 2.0 if options.penalty is None else float(options.penalty)
    total = float(len(X)) if weights is None else float(weights.sum())
    spans = default_spans(total, X.shape[1], options.minspan, options.endspan)
    max_terms = options.max_terms or min(200, max(20, 2 * X.shape[1])) + 1
    max_knots = options.max_knots if isinstance(options.max_knots, int) else AUTO_KNOTS
    if options.max_knots is None or (rules.free_knots and options.max_knots == "auto"):
        max_knots = None

    with Workers(options.threads) as workers:
        columns, x_scaling = standardise(X, workers)
        responses, y_scaling = standardise_response(y, weights)
        grid = choose_candidates(columns, weights, spans, max_knots, workers)
        rows = CpuRows(columns, responses, weights, grid, workers)
        path = forward(
            rows, max_terms=max_terms, penalty=penalty, threshold=options.threshold, rules=rules, report=report
        )
        prefixes = rules.prefixes if len(responses) == 1 else rules.prefixes_many
        pruned = prune(path, penalty=penalty, prefixes=prefixes)
        chosen = pruned.subsets[pruned.best]
        fitted = refit(rows, path, chosen)

    unit = float(y_scaling.scale[0]) ** -2  # of squares of the response
    rss, null_rss = float(fitted.rss.sum()), path.null_rss
    score, null_score = gcv(rss, total, len(chosen), penalty), gcv(null_rss, total, 1, penalty)
    forward_terms = _terms_in_data_units(path.terms, x_scaling)
    return SplineFit(
        spline=_spline(fitted, [forward_terms[m - 1] for m in chosen[1:]], names, x_scaling, y_scaling),
        forward_terms=forward_terms,
        selected=chosen[1:] - 1,
        rss=rss * unit,
        gcv=score * unit,
        # A constant response leaves nothing to explain.
        rsq=1 - rss / null_rss if null_rss > 0 else 0.0,
        grsq=1 - score / null_score if null_rss > 0 else 0.0,
        term_costs=term_costs(fitted) * unit,
        feature_costs=feature_costs(fitted, X.shape[1]) * unit,
        steps=tuple(Step(s.terms, s.rss * unit, s.rsq, s.grsq) for s in path.steps),
        stopped=path.stopped,
        path_rss=pruned.rss * unit,
        path_gcv=pruned.gcv * unit,
        spans=spans,
        penalty=penalty,
        total=total,
    )


def _terms_in_data_units(terms: TermTable, scaling: Scaling) -> tuple[Term, ...]:
    out: list[Term] = []
    for f, knot, sign in zip(terms.feature.tolist(), terms.knot.tolist(), terms.sign.tolist(), strict=True):
        if sign == 0:
            out.append(Linear(f))
        else:
            out.append(Hinge(f, float((knot + scaling.centre[f]) / scaling.scale[f]), sign))
    return tuple(out)


def _spline(
    fitted: Refit, terms: Sequence[Term], names: Sequence[str], x_scaling: Scaling, y_scaling: Scaling
) -> Spline:
    """Undo the scaling: a hinge of z is a hinge of x times the scale, a linear term moves the intercept too."""
    feature = fitted.terms.feature
    linear = fitted.terms.sign == 0
    intercept = fitted.intercept - (x_scaling.centre[feature] * linear) @ fitted.coef + y_scaling.centre
    return Spline(
        terms=tuple(terms),
        intercept=intercept / y_scaling.scale[0],
        coef=fitted.coef * x_scaling.scale[feature][:, None] / y_scaling.scale[0],
        feature_names=tuple(names),
    )
