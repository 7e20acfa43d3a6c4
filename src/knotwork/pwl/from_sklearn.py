"""scikit-learn models that are piecewise linear, as splines.

What is read off a model is checked against its own predictions, so that a model with a link function or an odd option
is refused rather than turned into something else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.isotonic import IsotonicRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import SplineTransformer
from sklearn.utils.validation import check_is_fitted

from knotwork.arrays import Floats
from knotwork.data.steps import Affine, Inputs, known_scaler
from knotwork.errors import DataError
from knotwork.pwl.interpolation import bends_spline, table_spline
from knotwork.pwl.through import spline_of_inputs
from knotwork.spline.model import Hinge, Linear, Spline

# Rows on which the spline is compared with the model, and how close it has to be, relative to the sizes of its parts.
CHECKED_ROWS, CLOSE = 64, 1e-6


def spline_of(model: Any) -> Spline:
    """Return the spline that a fitted scikit-learn model computes.

    Examples
    --------
    >>> from sklearn.isotonic import IsotonicRegression
    >>> x, y = np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.0, 1.0])
    >>> print(spline_of(IsotonicRegression().fit(x, y)))
    0
      + 1.5·h(x0 - 1)
      - 1.5·h(x0 - 2)
    """
    steps = [step for _, step in model.steps if step not in (None, "passthrough")] if _is(model, Pipeline) else [model]
    final = steps[-1]
    try:
        check_is_fitted(final)
    except (NotFittedError, TypeError):
        raise DataError(
            f"only a Spline or an estimator fitted to one becomes a network, got {type(final).__name__} that is not "
            f"fitted; fit it first"
        ) from None
    _refuse(final)
    before = steps[:-1]
    bends = [k for k, step in enumerate(before) if _is(step, SplineTransformer)]
    if len(bends) > 1:
        raise DataError(f"a pipeline may bend its features once, got {len(bends)} SplineTransformers; leave out one")
    if bends:
        after = before[bends[0] + 1 :]
        inner = _bent(before[bends[0]], after, final)
        before = before[: bends[0]]
    elif _is(final, IsotonicRegression):
        if before and _affine(before[-1]).factor.size != 1:
            raise DataError("an isotonic regression takes one feature, got a pipeline with more")
        inner = table_spline(*_thresholds(final), name="x0")
    else:
        inner = _linear(final)
    for step in reversed(before):
        inner = _through(inner, _affine(step))
    inner = Spline(inner.terms, inner.intercept, inner.coef, _names(model, len(inner.feature_names)))
    _check(model, inner)
    return inner


def _is(model: Any, kind: type) -> bool:
    return isinstance(model, kind)


# In the names of models that are not continuous.
JUMPING = ("Tree", "Forest", "Boosting", "Bagging", "AdaBoost", "Neighbors")


def _refuse(model: Any) -> None:
    """Refuse a model that is known not to be piecewise linear; name the nearest one that is."""
    kind = type(model).__name__
    members = getattr(model, "estimators_", None)
    if "Bagging" in kind and members and not any(word in type(members[0]).__name__ for word in JUMPING):
        raise DataError(
            f"the average of a {kind} is not converted, its members are: kw.to_network(member) for each member of "
            f"estimators_, or fit one model to what the {kind} predicts"
        )
    if any(word in kind for word in JUMPING):
        raise DataError(
            f"a {kind} jumps: it is not continuous, and no network of ReLU layers computes it exactly; "
            f"fit kw.MarsRegressor or kw.DCMaxAffineRegressor to the data, or to what the {kind} predicts"
        )
    if not is_regressor(model):
        raise DataError(
            f"the last step must be a regressor that is piecewise linear, got {kind}; use a linear model, "
            f"IsotonicRegression, or kw.MarsRegressor"
        )


def _linear(model: Any) -> Spline:
    if not hasattr(model, "coef_"):
        raise DataError(
            f"a {type(model).__name__} is not a linear model (it has no coef_) and need not be piecewise linear; "
            f"fit kw.MarsRegressor to what it predicts"
        )
    coef = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    intercept = np.broadcast_to(np.asarray(getattr(model, "intercept_", 0.0), dtype=np.float64), len(coef))
    terms = tuple(Linear(k) for k in range(coef.shape[1]))
    return Spline(terms, intercept, coef.T, tuple(f"x{k}" for k in range(coef.shape[1])))


def _thresholds(model: IsotonicRegression) -> tuple[Floats, Floats]:
    x, y = (np.asarray(v, dtype=np.float64) for v in (model.X_thresholds_, model.y_thresholds_))
    return x, y


def _affine(step: Any) -> Affine:
    """Return the numbers of a scaler: exact for the usual ones, for others read off what they do."""
    try:
        known = known_scaler(step)
    except AttributeError:  # it is not fitted
        known = None
    if known is not None:
        return known
    features = getattr(step, "n_features_in_", None)
    if features is None or not hasattr(step, "transform"):
        raise DataError(f"a pipeline may hold fitted scalers in front of its model, got {type(step).__name__}")
    try:
        probe = np.stack([np.zeros(features), np.ones(features), np.full(features, -2.0)])
        at = np.asarray(step.transform(_table(step, probe)), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise _no_scaler(step) from error
    if at.shape != probe.shape:
        raise _no_scaler(step)
    offset, scale = at[0], at[1] - at[0]
    if not np.allclose(at[2], offset - 2 * scale, rtol=1e-9, atol=1e-9 * np.abs(at).max()):
        raise _no_scaler(step)
    return Affine(np.zeros(features), scale, offset)


def _no_scaler(step: Any) -> DataError:
    return DataError(
        f"the steps in front of the model must scale and shift single features (StandardScaler, MinMaxScaler without "
        f"clip, MaxAbsScaler, RobustScaler) or be one SplineTransformer(degree=1), got {type(step).__name__}; apply it "
        f"to the table first"
    )


def _through(spline: Spline, affine: Affine) -> Spline:
    """Return g with g(x) = f((x − centre)·factor + offset)."""
    d = len(affine.factor)
    return spline_of_inputs(spline, Inputs(np.arange(d), affine, d), spline.feature_names)


def _bent(transformer: SplineTransformer, after: list[Any], final: Any) -> Spline:
    """Return the spline of a SplineTransformer of degree 1 with scalers and a linear model behind it."""
    if transformer.degree != 1:
        raise DataError(
            f"a SplineTransformer must have degree 1 to be piecewise linear, got {transformer.degree}; set degree=1"
        )
    if transformer.extrapolation == "periodic":
        raise DataError(
            "a periodic SplineTransformer has infinitely many knots; use extrapolation='linear' or 'constant'"
        )
    outer = _linear(final)
    for step in reversed(after):
        outer = _through(outer, _affine(step))
    d = transformer.n_features_in_
    knots = [_base_knots(transformer, f) for f in range(d)]
    middle = np.array([k[0] for k in knots])
    start = outer(_bases(transformer, middle[None])).reshape(1, -1)
    columns: list[tuple[int, Floats, Floats, Floats]] = []
    for f in range(d):
        inside = transformer.extrapolation == "error"
        t = knots[f]
        width = t[-1] - t[0]
        points = np.concatenate([[t[0] - (0 if inside else width)], t, [t[-1] + (0 if inside else width)]])
        rows = np.tile(middle, (len(points), 1))
        rows[:, f] = points
        values = outer(_bases(transformer, rows)).reshape(len(rows), -1)
        steps = np.diff(points)[:, None]
        slopes = np.divide(np.diff(values, axis=0), steps, out=np.zeros_like(values[1:]), where=steps > 0)
        if inside:  # it is defined between the outer knots only; the ends go on straight
            slopes[0], slopes[-1] = slopes[1], slopes[-2]
        if transformer.extrapolation == "constant":
            slopes[0] = slopes[-1] = 0.0
        columns.append((f, t, slopes, np.zeros(start.shape[1])))
    spline = bends_spline(columns, tuple(f"x{k}" for k in range(d)))
    return Spline(spline.terms, spline.intercept + start[0], spline.coef, spline.feature_names)


def _bases(transformer: SplineTransformer, rows: Floats) -> Floats:
    return np.asarray(transformer.transform(_table(transformer, rows)), dtype=np.float64)


def _table(step: Any, rows: Floats) -> Any:
    """Return rows with the names that a step was fitted with."""
    if not hasattr(step, "feature_names_in_"):
        return rows
    import pandas as pd

    return pd.DataFrame(rows, columns=step.feature_names_in_)


def _base_knots(transformer: SplineTransformer, feature: int) -> Floats:
    t = np.asarray(transformer.bsplines_[feature].t, dtype=np.float64)
    return np.unique(t[transformer.degree : len(t) - transformer.degree])


def _names(model: Any, d: int) -> tuple[str, ...]:
    names = getattr(model, "feature_names_in_", None)
    return tuple(f"x{k}" for k in range(d)) if names is None else tuple(str(n) for n in names)


def _check(model: Any, spline: Spline) -> None:
    """Refuse a model whose predictions the spline does not have."""
    d = len(spline.feature_names)
    knots: list[list[float]] = [[] for _ in range(d)]
    for term in spline.terms:
        if isinstance(term, Hinge):
            knots[term.feature].append(term.knot)
    # Between the knots: there the model is defined, whatever it does beyond them.
    low = np.array([min(k) if k else 0.0 for k in knots])
    high = np.array([max(k) if len(k) > 1 else (k[0] if k else 1.0) for k in knots])
    rows = np.random.default_rng(0).uniform(size=(CHECKED_ROWS, d)) * (high - low) + low
    expected = np.asarray(model.predict(_table(model, rows)), dtype=np.float64).reshape(CHECKED_ROWS, -1)
    found = spline(rows).reshape(CHECKED_ROWS, -1)
    size = np.abs(spline.intercept) + np.abs(spline.basis(rows)) @ np.abs(spline.coef)
    if expected.shape != found.shape or not (np.abs(expected - found) <= CLOSE * (size + np.abs(expected))).all():
        raise DataError(
            f"{type(model).__name__} does not predict what its coefficients say (a link function, a kernel?), "
            f"so it is not piecewise linear; fit kw.MarsRegressor to what it predicts"
        )
