"""MarsClassifier: a spline of logits as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions

from knotwork.arrays import Floats
from knotwork.data.columns.part import read_parts
from knotwork.data.learn import learn_table
from knotwork.data.target_encoding import Response
from knotwork.data.training_rows import TrainingRows
from knotwork.errors import DataError
from knotwork.estimators.folds import (
    TrainingTable,
    chosen_options,
    degrees_of,
    fold_data,
    read_folds,
    set_fold_attributes_,
)
from knotwork.estimators.inputs import (
    check_training_table,
    class_response,
    read_classes,
    read_labels,
    read_table,
    read_weights,
)
from knotwork.estimators.intervals import SetMixin, calibrate_sets
from knotwork.estimators.lazy import lazy_on_dask
from knotwork.estimators.logits import LogitMixin
from knotwork.estimators.mars_base import MarsBase, at_rows
from knotwork.estimators.sources import fit_classifier, open_source
from knotwork.estimators.summary import summarise_classes
from knotwork.estimators.tensors import on_gpu
from knotwork.progress import forward_progress
from knotwork.spline.fit import MAX_PARENTS
from knotwork.spline.folds import choose
from knotwork.spline.likelihood import ClassFit, fit_classes
from knotwork.spline.refitted_folds import class_fold_paths, probabilities_of
from knotwork.spline.temperature import calibration_error, fit_temperature


class MarsClassifier(SetMixin, LogitMixin, ClassifierMixin, MarsBase):
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
        Penalty ridge/2·Σθ² on the slopes per std of the feature, also those of interactions. It counts like a fraction
        of one row, so it matters only where the data say little: in small tables, and where classes are separable.
    missing : "indicator" or "error", default "indicator"
        As in MarsRegressor.
    cv : int, splitter of scikit-learn, iterable of (training, held-out) pairs of row numbers, or None, default None
        As in MarsRegressor, by the mean log-loss of held-out rows. A number makes folds that have about the same share
        of each class; rows of a class with a single different row are never held out. Above 12 terms every tenth size
        is tried.
    monotonic_cst : array of −1, 0, 1 or dict of them by column name, default None
        Columns along which the probability of the second of two classes may only fall or only rise, as in
        MarsRegressor. More classes are refused.
    calibrate : bool, default False
        Divide the logits by one temperature, that of minimum log-loss on the out-of-fold rows of ``cv``. The classes
        predicted stay; the coefficients of ``spline_`` are those of the divided logits.

    Attributes
    ----------
    classes_ : (K,) the labels, sorted
    spline_ : Spline, of the encoded features. For two classes one output, the log-odds of ``classes_[1]``; for more,
        one output per class, and they sum to zero
    deviance_, null_deviance_ : float, −2·log-likelihood of the training rows, and that of the class shares alone
    gcv_, grsq_, rss_, rsq_ : float, of the least-squares fit to the indicators that found the terms
    feature_importances_ : (n_features_in_,) rise in deviance without the column (Wald's statistic), scaled to sum 1
    knots_, limits_, training_rows_, encoder_ : as in MarsRegressor
    temperature_, calibration_error_, calibration_ : as in SplineNetClassifier, from the out-of-fold rows of ``cv``
    path_, fold_splines_, fold_rows_, fold_encoders_, cv_results_ : as in MarsRegressor; errors are log-losses
    oof_prediction_ : (N, classes) probabilities, with ``cv``
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
        "calibrate": ["boolean"],
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
        cv: Any = None,
        monotonic_cst: ArrayLike | Mapping[str, int] | None = None,
        calibrate: bool = False,
    ) -> None:
        super().__init__(
            max_terms=max_terms, max_degree=max_degree, penalty=penalty, threshold=threshold, minspan=minspan,
            endspan=endspan, max_knots=max_knots, interaction=interaction, compat=compat, backend=backend,
            n_jobs=n_jobs, verbose=verbose, interacting=interacting, max_parents=max_parents, missing=missing,
            extrapolate=extrapolate, cv=cv, monotonic_cst=monotonic_cst,
        )  # fmt: skip
        self.class_weight = class_weight
        self.ridge = ridge
        self.calibrate = calibrate

    def _fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None = None) -> None:
        opened = open_source(X, y, sample_weight)
        if opened is not None:
            fit_classifier(self, opened)
            return
        if self.backend == "torch" or on_gpu(X):
            raise DataError(
                "classes are fitted in memory, got backend='torch' or a tensor on a GPU; choose backend='cpu' and pass "
                "X.cpu(), or fit a MarsRegressor to indicators of the classes"
            )
        if self.calibrate and self.cv is None:
            raise DataError(
                "calibrate=True fits a temperature to out-of-fold logits, got cv=None; fit MarsClassifier(cv=10, "
                "calibrate=True)"
            )
        self.temperature_ = 1.0
        X, rows = check_training_table(self, X)
        labels = read_labels(y, rows)
        weights, kept = (None, None) if sample_weight is None else read_weights(sample_weight, rows)
        classes, codes, weights, kept = read_classes(labels, weights, kept, self.class_weight)
        if self.monotonic_cst is not None and len(classes) > 2:
            raise ValueError(f"monotonic_cst is for two classes, got {len(classes)}; leave it out, or join classes")
        response = class_response(classes, codes, kept, rows)
        encoder, matrix = learn_table(X, response=response, weights=weights, missing=self.missing)
        if kept is not None and weights is not None:
            matrix, weights = matrix[kept], weights[kept]
        options, folded = self._options(encoder), None
        if self.cv is not None:
            by = Response(codes, response.classes)
            table = TrainingTable(X, y, groups, rows, kept, encoder, matrix, by, weights)
            data, encoders = fold_data(table, codes[:, None].astype(np.float64), read_folds(self.cv, table))
            choice = choose(
                lambda degree: class_fold_paths(
                    data, codes, len(classes), replace(options, max_degree=degree), float(self.ridge)
                ),
                degrees_of(options, matrix.shape[1]),
            )
            options, folded = chosen_options(options, choice), (table, data, encoders, choice)
        with forward_progress(bool(self.verbose)) as report:
            fitted = fit_classes(
                matrix,
                codes,
                len(classes),
                weights=weights,
                names=encoder.feature_names,
                options=options,
                ridge=float(self.ridge),
                report=report,
            )
        spline = replace(fitted.spline, parts=read_parts(encoder.parts, matrix))
        self.fit_ = replace(fitted, spline=spline, search=at_rows(fitted.search, kept))
        self.encoder_ = encoder.with_means(fitted.search.coordinates.x_centre)
        self.training_rows_ = TrainingRows.of(matrix, codes, encoder)
        self.classes_ = classes
        if folded is not None:
            set_fold_attributes_(self, *folded, fitted.search, probabilities_of)
            self._conform(folded[0], codes)

    def _conform(self, table: TrainingTable, codes: NDArray[np.intp]) -> None:
        """Set what sets come from, the out-of-fold probabilities of the rows kept; ``calibrate`` fits a temperature."""
        oof: Floats = vars(self)["oof_prediction_"]
        unseen = oof[table.numbers]
        weights = np.ones(len(codes)) if table.weights is None else np.asarray(table.weights, dtype=np.float64)
        known = ~np.isnan(unseen).any(axis=1)
        if self.calibrate:
            logits = np.log(np.maximum(oof, np.finfo(np.float64).tiny))
            own = logits[table.numbers][known]
            self.temperature_ = fit_temperature(own, codes[known], weights[known])
            self.oof_prediction_ = softmax(logits / self.temperature_, axis=1)
            unseen, spline = self.oof_prediction_[table.numbers], self.fit_.spline
            intercept, coef = (part / self.temperature_ for part in (spline.intercept, spline.coef))
            self.fit_ = replace(self.fit_, spline=replace(spline, intercept=intercept, coef=coef))
        self.calibration_ = calibrate_sets(unseen, codes, weights)
        error = calibration_error(unseen[known], codes[known], weights[known]) if known.any() else None
        self.calibration_error_ = error

    @lazy_on_dask
    def decision_function(self, X: Any) -> Floats:
        """Return the logits: (N,) log-odds of the second of two classes, (N, K) for more.

        >>> import knotwork as kw
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> model = kw.MarsClassifier().fit(X, y)
        >>> model.decision_function(X).shape
        (150, 3)
        """
        matrix = read_table(self, X)
        return self.spline_(matrix)

    @property
    def deviance_(self) -> float:
        """−2·log-likelihood of the training rows.

        >>> import knotwork as kw
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> model = kw.MarsClassifier().fit(X, y)
        >>> model.deviance_ < model.null_deviance_
        True
        """
        return self._class_fit.deviance

    @property
    def null_deviance_(self) -> float:
        """−2·log-likelihood of the class shares alone.

        >>> import knotwork as kw
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> model = kw.MarsClassifier().fit(X, y)
        >>> round(model.null_deviance_ / (2 * len(y)), 4)  # the logarithm of three classes
        1.0986
        """
        return self._class_fit.null_deviance

    @property
    def _class_fit(self) -> ClassFit:
        fitted = self._fitted
        assert isinstance(fitted, ClassFit)
        return fitted

    def _summarise(self) -> str:
        return summarise_classes(self.fit_, self.encoder_, [str(label) for label in self.classes_])
