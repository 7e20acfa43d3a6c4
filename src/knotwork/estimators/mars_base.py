"""What MarsRegressor and MarsClassifier share: parameters, the basis, the record of the fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import TransformerMixin
from sklearn.utils import estimator_html_repr
from sklearn.utils._param_validation import HasMethods, Interval, Options, StrOptions
from sklearn.utils.validation import check_is_fitted

from knotwork.arrays import Floats, read_numbers
from knotwork.compute.workers import thread_count
from knotwork.data.columns.number import Number
from knotwork.data.limits import Limits
from knotwork.data.table import TableEncoder
from knotwork.errors import DataError
from knotwork.estimators.base import MISSING, Estimator, checks_parameters
from knotwork.estimators.folds import ATTRIBUTES, require_no_groups
from knotwork.estimators.inputs import read_table
from knotwork.estimators.monotone import monotone_features
from knotwork.spline.fit import MAX_PARENTS, FitOptions
from knotwork.spline.likelihood import ClassFit
from knotwork.spline.model import Spline
from knotwork.spline.monotone import MonotoneCertificate, certify
from knotwork.spline.path import PathModel, path_models
from knotwork.spline.response import ResponseFit
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
        "cv": [
            Interval(Integral, 2, None, closed="left"),
            HasMethods(["split", "get_n_splits"]),
            HasMethods("__iter__"),
            None,
        ],
        "monotonic_cst": ["array-like", dict, None],
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
        cv: Any = None,
        monotonic_cst: ArrayLike | Mapping[str, int] | None = None,
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
        self.cv = cv
        self.monotonic_cst = monotonic_cst

    @checks_parameters
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: ArrayLike | None = None) -> Self:
        """Fit to a table or an array, or to rows that are larger than memory.

        Parameters
        ----------
        X : (N, d) data frame of any library, or array. Also a Parquet file or folder (str or Path), a
            ``pyarrow.dataset.Dataset``, a Dask array or data frame, :class:`~knotwork.Batches`, or anything that yields
            (X, y) or (X, y, sample_weight) each time it is iterated over: these are read in parts, see the guide on
            scale
        y : (N,) or (N, p) numbers for a regressor; (N,) labels of any kind for a classifier. The name of a column, or
            a list of names, if X is Parquet; a Dask array or series if X is one; left out if X yields it
        sample_weight : (N,) not negative; a row of weight zero counts like one that is not there. Given as y is
        groups : (N,) a label for each row, for the splitter that ``cv`` is

        Returns
        -------
        The estimator. If the fit fails, it is as it was before.

        Examples
        --------
        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> kw.MarsRegressor(max_terms=3).fit(X, y)
        MarsRegressor(max_terms=3)
        """
        with self._unchanged_on_failure():
            for name in ATTRIBUTES:  # of an earlier fit
                self.__dict__.pop(name, None)
            if self.cv is None:
                require_no_groups(groups)
            self._fit(X, y, sample_weight, groups)
        return self

    def _fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None = None) -> None:
        raise NotImplementedError

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
        signs = monotone_features(self.monotonic_cst, encoder)
        if signs is not None and self.compat == "earth":
            raise ValueError("compat='earth' has no monotone effects, got monotonic_cst; leave one of the two out")
        if signs is not None and self.cv is not None:
            raise ValueError("monotonic_cst leaves the size to GCV, got cv too; leave one of the two out")
        if signs is not None and self.interaction == "product":
            raise ValueError(
                "monotonic_cst holds for minima of hinges, got interaction='product'; choose interaction='min'"
            )
        return FitOptions(
            monotone=signs,
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
        """Return the basis functions as columns: (N, d) → (N, terms), without the intercept.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> model.transform(X).shape, len(model.spline_.terms)
        ((1599, 14), 14)
        """
        matrix = read_table(self, X)
        return self.spline_.basis(matrix)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Names of the basis functions, in the order of :meth:`transform`'s columns.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> model.get_feature_names_out()[:2].tolist()
        ['h(alcohol - 12.5)', 'h(12.5 - alcohol)']
        """
        check_is_fitted(self)
        names = self.encoder_.feature_names
        return np.array([term.describe(names) for term in self.spline_.terms], dtype=object)

    def summary(self) -> str:
        """Return the terms, coefficients and quality of the fit as text.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> print(model.summary().splitlines()[0])
        term                            knot  coefficient  RSS without it
        """
        check_is_fitted(self)
        return self._summarise()

    def _repr_latex_(self) -> str | None:
        return self.spline_._repr_latex_() if hasattr(self, "fit_") else None

    def _html_repr(self) -> str:
        """Return scikit-learn's picture of an estimator in a notebook, and the formula behind it once there is one."""
        picture: str = estimator_html_repr(self)
        return f"{picture}{self.spline_._repr_html_()}" if hasattr(self, "fit_") else picture

    def _require_free(self, what: str) -> None:
        if self.monotonic_cst is not None:
            raise DataError(f"{what}, which monotonic_cst does not hold for; fit without it")

    def certify_monotone(self) -> MonotoneCertificate:
        """Check that the fitted spline is monotone as ``monotonic_cst`` asks, on the whole line.

        Returns
        -------
        A certificate, true if it holds: for each column the minimum of its slopes over all pieces, computed without
        rounding, and of the coefficients of its interactions. The work is that of sorting the knots.

        Examples
        --------
        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor(monotonic_cst={"alcohol": 1}).fit(X, y)
        >>> bool(model.certify_monotone())
        True
        """
        check_is_fitted(self)
        signs = monotone_features(self.monotonic_cst, self.encoder_)
        if signs is None:
            raise ValueError(
                f"certify_monotone checks what monotonic_cst asks for, got monotonic_cst={self.monotonic_cst!r}; name "
                f"the columns, monotonic_cst={{'age': 1}}"
            )
        return certify(self.spline_, signs)

    @property
    def spline_(self) -> Spline:
        """The fitted spline.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> print(str(model.spline_).splitlines()[1])
          - 0.412·h(alcohol - 12.5)
        """
        return self._fitted.spline

    @property
    def limits_(self) -> Limits | None:
        """Range of the encoded features as they were fitted; None in models that earlier versions saved.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> float(model.limits_.lower[0]), float(X.iloc[:, 0].min())
        (4.6, 4.6)
        """
        return self._search.limits

    @property
    def knots_(self) -> tuple[Knot, ...]:
        """The knots of the spline, each with the training rows whose value it is.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> knot = model.knots_[0]
        >>> bool((X.iloc[knot.rows, knot.feature] == knot.value).all())
        True
        """
        return self._fitted.knots

    @property
    def gcv_(self) -> float:
        """Generalised cross-validation error.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> model.gcv_ > model.rss_ / len(X)
        True
        """
        return self._search.quality.gcv

    @property
    def grsq_(self) -> float:
        """1 − GCV/GCV of the intercept alone.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> 0 < model.grsq_ < model.rsq_
        True
        """
        return self._search.quality.grsq

    @property
    def rss_(self) -> float:
        """Residual sum of squares.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> bool(abs(model.rss_ - ((y - model.predict(X)) ** 2).sum()) < 1e-6)
        True
        """
        return self._search.quality.rss

    @property
    def rsq_(self) -> float:
        """1 − RSS/RSS of the intercept alone.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> round(model.rsq_, 3) == round(model.score(X, y), 3)
        True
        """
        return self._search.quality.rsq

    @property
    def feature_importances_(self) -> Floats:
        """Rise in error without any term of a column, the rest fitted again, scaled to sum 1: (d,).

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> X.columns[model.feature_importances_.argmax()]
        'alcohol'
        """
        found = self._fitted.feature_costs
        costs = np.zeros(len(self.encoder_.columns))
        np.add.at(costs, list(self.encoder_.source), found)
        return costs / costs.sum() if costs.sum() > 0 else costs

    @property
    def path_(self) -> tuple[PathModel, ...]:
        """The models of every size, from the intercept alone to all terms of the forward pass.

        Each has ``terms`` (their number), ``rss``, ``gcv``, ``held_out`` (the mean error of the rows held out, with
        ``cv``) and ``spline``: computed from the sums of the search when asked for. Classifiers, and other
        losses than squared errors, have a ``spline`` of the chosen size only: others' coefficients follow from rows.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> best = min(model.path_, key=lambda size: size.gcv)
        >>> best.terms == len(model.spline_.terms) + 1
        True
        """
        fit = self._fitted
        self._require_free("path_ has models of every size")
        held: dict[int, float] = {}
        if hasattr(self, "cv_results_"):
            found = self.cv_results_
            degree = found["degree"][np.argmin(found["mean_error"])]
            held = {
                int(size): float(error)
                for size, error, own in zip(found["size"], found["mean_error"], found["degree"], strict=True)
                if own == degree
            }
        return path_models(self._search, held, None if isinstance(fit, SplineFit) else fit.spline)

    def plot_path(self, ax: Any = None) -> Any:
        """Draw GCV, and the error of held-out rows with ``cv``, by the number of terms; return matplotlib's axes.

        A line marks the chosen size. Both are shares of the error of the intercept alone.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> axes = model.plot_path()  # needs matplotlib
        """
        from knotwork.explanation.plots import plot_path

        return plot_path(self.path_, len(self._search.spline.terms) + 1, ax)

    @property
    def _fitted(self) -> SplineFit | ClassFit | ResponseFit:
        if not hasattr(self, "fit_"):
            raise AttributeError("this model has no spline yet; call fit(X, y) first")
        return self.fit_

    @property
    def _search(self) -> SplineFit:
        """The least-squares fit that found the terms."""
        fit = self._fitted
        return fit if isinstance(fit, SplineFit) else fit.search


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


