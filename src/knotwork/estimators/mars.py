"""MarsRegressor: the spline engine as a scikit-learn estimator."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, TransformerMixin, _fit_context
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.validation import check_is_fitted

from knotwork.estimators.inputs import (
    read_response,
    read_table,
    read_training_table,
    read_weights,
    unchanged_on_failure,
)
from knotwork.estimators.summary import summarise
from knotwork.progress import forward_progress
from knotwork.spline.fit import FitOptions, Knot, SplineFit, fit_spline
from knotwork.spline.model import Floats, Spline
from knotwork.spline.workers import thread_count


class MarsRegressor(MultiOutputMixin, RegressorMixin, TransformerMixin, BaseEstimator):
    """Multivariate adaptive regression splines of first order, one histogram pass per basis function.

    f(x) = intercept + Σ β_m·h_m(x) with hinges h(u) = max(0, u) of single features: knots are chosen greedily
    among the data values, then terms are pruned by generalised cross-validation (GCV).

    Parameters
    ----------
    max_terms : int, default None
        Most terms of the forward pass, the intercept included; None is min(200, max(20, 2·features)) + 1.
    max_degree : 1
        Degree of interaction. Interactions are not available yet.
    penalty : float, default None
        Charge per knot in GCV; None is 2. A penalty of 0 charges for terms only, −1 for nothing.
    threshold : float, default 1e-3
        The forward pass stops when a step would raise R² by less than this.
    minspan, endspan : int, default None
        Least number of observations between two knots, and between a knot and the ends of the data; None is
        Friedman's rule.
    max_knots : int, "auto" or None, default "auto"
        Most candidate knots per feature, spread evenly over the ranks of those the spans allow. "auto" is 255,
        which at small N is all of them; None is all of them always.
    interaction : "min"
        How terms of higher degree will combine hinges.
    compat : "earth" or None, default None
        "earth" follows the rules of R's earth 5.3.2 (with fast.k=0) term for term.
    backend : "auto" or "cpu"
        Where the sums are computed.
    n_jobs : int, default None
        Threads; None and -1 are all cores. The result does not depend on it.
    verbose : int, default 0
        1 shows the progress of the forward pass.

    Attributes
    ----------
    spline_ : Spline, of the encoded features
    gcv_, grsq_, rss_, rsq_ : float, summed over the responses
    feature_importances_ : (n_features_in_,) rise in RSS without the feature, scaled to sum 1
    knots_ : tuple of Knot, the knots of ``spline_`` with the training rows that carry their values
    encoder_ : TableEncoder, from the table to the columns of ``spline_``
    fit_ : SplineFit, the whole record

    Notes
    -----
    A weight counts like that many rows: GCV and the spans use Σw as the number of observations, so weights should
    have a mean near one. Only the knot choice of tables above 65 536 rows, which looks at a sample, may tell
    them apart.

    Examples
    --------
    >>> import knotwork as kw
    >>> X, y = kw.datasets.load_abalone()
    >>> model = kw.MarsRegressor().fit(X, y)
    >>> round(model.score(X, y), 2)
    0.57
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_terms": [Interval(Integral, 2, None, closed="left"), None],
        "max_degree": [Options(Integral, {1})],
        "penalty": [Interval(Real, 0, None, closed="left"), Options(Real, {-1}), None],
        "threshold": [Interval(Real, 0, 1, closed="left")],
        "minspan": [Interval(Integral, 1, None, closed="left"), None],
        "endspan": [Interval(Integral, 1, None, closed="left"), None],
        "max_knots": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"}), None],
        "interaction": [StrOptions({"min"})],
        "compat": [StrOptions({"earth"}), None],
        "backend": [StrOptions({"auto", "cpu"})],
        "n_jobs": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Integral, None, -1, closed="right"),
            None,
        ],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        max_terms: int | None = None,
        max_degree: int = 1,
        penalty: float | None = None,
        threshold: float = 1e-3,
        minspan: int | None = None,
        endspan: int | None = None,
        max_knots: int | str | None = "auto",
        interaction: str = "min",
        compat: str | None = None,
        backend: str = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.max_terms = max_terms
        self.max_degree = max_degree
        self.penalty = penalty
        self.threshold = threshold
        self.minspan = minspan
        self.endspan = endspan
        self.max_knots = max_knots
        self.interaction = interaction
        self.compat = compat
        self.backend = backend
        self.n_jobs = n_jobs
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the spline: X (N, d) table or array, y (N,) or (N, p), weights (N,) not negative."""
        with unchanged_on_failure(self):
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        matrix, encoder = read_training_table(self, X)
        response = read_response(y, len(matrix))
        weights, kept = None, None
        if sample_weight is not None:
            weights, kept = read_weights(sample_weight, matrix)
            matrix, response, weights = matrix[kept], response[kept], weights[kept]
        options = FitOptions(
            max_terms=self.max_terms,
            penalty=self.penalty,
            threshold=self.threshold,
            minspan=self.minspan,
            endspan=self.endspan,
            max_knots=self.max_knots,
            compat=self.compat,
            threads=thread_count(self.n_jobs),
        )
        with forward_progress(bool(self.verbose)) as report:
            fitted = fit_spline(
                matrix,
                response.reshape(len(response), -1),
                weights=weights,
                names=encoder.feature_names,
                options=options,
                report=report,
            )
        if kept is not None:
            knots = tuple(replace(knot, rows=kept[knot.rows]) for knot in fitted.knots)
            fitted = replace(fitted, knots=knots)
        self.fit_ = fitted
        self.encoder_ = encoder
        self._flat_output = response.ndim == 1

    def predict(self, X: Any) -> Floats:
        """Evaluate the spline: (N, d) → (N,) or (N, p), as y was."""
        matrix = read_table(self, X)
        values = self.spline_(matrix)
        return values if self._flat_output else values.reshape(len(values), -1)

    def transform(self, X: Any) -> Floats:
        """Return the basis functions as columns: (N, d) → (N, terms), without the intercept."""
        matrix = read_table(self, X)
        return self.spline_.basis(matrix)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Names of the basis functions, in the order of :meth:`transform`'s columns."""
        check_is_fitted(self)
        names = self.encoder_.feature_names
        return np.array([term.describe(names) for term in self.spline_.terms], dtype=object)

    def summary(self) -> str:
        """Return the terms, coefficients and quality of the fit as text."""
        check_is_fitted(self)
        return summarise(self.fit_)

    @property
    def spline_(self) -> Spline:
        """The fitted spline."""
        return self._fitted.spline

    @property
    def knots_(self) -> tuple[Knot, ...]:
        """The knots of the spline, each with the training rows whose value it is."""
        return self._fitted.knots

    @property
    def gcv_(self) -> float:
        """Generalised cross-validation error."""
        return self._fitted.gcv

    @property
    def grsq_(self) -> float:
        """1 − GCV/GCV of the intercept alone."""
        return self._fitted.grsq

    @property
    def rss_(self) -> float:
        """Residual sum of squares."""
        return self._fitted.rss

    @property
    def rsq_(self) -> float:
        """1 − RSS/RSS of the intercept alone."""
        return self._fitted.rsq

    @property
    def feature_importances_(self) -> Floats:
        """Rise in RSS when all terms of a column are left out and the rest is fitted again, scaled to sum 1: (d,)."""
        costs = np.zeros(len(self.encoder_.columns))
        np.add.at(costs, list(self.encoder_.source), self._fitted.feature_costs)
        return costs / costs.sum() if costs.sum() > 0 else costs

    @property
    def _fitted(self) -> SplineFit:
        if not hasattr(self, "fit_"):
            raise AttributeError("this model has no spline yet; call fit(X, y) first")
        return self.fit_
