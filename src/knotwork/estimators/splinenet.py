"""SplineNetRegressor: spline → network → training, as one scikit-learn estimator."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from torch import nn

from knotwork.estimators.inputs import (
    read_response,
    read_table,
    read_training_table,
    read_weights,
    unchanged_on_failure,
)
from knotwork.network.activations import NAMES, Activation, activation_rule
from knotwork.network.chain import build, evaluate, read_chain
from knotwork.network.coordinates import Coordinates, fold
from knotwork.network.reshape import FILLS
from knotwork.network.split import held_out
from knotwork.network.starts import fit_spline_to_width, kaiming, ridge_refit, spline_start
from knotwork.network.train import Part, TrainOptions, fit_network
from knotwork.progress import epoch_progress
from knotwork.spline.fit import FitOptions
from knotwork.spline.model import Floats, Spline
from knotwork.spline.workers import thread_count


class SplineNetRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """A ReLU network that starts as a spline fitted to the data and is trained on from there.

    Parameters
    ----------
    hidden : tuple of int, default (128, 128)
        Widths of the hidden layers.
    start : "spline" or "random", default "spline"
        "random" starts the same network from Kaiming's initialisation instead, to check the claim.
    activation : str or module, default "relu"
        One that a spline can be converted to.
    fill : "random", "hinge" or "zero", default "random"
        What the units beyond the spline's compute at first; see ``reshape``.
    max_terms, penalty, threshold : as in MarsRegressor
        The spline has at most as many terms as the first hidden layer can hold.
    ridge : float, default 1e-3
        Ridge of the spline's coefficients, in standardised units: large ones that cancel do not survive training.
    spline_fraction : float, default None
        Fit the spline to this share of the training rows and train the network on the others; None uses all for both.
    epochs, batch_size, learning_rate, weight_decay : int, int, float, float
        AdamW on mini-batches; the rate is the peak of a schedule with a linear warm-up and a half cosine.
    warmup : float, default 0.2
        Share of the steps before the peak.
    l1, dropout : float, default 0
        Sparsity, in units of the standardised loss, and the share of hidden units left out at each step.
    validation_fraction : float, default 0.15
        Share of the distinct rows held out; copies of a row stay on one side. The best epoch on them is kept.
    patience : int or None, default 30
        Epochs without improvement before training ends.
    average : float, default 10
        Epochs over which the weights are averaged; the average is what is validated and kept. It is what lets a large
        learning rate work on a good start without undoing it.
    device : str, default None
        Where to train; None is the CPU.
    random_state, n_jobs, verbose
        Seed (equal seeds give equal bits on the CPU), threads of the spline fit, progress bar.

    Attributes
    ----------
    network_ : nn.Sequential, float32, from the encoded raw features to the responses
    spline_ : Spline, what the network computed at epoch 0 (None for a random start)
    history_ : History, losses per epoch, beginning with epoch 0
    encoder_ : TableEncoder, from the table to the network's inputs
    start_network_ : nn.Sequential, ``network_`` before training
    coordinates_ : Coordinates, the means and deviations that training standardised by

    Examples
    --------
    >>> import knotwork as kw
    >>> X, y = kw.datasets.load_wine_quality("red")
    >>> model = kw.SplineNetRegressor(hidden=(64,), epochs=5, random_state=0).fit(X, y)
    >>> model.history_.validation_loss[model.history_.best_epoch] <= model.history_.validation_loss[0]
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "hidden": [tuple, list],
        "start": [StrOptions({"spline", "random"})],
        "activation": [StrOptions(set(NAMES)), nn.Module],
        "fill": [StrOptions(set(FILLS))],
        "max_terms": [Interval(Integral, 2, None, closed="left"), None],
        "penalty": [Interval(Real, -1, None, closed="left"), None],
        "threshold": [Interval(Real, 0, 1, closed="left")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "spline_fraction": [Interval(Real, 0, 1, closed="neither"), None],
        "epochs": [Interval(Integral, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "warmup": [Interval(Real, 0, 1, closed="left")],
        "l1": [Interval(Real, 0, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "patience": [Interval(Integral, 1, None, closed="left"), None],
        "average": [Interval(Real, 0, None, closed="left")],
        "device": [str, torch.device, None],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        hidden: tuple[int, ...] = (128, 128),
        start: str = "spline",
        activation: str | nn.Module = "relu",
        fill: str = "random",
        max_terms: int | None = None,
        penalty: float | None = None,
        threshold: float = 1e-3,
        ridge: float = 1e-3,
        spline_fraction: float | None = None,
        epochs: int = 100,
        batch_size: int = 128,
        learning_rate: float = 1e-2,
        weight_decay: float = 1e-2,
        warmup: float = 0.2,
        l1: float = 0.0,
        dropout: float = 0.0,
        validation_fraction: float = 0.15,
        patience: int | None = 30,
        average: float = 10.0,
        device: str | torch.device | None = None,
        random_state: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.hidden = hidden
        self.start = start
        self.activation = activation
        self.fill = fill
        self.max_terms = max_terms
        self.penalty = penalty
        self.threshold = threshold
        self.ridge = ridge
        self.spline_fraction = spline_fraction
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.l1 = l1
        self.dropout = dropout
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.average = average
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the spline, convert it, train the network: X (N, d) table or array, y (N,) or (N, p)."""
        with unchanged_on_failure(self):
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        table, encoder = read_training_table(self, X)
        matrix: Floats = np.asarray(table, dtype=np.float64)
        response = read_response(y, len(matrix))
        weight = np.ones(len(matrix))
        if sample_weight is not None:
            weight, kept = read_weights(sample_weight, matrix)
            matrix, response, weight = matrix[kept], response[kept], weight[kept]
        targets = response.reshape(len(response), -1)
        widths = tuple(int(w) for w in self.hidden)
        if not widths or min(widths) < 1:
            raise ValueError(f"hidden must name at least one layer, each of at least one unit, got {self.hidden!r}")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rule = activation_rule(self.activation)

        held = held_out(matrix, self.validation_fraction, seed)
        training, validation = ~held, held if held.any() else ~held
        for_spline = training
        if self.spline_fraction is not None and self.start == "spline":
            share = np.zeros(len(matrix), dtype=bool)
            share[training] = held_out(matrix[training], self.spline_fraction, seed + 1)
            for_spline, training = share, training & ~share
        coordinates = Coordinates.of(matrix[training], targets[training], weight[training])

        spline = None
        if self.start == "spline":
            rows = (matrix[for_spline], targets[for_spline], weight[for_spline])
            spline = self._fit_spline(rows, sample_weight is not None, encoder.feature_names, widths, rule, coordinates)
            rng = np.random.default_rng(seed)
            chain = spline_start(spline, coordinates, matrix[training], widths, rule, self.fill, rng)
            net = build(chain, torch.float64)
        else:
            net = kaiming(matrix.shape[1], widths, targets.shape[1], rule, seed)

        device = torch.device(self.device or "cpu")
        start = build(fold(read_chain(net), coordinates), torch.float32)
        # Small networks on a CPU lose little by double precision, and the order of the rows then hardly matters.
        net = net.to(device, torch.float64 if device.type == "cpu" else torch.float32)

        def part(rows: np.ndarray) -> Part:
            values = coordinates.features(matrix[rows]), coordinates.responses(targets[rows]), weight[rows]
            return Part(*(torch.from_numpy(v).to(device, next(net.parameters()).dtype) for v in values))

        options = TrainOptions(
            epochs=self.epochs, batch_size=self.batch_size, learning_rate=self.learning_rate,
            weight_decay=self.weight_decay, warmup=self.warmup, l1=self.l1, dropout=self.dropout,
            patience=self.patience, average=self.average,
        )  # fmt: skip
        with epoch_progress(bool(self.verbose), self.epochs) as report:
            history = fit_network(
                net, part(training), part(validation), options, seed=seed, unit=coordinates.y_scale**2, report=report
            )
        self.network_ = build(fold(read_chain(net), coordinates), torch.float32, device)
        self.start_network_ = start
        self.coordinates_ = coordinates
        self.spline_ = spline
        self.history_ = history
        self.encoder_ = encoder
        self._flat_output = response.ndim == 1

    def _fit_spline(
        self,
        rows: tuple[Floats, Floats, Floats],
        weighted: bool,
        names: tuple[str, ...],
        widths: tuple[int, ...],
        rule: Activation,
        coordinates: Coordinates,
    ) -> Spline:
        X, y, weight = rows
        options = FitOptions(
            max_terms=self.max_terms, penalty=self.penalty, threshold=self.threshold, threads=thread_count(self.n_jobs)
        )
        spline = fit_spline_to_width(X, y, weight if weighted else None, names, options, rule, widths[0])
        return ridge_refit(spline, X, y, weight, self.ridge, coordinates)

    def predict(self, X: Any) -> Floats:
        """Run the network: (N, d) → (N,) or (N, p), as y was."""
        matrix = np.asarray(read_table(self, X), dtype=np.float64)
        # In double precision: a row's prediction then does not depend on the rows beside it.
        values = evaluate(read_chain(self.network_), matrix)
        return values[:, 0] if self._flat_output else values