def given_knots(
    knots: Mapping[str, ArrayLike] | Sequence[ArrayLike | None], encoder: TableEncoder
) -> tuple[Floats | None, ...]:
    """Return the knots of each encoded feature, rising and each once; None for those that are to be chosen."""
    names = [column.name for column in encoder.columns]
    if isinstance(knots, Mapping):
        unknown = [name for name in knots if name not in names]
        if unknown:
            raise DataError(f"knots must be those of columns of X, got {unknown[0]!r}; there are {', '.join(names)}")
        entries = [knots.get(name) for name in names]
    else:
        entries = list(knots)
        if len(entries) != len(names):
            raise DataError(
                f"knots must have an entry for each of {len(names)} columns, None where they are to be chosen, got "
                f"{len(entries)}"
            )
    found: list[Floats | None] = [None] * len(encoder.feature_names)
    for k, (name, entry) in enumerate(zip(names, entries, strict=True)):
        if entry is None:
            continue
        values = read_numbers(entry, f"knots of {name!r}")
        if values.ndim != 1 or not np.isfinite(values).all():
            raise DataError(f"the knots of a column must be finite numbers in one dimension, those of {name!r} are not")
        if not isinstance(encoder.columns[k], Number):
            raise DataError(f"knots are for columns of numbers, column {name!r} is none; leave its knots out")
        found[encoder.source.index(k)] = np.unique(values.astype(np.float64))
    return tuple(found)


def at_rows(fit: SplineFit, kept: NDArray[np.intp] | None) -> SplineFit:
    """Let a fit to some of the rows name its knots' rows by their numbers in the whole table."""
    if kept is None:
        return fit
    return replace(fit, knots=tuple(replace(knot, rows=kept[knot.rows]) for knot in fit.knots))
