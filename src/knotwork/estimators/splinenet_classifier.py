"""SplineNetClassifier: spline of logits → network → training, as one scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions
from torch import nn

from knotwork.arrays import Floats
from knotwork.data.learn import learn_table
from knotwork.data.sample import Sample
from knotwork.errors import DataError
from knotwork.estimators.inputs import check_training_table, class_response, read_classes, read_labels, read_weights
from knotwork.estimators.intervals import SetMixin, calibrate_sets
from knotwork.estimators.lazy import lazy_on_dask
from knotwork.estimators.logits import LogitMixin, probabilities_of
from knotwork.estimators.problem import Problem
from knotwork.estimators.splinenet_base import SplineNetBase
from knotwork.estimators.validation import ValidationSplit
from knotwork.network.chain import Chain
from knotwork.network.start.task import THRESHOLD
from knotwork.network.train.losses import LogLoss
from knotwork.spline.temperature import calibration_error, fit_temperature


class SplineNetClassifier(SetMixin, LogitMixin, ClassifierMixin, SplineNetBase):
    """A ReLU network whose logits start as those of a spline fitted to the classes, trained with cross-entropy.

    For two classes the network has one output, the log-odds of ``classes_[1]``; for K > 2 it has K, one per class.

    Parameters
    ----------
    hidden, start, activation, fill, spline_fraction, epochs, batch_size, learning_rate, dropout,
    validation_fraction, patience, setback, average, device, checkpoint, random_state, n_jobs, verbose, extrapolate, \
