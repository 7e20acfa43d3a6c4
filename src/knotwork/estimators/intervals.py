"""predict_interval and predict_set: what estimators make of predictions of rows that they had not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from knotwork.arrays import Floats
from knotwork.compute.workers import Workers
from knotwork.data.limits import sampled_rows
from knotwork.data.losses import ResponseLoss
from knotwork.data.split import folds_of
from knotwork.errors import DataError
from knotwork.estimators.averaging import Ensemble, error_of_average
from knotwork.estimators.conformal import Calibration, class_scores, prediction_sets, require_coverage
from knotwork.estimators.inputs import read_table
from knotwork.parameters import shown
from knotwork.spline.model import Spline
from knotwork.spline.spread import fit_spread

# Folds of out-of-fold residuals by which spreads are fitted: no row is in the fit of its own.
SPREAD_FOLDS = 5
# Out-of-fold rows that have scores: a sample of larger tables. The share that a quantile of so many covers has a
# standard error of 0.3 %, at a coverage of 0.9.
MAX_SCORES = 10_000


class IntervalMixin:
    """Intervals of a regressor that sets ``calibration_``."""

    calibration_: Calibration | None
    loss_: ResponseLoss

    def predict_interval(self, X: Any, coverage: float = 0.9, *, method: str = "base") -> Floats:
        """Return an interval for the response of each row: (N, d) → (N, 2), its lower and its upper end.

        Parameters
        ----------
        X : (N, d) like the table of the fit
        coverage : share of new responses that should lie in their intervals
        method : "base" or "plus", as mapie calls them; "plus" needs ``MarsRegressor(cv=…)``

        Notes
        -----
        The interval is the prediction ± q·s(x). s is a spread fitted to absolute residuals, so intervals are wide where
        the noise is large. q is a quantile of |y − prediction|/s over rows that the model had not seen. With a log
        link, both ends are at least 0.

        With one network, these rows are its validation rows: the split-conformal rule. Its coverage is at least the
        nominal one, on average over tables, if nothing else used those rows; here they also chose the epoch. With
        several members, all rows are used, each predicted by the member that left it out. The interval is around the
        average of all members, which has smaller errors. How much smaller follows from how far the members that were
        trained on a row agree in their residuals, and scores are multiplied by that. So there is no guarantee for a
        finite number of rows.

        Where all rows have scores, a table of more than 10 000 rows keeps those of a random 10 000.

        ``MarsRegressor(cv=10)`` uses all rows, each predicted by the fold that left it out. The interval is around the
        spline of all rows; there is no guarantee for a finite number of rows, but coverage is close to nominal.
        ``method="plus"`` (CV+) would cover at least 2·coverage − 1, whatever the distribution, if the spread were known
        beforehand. Its ends are quantiles over all rows of fold(x) ± score·s(x), each with the fold that left the row
        out. If the folds' splines differ much, these intervals are wider than necessary. Folds that overlap or leave
        rows out (``TimeSeriesSplit``) have no "plus".

        Examples
        --------
        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor(cv=5).fit(X, y)
        >>> low, high = model.predict_interval(X, coverage=0.9).T
        >>> bool(((low <= y) & (y <= high)).mean() > 0.85)
        True
        """
        require_coverage(coverage)
        calibration = _known(self)
        matrix = np.asarray(read_table(self, X), dtype=np.float64)
        if not isinstance(method, str) or method not in ("base", "plus"):
            raise DataError(f"method must be 'base' or 'plus', got {shown(method)}")
        if method == "plus":
            if not calibration.folds.size:
                raise DataError(
                    f"method='plus' needs a model of each fold, this {type(self).__name__} has none; leave it out, or "
                    f"fit MarsRegressor(cv=10), whose folds leave every row out once"
                )
            ends = calibration.cross_interval(matrix, self._fold_predictions(X, matrix), float(coverage))
            return ends.clip(0.0) if self.loss_.link == "log" else ends
        middle = np.asarray(self.predict(X), dtype=np.float64).reshape(-1)  # type: ignore[attr-defined]
        reach = calibration.widths(matrix, float(coverage))
        ends = np.stack([middle - reach, middle + reach], axis=1)
        return ends.clip(0.0) if self.loss_.link == "log" else ends

    def _fold_predictions(self, X: Any, matrix: Floats) -> Floats:
        """Predict rows by the model of each fold: a table and its encoded rows (N, d) → (N, folds)."""
        raise NotImplementedError


class SetMixin:
    """Sets of classes of a classifier that sets ``calibration_``."""

    calibration_: Calibration | None

    def predict_set(self, X: Any, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Return the classes that each row may have: (N, d) → (N, K) booleans, in the order of ``classes_``.

        The set holds every class whose probability is at least 1 − q, and the most probable one always; q is the
        quantile of 1 − p(own class) over rows that the model had not seen, 0 where the own class is the most probable
        one, weighted as in the fit. Its guarantees are those of ``SplineNetRegressor.predict_interval``, except that
        scores are those of single members. A model that is right more often than the nominal share has sets of one
        class, whose coverage is that of its predictions.

        >>> import knotwork as kw
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> model = kw.MarsClassifier(cv=5).fit(X, y)
        >>> model.predict_set(X, coverage=0.9).shape
        (150, 3)
        """
        require_coverage(coverage)
        quantile = _known(self).quantile(float(coverage))
        return prediction_sets(self.predict_proba(X), quantile)  # type: ignore[attr-defined]


