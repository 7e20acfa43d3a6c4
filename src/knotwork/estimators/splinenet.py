"""SplineNetRegressor: spline → network → training, as one scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from torch import nn

from knotwork.arrays import Floats
from knotwork.data.limits import Limits
from knotwork.data.losses import SQUARED_ERROR, response_loss
from knotwork.data.sample import Sample
from knotwork.estimators.averaging import Ensemble
from knotwork.estimators.inputs import read_regression
from knotwork.estimators.intervals import IntervalMixin, calibrate_intervals
from knotwork.estimators.lazy import lazy_on_dask
from knotwork.estimators.problem import Problem
from knotwork.estimators.responses import DECLARED_LOSS, LossMixin, held_outputs, one_response
from knotwork.estimators.splinenet_base import SplineNetBase
from knotwork.estimators.validation import ValidationSplit
from knotwork.network.chain import Chain, evaluate
from knotwork.network.start.task import THRESHOLD
from knotwork.network.train.losses import Deviance, Loss, SquaredError
from knotwork.spline.response import huber_width


class SplineNetRegressor(IntervalMixin, LossMixin, MultiOutputMixin, RegressorMixin, SplineNetBase):
    """A ReLU network that starts as a spline fitted to the data and is then trained.

    Parameters
    ----------
    hidden : tuple of int or "auto", default "auto"
        Widths of the hidden layers; "auto" is (128, 128) for one network and (128, 128, 128) for each of several.
    start : "spline" or "random", default "spline"
        "random" starts the same network from Kaiming's initialisation instead, for comparison.
    activation : str or module, default "relu"
        One that a spline can be converted to.
    fill : "random", "hinge" or "zero", default "random"
        What the units beyond the spline's compute at first; see ``reshape``.
    max_terms, penalty : as in MarsRegressor
        The spline has at most as many terms as the hidden layers can hold.
    threshold : float, default 1e-4
        As in MarsRegressor, but smaller: the network has room for terms that add little.
    max_degree : int or "auto", default "auto"
        Maximum number of features in a term of the spline; each degree takes a hidden layer. "auto" is 1. It is 2 if
        there are at least 400 training rows, the first spline's residuals correlate with products of two features, and
        a second spline, with interactions of such features, is better on the validation rows.
    ridge : float or "auto", default "auto"
        Ridge of the spline's coefficients, in standardised coordinates: large ones that cancel do not survive training.
        "auto" is 1e-3 or 1e-2, whichever spline is better on the validation rows, and less, down to 1e-6, for steep
        effects where that is clearly better.
    spline_fraction : float, default None
        Fit the spline to this share of the training rows and train the network on the others; None uses all for both.
    epochs, batch_size, learning_rate, weight_decay : int, int or "auto", float, float
        AdamW on mini-batches; the rate is the peak of a schedule with a linear warm-up and a half cosine. "auto" is 128
        rows a batch, and up to 1024 where an epoch still has twenty batches.
    warmup : float, default 0.2
        Share of the steps before the peak.
    l1, dropout : float, default 0
        Sparsity, on the scale of the standardised loss, and the share of hidden units left out at each step.
    validation_fraction : float, default 0.15
        Share of the distinct rows held out; copies of a row stay together. The epoch with the minimum loss on these
        rows is kept.
    patience : int or None, default 30
        Epochs without improvement before training ends.
    setback : float or None, default 0.05
        An epoch that leaves the validation loss this share above the best is undone, and the learning rate is halved
        from then on, so the network loses little of what it has learned. None keeps every epoch.
    average : float, default 10
        Epochs over which the weights are averaged; the average is validated and kept. It lets a large learning rate
        work on a good start without undoing it.
    device : str, default None
        Where to train; None is the CPU.
    checkpoint : path, default None
        File that the state of the training is written to, and that the same fit goes on from after a crash: the result
        has the same bits on the CPU. It is removed at the end; the file of any other fit is refused.
    random_state, n_jobs, verbose
        Seed (equal seeds give equal bits on the CPU, whatever the number of threads), threads of the spline fit,
        progress bar.
    extrapolate : "clip" or "linear", default "clip"
        "clip": every column is clipped to its limits, in training and in prediction, so that the network is flat beyond
        them. The limits are the column's range, less values far beyond the bulk of it. They are part of the ``Scaling``
        in front of ``network_``; ``hidden`` names the layers behind it. Predictions are clipped, too: to the range of
        the training responses, widened by half of its width at either end (not with a log link). "linear" continues
        with the last slope.
    validation : splitter of scikit-learn or iterable of (training, validation) pairs of row numbers, default None
        Which rows to validate on, instead of ``validation_fraction``: ``GroupShuffleSplit`` keeps the rows of a group
        together (``fit(X, y, groups=…)``), ``TimeSeriesSplit`` validates on the latest rows of a table in the order of
        time, ``PredefinedSplit`` or ``[(training, validation)]`` on rows of your own choice. Of several splits the last
        one counts. The splitter sees the table as it is passed, rows of weight zero included; rows in neither part
        are left out. Give a splitter that shuffles a ``random_state``, or no two fits are the same.
    missing : "indicator" or "error", default "indicator"
        What to do about missing values. "indicator" fills them in, and columns that have some in training get a feature
        of their own, ``column is missing``; "error" refuses them.
    n_members : int or "auto", default "auto"
        Networks that are trained together and averaged. "auto" is 8, but 1 with more than 50 000 rows, and with
        ``validation`` or ``groups``, which need a single network. A single network takes less time. Each member has
        the layers of ``hidden``, leaves out one fold of the rows, and starts from a spline of its other rows:
        ``validation_fraction`` of them choose its degree and ridge. So every row has a prediction by the member that
        did not see it; copies of a row are in the same fold. One epoch is kept for all members, that with the minimum
        mean of the folds' losses. With fewer distinct rows (or rows of some class) than members, there are fewer
        members; a warning says so, unless this is "auto". Every second member scales columns with long tails by
        median and interquartile range instead of mean and std.
    loss, quantile, power : as in MarsRegressor
        What training minimises. With "poisson", "gamma" and "tweedie" the network gives log(y), and ``predict`` its
        exponential.
    monotonic_cst : None
        Monotone effects are for MarsRegressor and MarsClassifier, whose networks ``to_network`` makes; training does
        not keep a network monotone, and anything but None is refused.

    Attributes
    ----------
    network_ : nn.Sequential, from the encoded raw features to the responses, fixed scaling at both ends; float32, or
        float64 where responses lie further than 1e4 stds from zero or beyond 1e±30. Several members are side by side in
        its layers, which are ``BlockLinear`` where each member reads its own units; ``to_network`` gives plain Linear
        layers with all zeros
    spline_ : Spline, what the network computed at epoch 0 (None for a random start): of several members the mean of
        their splines, with all of their terms
    history_ : History, losses per epoch, beginning with epoch 0: mean squared errors, or mean deviances of ``loss``; of
        several members the mean of theirs
    loss_ : ResponseLoss, the loss with its parameters
    calibration_ : Calibration, the scores of rows not seen before that ``predict_interval`` goes by; None for several
        responses
    members_ : tuple of Member, each with ``spline``, ``coordinates``, ``start_network``, ``history`` and ``held_out``,
        the numbers of the rows that it was not trained on
    oof_prediction_ : (N,) or (N, p) as y was, the predictions for the training rows by members that were not trained on
        them; NaN for rows of weight zero, and with a single network for all rows but the validation rows
    encoder_ : TableEncoder, from the table to the network's inputs
    start_network_ : nn.Sequential, ``network_`` before training
    coordinates_ : Coordinates, the means and stds that training standardised by
    limits_ : Limits, the range of the encoded features as they were trained on; ``outside(X)`` marks rows beyond it
    training_rows_ : TrainingRows, by which explanations know rows that were in the fit, validation rows included

    Examples
    --------
    >>> import knotwork as kw
    >>> X, y = kw.datasets.load_wine_quality("red")
    >>> model = kw.SplineNetRegressor(hidden=(64,), epochs=5, random_state=0).fit(X, y)
    >>> model.history_.validation_loss[model.history_.best_epoch] <= model.history_.validation_loss[0]
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SplineNetBase._parameter_constraints,
        **DECLARED_LOSS,
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
        weight_decay: float = 1e-2,
        warmup: float = 0.2,
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
        missing: str = "indicator",
        extrapolate: str = "clip",
        validation: Any = None,
        n_members: int | str = "auto",
        loss: str = "squared_error",
        quantile: float | None = None,
        power: float | None = None,
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
        self.loss = loss
        self.quantile = quantile
        self.power = power

    def _read(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> Problem:
        loss = response_loss(self.loss, self.quantile, self.power)
        matrix, response, weight, kept, encoder = read_regression(self, X, y, sample_weight)
        rows = Sample(matrix, response.reshape(len(response), -1), weight)
        weighted = sample_weight is not None
        goal: Loss = SquaredError()
        if loss != SQUARED_ERROR:
            values = one_response(response, loss)
            if loss.name == "huber":
                loss = replace(loss, width=huber_width(matrix, values, weight if weighted else None))
            goal = Deviance(loss)
        return Problem(rows, kept, weighted, encoder, goal, {"_flat_output": response.ndim == 1, "loss_": loss})

    @lazy_on_dask
    def predict(self, X: Any) -> Floats:
        """Predict the mean of y, or its quantile, by the network: (N, d) → (N,) or (N, p), as y was.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.SplineNetRegressor(hidden=(16,), epochs=2, n_members=1, random_state=0).fit(X, y)
        >>> model.predict(X.head(3)).shape
        (3,)
        """
        return self._predicted(self._run(X))

    def _held_outputs(self, responses: Floats) -> Limits | None:
        return held_outputs(responses, response_loss(self.loss, self.quantile, self.power), self.extrapolate)

    def _predicted(self, outputs: Floats) -> Floats:
        predicted = self.loss_.predict(outputs)
        return predicted[:, 0] if self._flat_output else predicted

    def _conform(
        self, problem: Problem, unseen: Floats, chains: Sequence[Chain], splits: Sequence[ValidationSplit]
    ) -> None:
        rows, self.calibration_ = problem.rows, None
        if rows.y.shape[1] > 1:
            return
        ensemble = None
        if len(chains) > 1:

            def each(X: Floats) -> Floats:
                return np.stack([self._predicted(evaluate(chain, X)).reshape(-1) for chain in chains])

            left_out = np.empty(len(rows), dtype=np.intp)
            for member, split in enumerate(splits):
                left_out[split.validation] = member
            ensemble = Ensemble(left_out, each)
        self.calibration_ = calibrate_intervals(
            rows.X,
            rows.y[:, 0],
            unseen.reshape(-1),
            lambda: self._predicted(evaluate(chains[0], rows.X)).reshape(-1),
            rows.weight,
            problem.encoder.feature_names,
            ensemble=ensemble,
        )