validation, n_members, monotonic_cst
        As in SplineNetRegressor. A splitter must leave training rows of every class. Members average their logits; each
        fold has its share of every class.
    weight_decay : float, default 0.3
        As in SplineNetRegressor, but larger: labels carry less information than numbers, and overconfident logits are
        costly.
    warmup : float, default 0.1
        Share of the steps before the peak.
    max_terms, penalty, threshold : as in MarsClassifier
        The spline has at most as many terms as the hidden layers can hold. Without interactions the default penalty is
        6 for two classes and 0 for more. A line in every feature joins them if there is room.
    max_degree : int or "auto", default "auto"
        Maximum number of features in a term of the spline; each degree takes a hidden layer. "auto" is 1. It is 2 if
        there are two classes and at least 400 training rows, the first spline's residuals correlate with products of
        two features, and a spline with interactions of such features (or of any features if there are no more than 30)
        is better on the validation rows.
    ridge : float or "auto", default "auto"
        As in MarsClassifier. "auto" begins with 3 and goes down to 0.03 as long as the validation loss falls.
    l1 : float, default 0
        Sparsity, on the scale of the log-loss.
    label_smoothing : float, default 0
        Share of each label that training spreads over all classes. The losses in ``history_`` are without it.
    class_weight : dict, "balanced" or None, default None
        Weight of each class, on top of ``sample_weight``, in the spline, in training and on the validation rows.
    missing : "indicator" or "error", default "indicator"
        As in MarsRegressor.
    calibrate : bool, default False
        Divide all logits by one temperature, that of minimum log-loss on the rows that the network was not trained on:
        its validation rows, or all rows with several members. The classes predicted stay, and the network stays exact:
        the temperature is part of its output layer.

    Attributes
    ----------
    classes_ : (K,) the labels, sorted
    network_ : nn.Sequential, float32, from the encoded raw features, which its first layer scales, to the logits
    spline_ : Spline, the logits of the network at epoch 0 (None for a random start)
    start_network_ : nn.Sequential, ``network_`` before training
    coordinates_ : Coordinates, the means and stds that training standardised by
    limits_ : as in SplineNetRegressor
    training_rows_ : TrainingRows, by which explanations know rows that were in the fit, validation rows included
    history_ : History, mean log-losses per epoch, beginning with epoch 0; before any temperature
    temperature_ : float, what ``calibrate`` divided the logits by, 1 without it
    calibration_error_ : float, the expected calibration error on the rows that the network was not trained on: the mean
        of |share of right answers − confidence| over 15 bins of equal weight; None without such rows
    calibration_ : Calibration, the scores of those rows that ``predict_set`` goes by
    encoder_ : TableEncoder, from the table to the network's inputs

    Examples
    --------
    >>> import knotwork as kw
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> model = kw.SplineNetClassifier(hidden=(64,), epochs=5, random_state=0).fit(X, y)
    >>> model.history_.validation_loss[model.history_.best_epoch] <= model.history_.validation_loss[0]
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SplineNetBase._parameter_constraints,
        "label_smoothing": [Interval(Real, 0, 1, closed="left")],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "calibrate": ["boolean"],
    }

    def __init__(
        self,
        hidden: tuple[int, ...] | str = "auto",
        start: str = "spline",
        activation: str | nn.Module = "relu",
        fill: str = "random",
        max_terms: int | None = None,
        max_degree: int | str = "auto",
        penalty: float | None = None,
        threshold: float = THRESHOLD,
        ridge: float | str = "auto",
        spline_fraction: float | None = None,
        epochs: int = 100,
        batch_size: int | str = "auto",
        learning_rate: float = 1e-2,
        weight_decay: float = 0.3,
        warmup: float = 0.1,
        l1: float = 0.0,
        dropout: float = 0.0,
        validation_fraction: float = 0.15,
        patience: int | None = 30,
        setback: float | None = 0.05,
        average: float = 10.0,
        device: str | torch.device | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        label_smoothing: float = 0.0,
        class_weight: Mapping[Any, float] | str | None = None,
        missing: str = "indicator",
        extrapolate: str = "clip",
        validation: Any = None,
        n_members: int | str = "auto",
        calibrate: bool = False,
        monotonic_cst: Any = None,
    ) -> None:
        super().__init__(
            hidden=hidden, start=start, activation=activation, fill=fill, max_terms=max_terms, max_degree=max_degree,
            penalty=penalty, threshold=threshold, ridge=ridge, spline_fraction=spline_fraction, epochs=epochs,
            batch_size=batch_size, learning_rate=learning_rate, weight_decay=weight_decay, warmup=warmup, l1=l1,
            dropout=dropout, validation_fraction=validation_fraction, patience=patience, setback=setback,
            average=average, device=device, checkpoint=checkpoint, random_state=random_state, n_jobs=n_jobs,
            verbose=verbose, missing=missing, extrapolate=extrapolate, validation=validation,
            n_members=n_members, monotonic_cst=monotonic_cst,
        )  # fmt: skip
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight
        self.calibrate = calibrate

    def _read(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> Problem:
        X, count = check_training_table(self, X)
        labels = read_labels(y, count)
        weights, kept = (None, None) if sample_weight is None else read_weights(sample_weight, count)
        classes, codes, weights, kept = read_classes(labels, weights, kept, self.class_weight)
        response = class_response(classes, codes, kept, count)
        encoder, table = learn_table(X, response=response, weights=weights, missing=self.missing)
        matrix: Floats = np.asarray(table, dtype=np.float64)
        weight = np.ones(len(matrix)) if weights is None else weights
        if kept is not None:
            matrix, weight = matrix[kept], weight[kept]
        loss = LogLoss(1 if len(classes) == 2 else len(classes), self.label_smoothing)
        rows = Sample(matrix, codes, weight)
        return Problem(rows, kept, weights is not None, encoder, loss, {"classes_": classes})

    def _require_trainable(self, problem: Problem, training: NDArray[np.intp]) -> None:
        classes = problem.attributes["classes_"]
        unseen = np.setdiff1d(np.arange(len(classes)), problem.rows.y[training])
        if unseen.size:
            raise DataError(
                f"validation must leave training rows of every class, class {classes.tolist()[unseen[0]]!r} has none; "
                f"choose another split (StratifiedShuffleSplit, say), or leave that class out"
            )

    @lazy_on_dask
    def decision_function(self, X: Any) -> Floats:
        """Return the network's logits: (N,) log-odds of the second of two classes, (N, K) for more.

        >>> import knotwork as kw
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> model = kw.SplineNetClassifier(hidden=(16,), epochs=2, n_members=1, random_state=0).fit(X, y)
        >>> model.decision_function(X).shape
        (150, 3)
        """
        logits = self._run(X)
        return logits[:, 0] if logits.shape[1] == 1 else logits

    def _predicted(self, outputs: Floats) -> Floats:
        return probabilities_of(outputs[:, 0] if outputs.shape[1] == 1 else outputs)

    def _output_factor(self, problem: Problem, unseen: Floats) -> float:
        self.temperature_ = 1.0
        known = ~np.isnan(unseen).any(axis=1)
        if self.calibrate:
            if not known.any():
                raise DataError(
                    "calibrate=True needs rows that the network has not seen, there are none; collect more rows, or "
                    "pass calibrate=False"
                )
            logits = unseen[known]
            logits = np.column_stack([np.zeros(len(logits)), logits]) if logits.shape[1] == 1 else logits
            self.temperature_ = fit_temperature(logits, problem.rows.y[known], problem.rows.weight[known])
        return 1 / self.temperature_

    def _conform(
        self, problem: Problem, unseen: Floats, chains: Sequence[Chain], splits: Sequence[ValidationSplit]
    ) -> None:
        codes, weight = problem.rows.y, problem.rows.weight
        self.calibration_ = calibrate_sets(unseen, codes, weight)
        known = ~np.isnan(unseen).any(axis=1)
        self.calibration_error_ = calibration_error(unseen[known], codes[known], weight[known]) if known.any() else None
