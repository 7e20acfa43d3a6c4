"""What MarsRegressor and MarsClassifier share: parameters, the basis, the record of the fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from sklearn.utils._param_validation import Interval, Options, StrOptions
from sklearn.utils.validation import check_is_fitted

from knotwork.arrays import Floats
from knotwork.compute.workers import thread_count
from knotwork.data.limits import Limits
from knotwork.data.table import TableEncoder
from knotwork.estimators.base import MISSING, Estimator
from knotwork.estimators.inputs import read_table
from knotwork.spline.fit import MAX_PARENTS, FitOptions
from knotwork.spline.likelihood import ClassFit
from knotwork.spline.model import Spline
from knotwork.spline.result import Knot, SplineFit


class MarsBase(TransformerMixin, Estimator):
    """A fitted spline behind a scikit-learn face; subclasses set ``fit_`` and ``encoder_``."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_terms": [Interval(Integral, 2, None, closed="left"), None],
        "max_degree": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "penalty": [Interval(Real, 0, None, closed="left"), Options(Real, {-1}), None],
        "threshold": [Interval(Real, 0, 1, closed="left")],
        "minspan": [Interval(Integral, 1, None, closed="left"), None],
        "endspan": [Interval(Integral, 1, None, closed="left"), None],
        "max_knots": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"}), None],
        "interaction": [StrOptions({"min", "product"})],
        "compat": [StrOptions({"earth"}), None],
        "backend": [StrOptions({"auto", "cpu", "torch"})],
        "n_jobs": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Integral, None, -1, closed="right"),
            None,
        ],
        "verbose": ["verbose"],
        "interacting": ["array-like", None],
        "max_parents": [Interval(Integral, 1, None, closed="left")],
        "missing": MISSING,
        "extrapolate": [StrOptions({"clip", "linear"}), None],
    }

    def __init__(
        self,
        max_terms: int | None = None,
        max_degree: int | str = 1,
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
        interacting: Sequence[str | int] | None = None,
        max_parents: int = MAX_PARENTS,
        missing: str = "indicator",
        extrapolate: str | None = None,
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
        self.interacting = interacting
        self.max_parents = max_parents
        self.missing = missing
        self.extrapolate = extrapolate

    def _options(self, encoder: TableEncoder) -> FitOptions:
        if self.compat == "earth" and self.max_degree != 1:
            raise ValueError(
                f"compat='earth' holds for max_degree=1, got {self.max_degree!r}; leave compat out, "
                f"interaction='product' fits the same kind of model"
            )
        if self.compat == "earth" and self.extrapolate == "clip":
            raise ValueError(
                "compat='earth' goes on linearly beyond the training rows, as earth does, got extrapolate='clip'; "
                "leave one of the two out"
            )
        return FitOptions(
            max_terms=self.max_terms,
            max_degree=self.max_degree,
            interaction=self.interaction,
            interacting=None if self.interacting is None else interacting_features(self.interacting, encoder),
            max_parents=self.max_parents,
            penalty=self.penalty,
            threshold=self.threshold,
            minspan=self.minspan,
            endspan=self.endspan,
            max_knots=self.max_knots,
            compat=self.compat,
            extrapolate=self.extrapolate or ("clip" if self.compat is None else "linear"),
            threads=thread_count(self.n_jobs),
        )

    def _summarise(self) -> str:
        raise NotImplementedError

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
        return self._summarise()

    @property
    def spline_(self) -> Spline:
        """The fitted spline."""
        return self._fitted.spline

    @property
    def limits_(self) -> Limits | None:
        """Range of the encoded features as they were fitted; None in models that earlier versions saved."""
        return self._search.limits

    @property
    def knots_(self) -> tuple[Knot, ...]:
        """The knots of the spline, each with the training rows whose value it is."""
        return self._fitted.knots

    @property
    def gcv_(self) -> float:
        """Generalised cross-validation error."""
        return self._search.quality.gcv

    @property
    def grsq_(self) -> float:
        """1 − GCV/GCV of the intercept alone."""
        return self._search.quality.grsq

    @property
    def rss_(self) -> float:
        """Residual sum of squares."""
        return self._search.quality.rss

    @property
    def rsq_(self) -> float:
        """1 − RSS/RSS of the intercept alone."""
        return self._search.quality.rsq

    @property
    def feature_importances_(self) -> Floats:
        """Rise in error without any term of a column, the rest fitted again, scaled to sum 1: (d,)."""
        found = self._fitted.feature_costs
        costs = np.zeros(len(self.encoder_.columns))
        np.add.at(costs, list(self.encoder_.source), found)
        return costs / costs.sum() if costs.sum() > 0 else costs

    @property
    def _fitted(self) -> SplineFit | ClassFit:
        if not hasattr(self, "fit_"):
            raise AttributeError("this model has no spline yet; call fit(X, y) first")
        return self.fit_

    @property
    def _search(self) -> SplineFit:
        """The least-squares fit that found the terms."""
        fit = self._fitted
        return fit.search if isinstance(fit, ClassFit) else fit


def interacting_features(columns: Sequence[str | int], encoder: TableEncoder) -> tuple[int, ...]:
    """Return the encoded features of some columns, given by name or by number."""
    known = [column.name for column in encoder.columns]
    places: list[int] = []
    for column in columns:
        place = column if not isinstance(column, str) else known.index(column) if column in known else -1
        if not isinstance(place, Integral) or not 0 <= place < len(known):
            raise ValueError(
                f"interacting must hold columns of X, by name or by number from 0 to {len(known) - 1}, got {column!r}"
            )
        places.append(place)
    return tuple(f for f, source in enumerate(encoder.source) if source in places)


def at_rows(fit: SplineFit, kept: NDArray[np.intp] | None) -> SplineFit:
    """Let a fit to some of the rows name its knots' rows by their numbers in the whole table."""
    if kept is None:
        return fit
    return replace(fit, knots=tuple(replace(knot, rows=kept[knot.rows]) for knot in fit.knots))
