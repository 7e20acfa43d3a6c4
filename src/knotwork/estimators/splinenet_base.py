"""What SplineNetRegressor and SplineNetClassifier share: spline → network → training."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from torch import nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates, fold
from knotwork.data.split import held_out
from knotwork.data.table import TableEncoder
from knotwork.estimators.inputs import read_table
from knotwork.network.activations import NAMES, Activation, activation_rule
from knotwork.network.chain import build, evaluate, read_chain
from knotwork.network.reshape import FILLS
from knotwork.network.start.choose import THRESHOLD, kaiming, spline_start
from knotwork.network.train.loop import Part, TrainOptions, fit_network
from knotwork.network.train.losses import LogLoss, Loss
from knotwork.progress import epoch_progress
from knotwork.spline.fit import FitOptions
from knotwork.spline.model import Spline
from knotwork.spline.workers import thread_count


def _spline_cost(spline: Spline, task: StartTask) -> float:
    """Return what a spline costs on the rows held back, in the coordinates of training."""
    X, y, weight = task.held_back
    outputs = torch.from_numpy(task.coordinates.responses(spline(X).reshape(len(X), -1)))
    costs = task.loss.rows(outputs, torch.from_numpy(task.loss.targets(y, task.coordinates))).numpy()
    return float(weight @ costs / weight.sum())


def _first_best(splines: Iterable[Spline], task: StartTask) -> tuple[Spline, float]:
    """Take splines while the rows held back gain by it; return the last that they gain by, and its cost."""
    best: tuple[Spline, float] | None = None
    for spline in splines:
        cost = _spline_cost(spline, task)
        if best is not None and not cost < best[1]:
            break
        best = spline, cost
    assert best is not None
    return best


# Fewer rows make up interactions that are not there: on five tables of 200 to 400 rows a spline that may have them was
# worse on other rows in three splits of five.
LEAST_ROWS = 400
# Rows (N, d), targets (N, …) and weights (N,).
Rows = tuple[Floats, NDArray[Any], Floats]


@dataclass(frozen=True)
class StartTask:
    """What a spline to start from is fitted to, and fitted for.

    rows, held_back : to fit to, and to choose by
    weighted : whether the weights are anything but ones
    names : of the features
    widths, rule, coordinates, loss : the network's hidden layers, activation, coordinates of training and loss
    """

    rows: Rows
    held_back: Rows
    weighted: bool
    names: tuple[str, ...]
    widths: tuple[int, ...]
    rule: Activation
    coordinates: Coordinates
    loss: Loss


class SplineNetBase(BaseEstimator):
    """A network that starts as a spline; subclasses fit the spline and name the loss."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "hidden": [tuple, list],
        "start": [StrOptions({"spline", "random"})],
        "activation": [StrOptions(set(NAMES)), nn.Module],
        "fill": [StrOptions(set(FILLS))],
        "max_terms": [Interval(Integral, 2, None, closed="left"), None],
        "max_degree": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "penalty": [Interval(Real, -1, None, closed="left"), None],
        "threshold": [Interval(Real, 0, 1, closed="left")],
        "ridge": [Interval(Real, 0, None, closed="left"), StrOptions({"auto"})],
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
        "setback": [Interval(Real, 0, None, closed="left"), None],
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
        max_degree: int | str = "auto",
        penalty: float | None = None,
        threshold: float = THRESHOLD,
        ridge: float | str = "auto",
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
        setback: float | None = 0.05,
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
        self.max_degree = max_degree
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
        self.setback = setback
        self.average = average
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _fit_splines(self, task: StartTask, options: FitOptions) -> Iterable[Spline]:
        """Fit splines that a network may start as, to be taken until one is worse than the one before.

        Their terms must fit into the layers.
        """
        raise NotImplementedError

    def _interacting(self, spline: Spline, rows: Rows) -> list[tuple[int, ...]]:
        """Return sets of features to search for interactions in, by what a spline without them leaves of its rows."""
        raise NotImplementedError

    def _fit_start(self, task: StartTask) -> Spline:
        """Fit the splines to choose from, and choose by the rows held back from them."""
        first, *more = self._degrees(len(task.widths), task.rows[2].sum(), task.loss)
        options = FitOptions(
            max_terms=self.max_terms, max_degree=first, penalty=self.penalty, threshold=self.threshold,
            threads=thread_count(self.n_jobs),
        )  # fmt: skip
        simple, cost = _first_best(self._fit_splines(task, options), task)
        candidates = [(simple, cost)]
        for degree in more:
            for features in self._interacting(simple, task.rows):
                options = replace(options, max_degree=degree, interacting=features)
                candidates.append(_first_best(self._fit_splines(task, options), task))
        return min(candidates, key=lambda candidate: candidate[1])[0]

    def _degrees(self, layers: int, rows: float, loss: Loss) -> tuple[int, ...]:
        """Return the degrees to choose from; each takes a hidden layer."""
        # With many classes a search for interactions takes as long as a dozen epochs, and rarely finds any that last.
        many = isinstance(loss, LogLoss) and loss.outputs > 1
        automatic = (1, 2) if rows >= LEAST_ROWS and not many else (1,)
        degrees = automatic if isinstance(self.max_degree, str) else (int(self.max_degree),)
        return tuple(degree for degree in degrees if degree <= layers) or (layers,)

    def _fit_network(
        self,
        rows: Rows,
        weighted: bool,
        encoder: TableEncoder,
        loss: Loss,
        outputs: int,
    ) -> None:
        """Split the rows, fit the spline, convert it, train: sets the fitted attributes."""
        matrix, targets, weight = rows
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
        coordinates = loss.coordinates(matrix[training], targets[training], weight[training])

        spline = None
        if self.start == "spline":
            fitted, held_back = ((matrix[r], targets[r], weight[r]) for r in (for_spline, validation))
            task = StartTask(fitted, held_back, weighted, encoder.feature_names, widths, rule, coordinates, loss)
            spline = self._fit_start(task)
            rng = np.random.default_rng(seed)
            chain = spline_start(spline, coordinates, matrix[training], widths, rule, self.fill, rng)
            net = build(chain, torch.float64)
        else:
            net = kaiming(matrix.shape[1], widths, outputs, rule, seed)

        device = torch.device(self.device or "cpu")
        start = build(fold(read_chain(net), coordinates), torch.float32)
        # Small networks on a CPU lose little by double precision, and the order of the rows then hardly matters.
        net = net.to(device, torch.float64 if device.type == "cpu" else torch.float32)

        def part(rows: NDArray[np.bool_]) -> Part:
            dtype = next(net.parameters()).dtype
            return Part.of((matrix[rows], targets[rows], weight[rows]), loss, coordinates, device, dtype)

        options = TrainOptions(
            epochs=self.epochs, batch_size=self.batch_size, learning_rate=self.learning_rate,
            weight_decay=self.weight_decay, warmup=self.warmup, l1=self.l1, dropout=self.dropout,
            patience=self.patience, setback=self.setback, average=self.average,
        )  # fmt: skip
        with epoch_progress(bool(self.verbose), self.epochs) as report:
            history = fit_network(
                net,
                part(training),
                part(validation),
                options,
                seed=seed,
                loss=loss,
                unit=loss.unit(coordinates),
                report=report,
            )
        self.network_ = build(fold(read_chain(net), coordinates), torch.float32, device)
        self.start_network_ = start
        self.coordinates_ = coordinates
        self.spline_ = spline
        self.history_ = history
        self.encoder_ = encoder

    def _run(self, X: Any) -> Floats:
        """Run the network on a table: (N, d) → (N, outputs)."""
        matrix = np.asarray(read_table(self, X), dtype=np.float64)
        # In double precision: a row's prediction then does not depend on the rows beside it.
        return evaluate(read_chain(self.network_), matrix)