def _known(model: Any) -> Calibration:
    check_is_fitted(model)
    found: Calibration | None = getattr(model, "calibration_", None)
    if found is None and getattr(model, "cv", 0) is None:
        raise DataError(
            f"intervals and sets need rows that the model had not seen, got cv=None; fit {type(model).__name__}(cv=10)"
        )
    if found is None:
        raise DataError(
            f"intervals and sets need rows that the model had not seen, this {type(model).__name__} knows none; it "
            f"was fitted to several responses, to too few rows to hold some out, or by an earlier version; fit it again"
        )
    return found


def calibrate_intervals(
    X: Floats,
    y: Floats,
    unseen: Floats,
    fitted: Callable[[], Floats],
    weights: Floats,
    names: Sequence[str],
    folds: NDArray[np.intp] | None = None,
    threads: int = 1,
    ensemble: Ensemble | None = None,
) -> Calibration | None:
    """Return the scores of a regression; None without a row that had not been seen.

    X (N, d) encoded rows, y (N,), unseen (N,) predictions by what had not seen the row, NaN where there is none, fitted
    gives (N,) predictions of the model itself, weights (N,). Where some rows have none, the spread is fitted to the
    residuals of those; else to out-of-fold residuals, each row's score by a spread fitted to other folds. ``folds``
    (N,) held the rows out, where the model knows how each of them predicts. An ensemble predicts by the average of its
    members: scores, which are of single members, are multiplied by the errors of the average over theirs.
    """
    known = ~np.isnan(unseen)
    if not known.any():
        return None

    def spread_of(rows: NDArray[np.bool_], residuals: Floats) -> Spline:
        # Without weights where all count the same: sorting them along takes most of such a fit.
        own = None if (weights == 1.0).all() else weights[rows]
        return fit_spread(X[rows], residuals[rows], own, names)

    if not known.all():
        spread = spread_of(~known, y - fitted())
        scores = np.abs(y - unseen)[known] / np.exp(spread(X[known]).reshape(-1))
        return Calibration.of("split", scores, weights[known], spread)
    sampled = sampled_rows(len(X), MAX_SCORES)
    if sampled is not None:
        X, y, unseen, weights = (values[sampled] for values in (X, y, unseen, weights))
        folds = None if folds is None else folds[sampled]
        ensemble = None if ensemble is None else replace(ensemble, left_out=ensemble.left_out[sampled])
    residuals = y - unseen
    spreads = np.empty(len(X))
    parts = folds_of(X, SPREAD_FOLDS, 0)
    # The last one is that of all rows.
    found: list[Spline] = [None] * (int(parts.max()) + 2)  # type: ignore[list-item]

    with Workers(threads) as workers:
        shares = workers.split(len(found), work=X.size * len(found))

        def task(share: int) -> None:
            for k in range(*shares[share]):
                held = parts == k
                # Rows that are all equal are one part: their spread is a constant, which no width depends on.
                found[k] = spread_of(held if held.all() else ~held, residuals)
                spreads[held] = np.exp(found[k](X[held]).reshape(-1))

        workers.run(task, len(shares))
    scores = np.abs(residuals) / spreads
    if ensemble is not None:
        scores *= error_of_average(y - ensemble.predict(X), ensemble.left_out, spreads, weights)
    return Calibration.of("cross", scores, weights, found[-1], folds)


def calibrate_sets(probabilities: Floats, codes: NDArray[np.intp], weights: Floats) -> Calibration | None:
    """Return the scores of classes: probabilities (N, K) by what had not seen the row, NaN where there are none."""
    known = ~np.isnan(probabilities).any(axis=1)
    if not known.any():
        return None
    scores = class_scores(probabilities[known], codes[known])
    return Calibration.of("cross" if known.all() else "split", scores, weights[known])
