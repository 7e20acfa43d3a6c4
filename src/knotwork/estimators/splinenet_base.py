"""What SplineNetRegressor and SplineNetClassifier share: read → choose a start → build → train → set attributes."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import _num_samples
from torch import nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.data.limits import Limits, learn_limits, range_of
from knotwork.data.sample import Sample
from knotwork.data.split import held_out
from knotwork.data.table import TableEncoder
from knotwork.errors import DataError
from knotwork.estimators.base import MISSING, Estimator
from knotwork.estimators.inputs import read_table
from knotwork.estimators.validation import ValidationSplit, choose_split
from knotwork.network.activations import NAMES, activation_rule
from knotwork.network.chain import Chain, Conversion, build, enough_for, evaluate, read_chain
from knotwork.network.devices import read_device
from knotwork.network.limits import read_widths, require_room
from knotwork.network.reshape import FILLS
from knotwork.network.start.choose import THRESHOLD, StartOptions, StartTask, choose_start
from knotwork.network.start.initial import kaiming, spline_start
from knotwork.network.train.checkpoint import Checkpoint
from knotwork.network.train.loop import TrainOptions, fit_network
from knotwork.network.train.losses import Loss
from knotwork.network.train.rows import Part
from knotwork.progress import epoch_progress
from knotwork.spline.model import Spline


@dataclass(frozen=True)
class Problem:
    """What a network is to learn.

    rows : of positive weight; kept : their numbers in the table, None if these are all
    weighted : whether the weights are anything but ones
    encoder : from the table to the rows
    attributes : fitted ones that follow from y alone
    """

    rows: Sample
    kept: NDArray[np.intp] | None
    weighted: bool
    encoder: TableEncoder
    loss: Loss
    attributes: dict[str, Any]

    def held_at(self, limits: Limits) -> Problem:
        """Return the same with features held at limits."""
        if not limits.outside(self.rows.X).any():
            return self
        return replace(self, rows=replace(self.rows, X=limits.hold(self.rows.X)))


@dataclass(frozen=True)
class Split:
    """Rows to train on, to validate on, and to fit the spline to."""

    training: Sample
    validation: Sample
    for_spline: Sample


class SplineNetBase(Estimator):
    """A network that starts as a spline; subclasses read what it is to learn and name the loss."""

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
        "checkpoint": [str, os.PathLike, None],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
        "missing": MISSING,
        "extrapolate": [StrOptions({"clip", "linear"})],
        "validation": [HasMethods(["split", "get_n_splits"]), HasMethods("__iter__"), None],
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
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        missing: str = "indicator",
        extrapolate: str = "clip",
        validation: Any = None,
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
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.missing = missing
        self.extrapolate = extrapolate
        self.validation = validation

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, *, groups: ArrayLike | None = None
    ) -> Self:
        """Fit to a table or an array.

        Parameters
        ----------
        X : (N, d) data frame of any library, or array
        y : (N,) or (N, p) numbers for a regressor; (N,) labels of any kind for a classifier
        sample_weight : (N,) not negative; a row of weight zero counts like one that is not there
        groups : (N,) a label for each row, for the splitter that ``validation`` is

        Returns
        -------
        The estimator. If the fit fails, it is as it was before.
        """
        with self._unchanged_on_failure():
            self._fit(X, y, sample_weight, groups)
        return self

    def _read(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> Problem:
        """Read what the network is to learn."""
        raise NotImplementedError

    @torch.inference_mode(False)  # the caller may be inside it, or inside no_grad
    @torch.enable_grad()
    def _fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None = None) -> None:
        problem = self._read(X, y, sample_weight)
        limits = None
        if self.extrapolate == "clip":
            limits = learn_limits(problem.rows.X, problem.rows.weight if problem.weighted else None)
            problem = problem.held_at(limits)
        checkpoint = None if self.checkpoint is None else Checkpoint(self.checkpoint)
        seed = checkpoint.seed() if checkpoint is not None and self.random_state is None else None
        if seed is None:
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        split = self._split(problem, self._validation_rows(problem, X, y, groups, seed), seed)
        loss = problem.loss
        coordinates = loss.coordinates(split.training.X, split.training.y, split.training.weight)
        coordinates = replace(coordinates, limits=limits)
        spline, start = self._start(problem, split, coordinates, seed)

        device = read_device(self.device)
        # Small networks on a CPU lose little by double precision, and the order of the rows then hardly matters.
        dtype = torch.float64 if device.type == "cpu" else torch.float32
        net = build(start, dtype, device)
        options = TrainOptions(
            epochs=self.epochs, batch_size=self.batch_size, learning_rate=self.learning_rate,
            weight_decay=self.weight_decay, warmup=self.warmup, l1=self.l1, dropout=self.dropout,
            patience=self.patience, setback=self.setback, average=self.average,
        )  # fmt: skip
        with epoch_progress(bool(self.verbose), self.epochs) as report:
            history = fit_network(
                net,
                Part.of(split.training, loss, coordinates, device, dtype),
                Part.of(split.validation, loss, coordinates, device, dtype),
                options,
                seed=seed,
                loss=loss,
                unit=loss.unit(coordinates),
                report=report,
                checkpoint=checkpoint,
            )
        # A trained network is what it is, whatever it was converted from.
        trained = replace(read_chain(net).with_scaling(coordinates), conversion=Conversion())
        start = start.with_scaling(coordinates)
        self.network_ = build(trained, enough_for(trained, torch.float32), device)
        self.start_network_ = build(start, enough_for(start, torch.float32))
        self.coordinates_ = coordinates
        self.limits_ = range_of(problem.rows.X) if limits is None else limits
        self.spline_ = None if spline is None else replace(spline, limits=limits)
        self.history_ = history
        self.encoder_ = problem.encoder.with_means(coordinates.x_centre)
        self.__dict__.update(problem.attributes)
        if checkpoint is not None:
            checkpoint.remove()

    def _validation_rows(
        self, problem: Problem, X: Any, y: ArrayLike, groups: ArrayLike | None, seed: int
    ) -> ValidationSplit:
        """Choose the rows of the problem to train on and to validate on."""
        rows = problem.rows
        if self.validation is None:
            if groups is not None:
                raise DataError(
                    "groups are for a splitter, got groups and validation=None; pass "
                    "validation=GroupShuffleSplit(1, test_size=0.15), say"
                )
            held = held_out(rows.X, self.validation_fraction, seed)
            training = np.flatnonzero(~held)
            return ValidationSplit(training, np.flatnonzero(held) if held.any() else training)
        count = _num_samples(y)
        split = choose_split(self.validation, X, y, groups, count)
        if problem.kept is not None:
            split = split.within(problem.kept, count)
        sides = len(split.training), len(split.validation)
        if not all(sides):
            raise DataError(
                f"validation must leave rows of positive weight to train on and to validate on, got {sides[0]} and "
                f"{sides[1]} of {len(rows)}; choose another split"
            )
        self._require_trainable(problem, split.training)
        return split

    def _require_trainable(self, problem: Problem, training: NDArray[np.intp]) -> None:
        """Refuse training rows, chosen by the user, that do not show all there is to learn."""

    def _split(self, problem: Problem, chosen: ValidationSplit, seed: int) -> Split:
        """Take the rows, and rows for the spline if it is to have its own."""
        rows, training = problem.rows, chosen.training
        validation = rows.take(chosen.validation)
        if self.spline_fraction is None or self.start != "spline":
            own = rows.take(training)
            return Split(own, validation, own)
        for_spline = held_out(rows.X[training], self.spline_fraction, seed + 1)
        return Split(rows.take(training[~for_spline]), validation, rows.take(training[for_spline]))

    def _start(
        self, problem: Problem, split: Split, coordinates: Coordinates, seed: int
    ) -> tuple[Spline | None, Chain]:
        """Return the spline that the network starts as (None for a random start) and the network, standardised."""
        widths = read_widths(self.hidden)
        require_room((split.training.X.shape[1], *widths, len(coordinates.y_centre)))
        rule = activation_rule(self.activation)
        X = split.training.X
        if self.start == "random":
            return None, read_chain(kaiming(X.shape[1], widths, len(coordinates.y_centre), rule, seed))
        task = StartTask(
            split.for_spline, split.validation, problem.weighted, problem.encoder.feature_names, widths, rule,
            coordinates, problem.loss,
        )  # fmt: skip
        options = StartOptions(self.max_terms, self.max_degree, self.penalty, self.threshold, self.ridge, self.n_jobs)
        spline = choose_start(task, options)
        return spline, spline_start(spline, coordinates, X, widths, rule, self.fill, np.random.default_rng(seed))

    def _run(self, X: Any) -> Floats:
        """Run the network on a table: (N, d) → (N, outputs)."""
        matrix = np.asarray(read_table(self, X), dtype=np.float64)
        # In double precision: a row's prediction then does not depend on the other rows.
        return evaluate(read_chain(self.network_), matrix)
