"""MarsClassifier: a spline of logits as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions

from knotwork.arrays import Floats
from knotwork.data.learn import learn_table
from knotwork.errors import DataError
from knotwork.estimators.inputs import (
    check_training_table,
    class_response,
    read_classes,
    read_labels,
    read_table,
    read_weights,
)
from knotwork.estimators.logits import LogitMixin
from knotwork.estimators.mars_base import MarsBase, at_rows
from knotwork.estimators.summary import summarise_classes
from knotwork.estimators.tensors import on_gpu
from knotwork.progress import forward_progress
from knotwork.spline.fit import MAX_PARENTS
from knotwork.spline.likelihood import ClassFit, fit_classes


class MarsClassifier(LogitMixin, ClassifierMixin, MarsBase):
    """Two or many classes by a spline of their logits: the terms of MARS, the coefficients of multinomial likelihood.

    logit_k(x) = intercept_k + Σ β_mk·h_m(x) with hinges h(u) = max(0, u) of single features. All classes share the
    hinges. They are chosen by least squares on the class indicators, each divided by the root of its class's share, and
    pruned by GCV; the coefficients are then fitted by multinomial likelihood with a small ridge.

    Parameters
    ----------
    max_terms : int, default None
        Maximum number of terms of the forward pass, the intercept included; None is
        min(200, max(20, 2·features, √N)) + 1.
    max_degree, penalty, minspan, endspan, max_knots, interaction, compat, backend, n_jobs, verbose, interacting, \
max_parents, extrapolate
        As in MarsRegressor; ``compat="earth"`` applies to the search.
    threshold : float, default 1e-4
        The forward pass stops when a step would raise the R² of the indicators by less than this.
    class_weight : dict, "balanced" or None, default None
        Weight of each class, on top of ``sample_weight``; "balanced" lets all classes weigh the same.
    ridge : float, default 0.1
        Penalty ridge/2·Σθ² on the slopes per std of the feature. It counts like a fraction of one row, so it matters
        only where the data say little: in small tables, and where classes are separable.
    missing : "indicator" or "error", default "indicator"
        As in MarsRegressor.

    Attributes
    ----------
    classes_ : (K,) the labels, sorted
    spline_ : Spline, of the encoded features. For two classes one output, the log-odds of ``classes_[1]``; for more,
        one output per class, and they sum to zero
    deviance_, null_deviance_ : float, −2·log-likelihood of the training rows, and that of the class shares alone
    gcv_, grsq_, rss_, rsq_ : float, of the least-squares fit to the indicators that found the terms
    feature_importances_ : (n_features_in_,) rise in deviance without the column (Wald's statistic), scaled to sum 1
    knots_, limits_, encoder_ : as in MarsRegressor
    fit_ : ClassFit, the whole record; its ``search`` is the SplineFit to the class indicators that found the terms

    Examples
    --------
    >>> import knotwork as kw
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> model = kw.MarsClassifier().fit(X, y.map(dict(enumerate(["setosa", "versicolor", "virginica"]))))
    >>> model.predict(X.head(2))
    array(['setosa', 'setosa'], dtype=object)
    >>> model.predict_proba(X).shape, model.spline_.intercept.shape
    ((150, 3), (3,))
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **MarsBase._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "ridge": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        max_terms: int | None = None,
        max_degree: int | str = 1,
        penalty: float | None = None,
        threshold: float = 1e-4,
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
        class_weight: Mapping[Any, float] | str | None = None,
        ridge: float = 0.1,
        missing: str = "indicator",
        extrapolate: str | None = None,
    ) -> None:
        super().__init__(
            max_terms=max_terms, max_degree=max_degree, penalty=penalty, threshold=threshold, minspan=minspan,
            endspan=endspan, max_knots=max_knots, interaction=interaction, compat=compat, backend=backend,
            n_jobs=n_jobs, verbose=verbose, interacting=interacting, max_parents=max_parents, missing=missing,
            extrapolate=extrapolate,
        )  # fmt: skip
        self.class_weight = class_weight
        self.ridge = ridge

    def _fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        if self.backend == "torch" or on_gpu(X):
            raise DataError(
                "classes are fitted in memory, got backend='torch' or a tensor on a GPU; choose backend='cpu' and pass "
                "X.cpu(), or fit a MarsRegressor to indicators of the classes"
            )
        X, rows = check_training_table(self, X)
        labels = read_labels(y, rows)
        weights, kept = (None, None) if sample_weight is None else read_weights(sample_weight, rows)
        classes, codes, weights, kept = read_classes(labels, weights, kept, self.class_weight)
        response = class_response(classes, codes, kept, rows)
        encoder, matrix = learn_table(X, response=response, weights=weights, missing=self.missing)
        if kept is not None and weights is not None:
            matrix, weights = matrix[kept], weights[kept]
        with forward_progress(bool(self.verbose)) as report:
            fitted = fit_classes(
                matrix,
                codes,
                len(classes),
                weights=weights,
                names=encoder.feature_names,
                options=self._options(encoder),
                ridge=float(self.ridge),
                report=report,
            )
        self.fit_ = replace(fitted, search=at_rows(fitted.search, kept))
        self.encoder_ = encoder.with_means(fitted.search.coordinates.x_centre)
        self.classes_ = classes

    def decision_function(self, X: Any) -> Floats:
        """Return the logits: (N,) log-odds of the second of two classes, (N, K) for more."""
        matrix = read_table(self, X)
        return self.spline_(matrix)

    @property
    def deviance_(self) -> float:
        """−2·log-likelihood of the training rows."""
        return self._class_fit.deviance

    @property
    def null_deviance_(self) -> float:
        """−2·log-likelihood of the class shares alone."""
        return self._class_fit.null_deviance

    @property
    def _class_fit(self) -> ClassFit:
        fitted = self._fitted
        assert isinstance(fitted, ClassFit)
        return fitted

    def _summarise(self) -> str:
        return summarise_classes(self.fit_, self.encoder_, [str(label) for label in self.classes_])
