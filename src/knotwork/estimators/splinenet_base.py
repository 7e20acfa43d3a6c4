"""What SplineNetRegressor and SplineNetClassifier share: read → choose a start → build → train → set attributes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import _num_samples
from torch import nn

from knotwork.arrays import Floats
from knotwork.data.columns.part import read_parts
from knotwork.data.coordinates import Coordinates, robust
from knotwork.data.limits import Limits, learn_limits, range_of
from knotwork.data.sample import Sample
from knotwork.data.split import held_out
from knotwork.data.training_rows import TrainingRows
from knotwork.errors import DataError, ParameterError
from knotwork.estimators.base import MISSING, Estimator, checks_parameters
from knotwork.estimators.inputs import read_table
from knotwork.estimators.members import Member, MemberRows, average_spline, fold_splits, member_rows, out_of_fold
from knotwork.estimators.problem import Problem, batch_size_for
from knotwork.estimators.ranked import first_says, ranks_of, read_ranks
from knotwork.estimators.sampled import Sampled, read_sampled
from knotwork.estimators.sources import open_source
from knotwork.estimators.validation import ValidationSplit, choose_split
from knotwork.network.activations import NAMES, Activation, activation_rule
from knotwork.network.chain import Chain, Conversion, build, enough_for, evaluate, read_chain
from knotwork.network.devices import read_device
from knotwork.network.limits import read_widths, require_room
from knotwork.network.members import Stacked, alike, joined
from knotwork.network.reshape import FILLS
from knotwork.network.rewire import chain_with_outputs
from knotwork.network.start.choose import choose_start
from knotwork.network.start.initial import kaiming, spline_start
from knotwork.network.start.task import THRESHOLD, StartOptions, StartTask
from knotwork.network.train.buffer import Buffered
from knotwork.network.train.checkpoint import Checkpoint
from knotwork.network.train.loop import TrainOptions, fit_network
from knotwork.network.train.losses import LogLoss
from knotwork.network.train.ranks import Ranks, joined_ranks
from knotwork.network.train.rows import Folds, Part, stacked_parts
from knotwork.progress import epoch_progress
from knotwork.spline.model import Spline

# Members of n_members="auto", and the rows beyond which it is one: there the time counts more.
MEMBERS, MAX_ROWS = 8, 50_000
# Layers of hidden="auto", of one network and of several. On 28 tables three layers of members had 1.2 % less error
# (regression) and 1.8 % less log-loss than two, and cost a sixth of the time more.
LAYERS = {False: (128, 128), True: (128, 128, 128)}
# Rows up to which members are trained in double precision on a CPU.
MAX_DOUBLE = 1024
# Rows of each member whose training loss is measured after an epoch, unless it has fewer.
MIN_LOOKED_AT = 1024


class SplineNetBase(Estimator):
    """A network that starts as a spline; subclasses read what it is to learn and name the loss."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "hidden": [tuple, list, StrOptions({"auto"})],
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
        "batch_size": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
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
        "n_members": [Interval(Integral, 1, None, closed="left"), StrOptions({"auto"})],
        "monotonic_cst": ["array-like", dict, None],
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
        monotonic_cst: Any = None,
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
        self.n_members = n_members
        self.monotonic_cst = monotonic_cst

    @checks_parameters
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: ArrayLike | None = None) -> Self:
        """Fit to a table or an array, or to rows that are larger than memory.

        Parameters
        ----------
        X : (N, d) data frame of any library, or array. Also what MarsRegressor reads in parts, a Parquet file say: the
            start is fitted to all rows, and the network trained on them as they are read, shuffled within a buffer; of
            Dask collections on a uniform sample of at most 65,536, with a warning. Inside ``torchrun``, once
            ``torch.distributed`` is initialised, the rows of this process: all processes fit one network together
        y : (N,) or (N, p) numbers for a regressor; (N,) labels of any kind for a classifier; given as there
        sample_weight : (N,) not negative; a row of weight zero counts like one that is not there
        groups : (N,) a label for each row, for the splitter that ``validation`` is

        Returns
        -------
        The estimator. If the fit fails, it is as it was before.

        Examples
        --------
        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> kw.SplineNetRegressor(hidden=(16,), epochs=2, n_members=1, random_state=0).fit(X, y)
        SplineNetRegressor(epochs=2, hidden=(16,), n_members=1, random_state=0)
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
        if self.monotonic_cst is not None:
            raise ParameterError(
                "monotonic_cst is for MarsRegressor and MarsClassifier, training does not keep a network monotone; fit "
                "one of these, to_network(model) is a network of it"
            )
        ranks = ranks_of(self)
        sampled = self._sampled(X, y, sample_weight, ranks)
        if sampled is not None:
            if groups is not None:
                raise DataError("groups are for rows in memory, got them with rows in parts; leave them out")
            X, y, sample_weight = sampled.survey.X, sampled.survey.y, sampled.survey.weight
        problem = self._read(X, y, sample_weight) if sampled is None else sampled.read(self)
        training_rows = None  # those of a large source were never all here
        if sampled is None or sampled.is_all:
            training_rows = TrainingRows.of(problem.rows.X, problem.rows.y, problem.encoder)
        limits = None
        if self.extrapolate == "clip":
            limits = learn_limits(problem.rows.X, problem.rows.weight if problem.weighted else None)
            problem = problem.held_at(limits)
        checkpoint, seed = first_says(ranks, self._file_and_seed)
        splits = self._splits(problem, X, y, groups, seed, in_parts=sampled is not None)
        several = len(splits) > 1
        loss, rows = problem.loss, problem.rows
        choosing = self.validation_fraction if several else None
        apart = self.spline_fraction if self.start == "spline" else None
        parts = [member_rows(rows, split, seed + k, choosing=choosing, spline=apart) for k, split in enumerate(splits)]
        if sampled is not None:
            held = np.setdiff1d(splits[0].validation, splits[0].training)
            sampled = sampled.without(rows.X[held], limits, seed)
        measured = rows if several else rows.take(parts[0].training)
        responses = measured.y if sampled is None or sampled.is_all else sampled.responses
        coordinates = loss.coordinates(measured.X, measured.y, measured.weight)
        coordinates = replace(coordinates, limits=limits, y_limits=self._held_outputs(responses))
        del measured  # may be a copy as large as the table
        loss = loss.within(coordinates)
        problem = replace(problem, loss=loss)
        rule = activation_rule(self.activation)
        inside = [coordinates] * len(parts)
        if several:
            inside[1::2] = [robust(coordinates, rows.X, rows.weight if problem.weighted else None)] * (len(parts) // 2)
        widths = LAYERS[several] if isinstance(self.hidden, str) else read_widths(self.hidden)
        splines = [self._spline(problem, part, coordinates, rule, widths, sampled) for part in parts]
        chains = [
            self._start(spline, rows.X[part.training], own, rule, widths, seed + k)
            for k, (spline, part, own) in enumerate(zip(splines, parts, inside, strict=True))
        ]

        device = read_device(self.device)
        # Small fits on a CPU lose little by double precision, and the order of the rows then hardly matters.
        streams = sampled is not None and sampled.streams
        small = not (several or streams) or len(rows) <= MAX_DOUBLE
        dtype = torch.float64 if device.type == "cpu" and small else torch.float32
        net = Stacked(chains, dtype, device) if several else build(chains[0], dtype, device)
        training: Part | Folds | Buffered
        training, validation = self._tables(problem, parts, inside, device, dtype)
        own_size = not isinstance(self.batch_size, str)
        size = int(self.batch_size) if own_size else batch_size_for(min(len(part.training) for part in parts))
        if ranks is not None and not own_size:
            size = max(1, size // ranks.count)
        options = TrainOptions(
            epochs=self.epochs, batch_size=size, learning_rate=self.learning_rate,
            weight_decay=self.weight_decay, warmup=self.warmup, l1=self.l1, dropout=self.dropout,
            patience=self.patience, setback=self.setback, average=self.average,
        )  # fmt: skip
        shows = bool(self.verbose) and (ranks is None or ranks.is_first)
        with epoch_progress(shows, self.epochs) as report, joined_ranks(device) as trainers:
            if sampled is not None:
                assert isinstance(training, Part)
                assert isinstance(validation, Part)
                of_rows = None if report is None else report.rows
                training, validation = sampled.tables(loss, coordinates, training, validation, of_rows)
            trained = fit_network(
                net,
                training,
                validation,
                options,
                seed=seed,
                loss=loss,
                unit=loss.unit(coordinates),
                report=report,
                checkpoint=checkpoint,
                ranks=trainers,
            )
        # A trained network is what it is, whatever it was converted from.
        ends = net.chains(rule) if isinstance(net, Stacked) else [read_chain(net)]
        conversion = Conversion(link=problem.link)
        ends = [replace(end.with_scaling(own), conversion=conversion) for end, own in zip(ends, inside, strict=True)]
        if isinstance(loss, LogLoss) and loss.outputs > 1:
            ends = [chain.with_centred_outputs() for chain in ends]
        begins = [chain.with_scaling(own).with_link(problem.link) for chain, own in zip(chains, inside, strict=True)]
        precision = enough_for(ends[0].scaling, torch.float32)
        self.__dict__.update(problem.attributes)
        trained_chains = [read_chain(build(end, precision)) for end in ends]
        unseen = out_of_fold(trained_chains, splits, rows.X)
        factor = self._output_factor(problem, unseen)
        if factor != 1.0:
            gain, unseen = np.full(unseen.shape[1], factor), unseen * factor
            ends = [chain_with_outputs(end, gain, np.zeros(len(gain))) for end in ends]
        self.network_ = build(joined(alike(ends)), precision, device, batched=True)
        self.start_network_ = build(joined(alike(begins)), precision, batched=True)
        self.coordinates_ = coordinates
        self.limits_ = range_of(rows.X) if limits is None else limits
        self.training_rows_ = training_rows
        read = read_parts(problem.encoder.parts, rows.X)
        y_limits = coordinates.y_limits
        splines = [
            None if spline is None else replace(spline, limits=limits, parts=read, output_limits=y_limits)
            for spline in splines
        ]
        self.spline_ = average_spline(splines)
        self.history_ = trained.history
        kept = np.arange(len(rows)) if problem.kept is None else problem.kept
        self.members_ = tuple(
            Member(spline, own, build(begin, precision), history, kept[split.validation])
            for spline, own, begin, history, split in zip(splines, inside, begins, trained.members, splits, strict=True)
        )
        predicted = self._predicted(unseen)
        self.oof_prediction_ = np.full((_num_samples(y), *predicted.shape[1:]), np.nan)
        self.oof_prediction_[kept] = predicted
        self.encoder_ = problem.encoder.with_means(coordinates.x_centre)
        self._conform(problem, predicted, trained_chains, splits)
        if checkpoint is not None:
            checkpoint.remove()

    def _sampled(self, X: Any, y: Any, sample_weight: Any, ranks: Ranks | None) -> Sampled | None:
        """Return the sample of rows that are not all here, None of a table in memory."""
        if ranks is not None:
            return read_ranks(self, X, y, sample_weight, ranks)
        opened = open_source(X, y, sample_weight)
        return None if opened is None else read_sampled(self, opened, show=bool(self.verbose))

    def _file_and_seed(self) -> tuple[Checkpoint | None, int]:
        """Return the file of the training's state, and the seed: that of the file, or of ``random_state``."""
        checkpoint = None if self.checkpoint is None else Checkpoint(self.checkpoint)
        seed = checkpoint.seed() if checkpoint is not None and self.random_state is None else None
        return checkpoint, int(check_random_state(self.random_state).randint(2**31 - 1)) if seed is None else seed

    def _predicted(self, outputs: Floats) -> Floats:
        """Return what outputs of the network say: responses, or probabilities of classes."""
        raise NotImplementedError

    def _held_outputs(self, responses: Floats) -> Limits | None:
        """Return what outputs are held at, given the responses or the ends of their range; None for nothing."""
        return None

    def _output_factor(self, problem: Problem, unseen: Floats) -> float:
        """Return what the outputs of the trained network are multiplied by, given those of rows not seen before."""
        return 1.0

    def _conform(
        self, problem: Problem, unseen: Floats, chains: Sequence[Chain], splits: Sequence[ValidationSplit]
    ) -> None:
        """Set what intervals or sets come from: predictions of rows not seen before, the members, and their rows."""
        raise NotImplementedError

    def _splits(
        self, problem: Problem, X: Any, y: ArrayLike, groups: ArrayLike | None, seed: int, *, in_parts: bool
    ) -> list[ValidationSplit]:
        """Choose the rows of the problem that each member is trained on and validated on."""
        asked = not isinstance(self.n_members, str)
        split = self.validation is not None or groups is not None
        alone = split or in_parts or len(problem.rows) > MAX_ROWS
        members = int(self.n_members) if asked else 1 if alone else MEMBERS
        if members > 1:
            if in_parts:  # the spline that they would start as has seen all rows
                raise DataError(
                    f"members leave rows out from the start, of a table in memory, got rows in parts and "
                    f"n_members={members}; set n_members=1"
                )
            if split:
                given = "groups" if self.validation is None else f"validation={type(self.validation).__name__}"
                raise DataError(
                    f"members leave out folds of the rows' own, validation and groups are for a single network, got "
                    f"{given} and n_members={members}; set n_members=1"
                )
            splits = fold_splits(problem.rows, members, seed, isinstance(problem.loss, LogLoss), warns=asked)
            if splits:
                return splits
        return [self._validation_rows(problem, X, y, groups, seed)]

    def _tables(
        self,
        problem: Problem,
        parts: Sequence[MemberRows],
        inside: Sequence[Coordinates],
        device: torch.device,
        dtype: torch.dtype,
    ) -> tuple[Part | Folds, Part | Folds]:
        """Return the rows to train on and to validate on as the loop takes them, in the coordinates of each member."""

        def part(rows: Sample, c: Coordinates) -> Part:
            return Part.of(rows, problem.loss, c, device, dtype)

        rows = problem.rows
        if len(parts) == 1:
            own = parts[0]
            return part(rows.take(own.training), inside[0]), part(rows.take(own.validation), inside[0])
        # The table once in each of the two coordinates.
        table = stacked_parts([part(rows, c) for c in inside[:2]])
        first = [len(rows) * (k % 2) for k in range(len(parts))]
        validation = Folds.of(table, [own.validation + k for own, k in zip(parts, first, strict=True)])
        # Members look at as many training rows as held-out ones after an epoch: at all it would take half as long as
        # the epoch itself.
        looked_at = max(MIN_LOOKED_AT, max(validation.counts))
        return Folds.of(table, [own.training + k for own, k in zip(parts, first, strict=True)], looked_at), validation

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

    def _spline(
        self,
        problem: Problem,
        part: MemberRows,
        coordinates: Coordinates,
        rule: Activation,
        widths: tuple[int, ...],
        sampled: Sampled | None = None,
    ) -> Spline | None:
        """Choose the spline that a member starts as, None for a random start."""
        rows = problem.rows
        require_room((rows.X.shape[1], *widths, len(coordinates.y_centre)))
        if self.start == "random":
            return None
        refit = None if part.refit is None else rows.take(part.refit)
        task = StartTask(
            rows.take(part.spline), rows.take(part.choosing), problem.weighted, problem.encoder.feature_names, widths,
            rule, coordinates, problem.loss, refit,
        )  # fmt: skip
        options = StartOptions(self.max_terms, self.max_degree, self.penalty, self.threshold, self.ridge, self.n_jobs)
        return choose_start(task, options) if sampled is None else sampled.start(task, options)

    def _start(
        self,
        spline: Spline | None,
        X: Floats,
        coordinates: Coordinates,
        rule: Activation,
        widths: tuple[int, ...],
        seed: int,
    ) -> Chain:
        """Return the network that a member starts as, in the coordinates of its training."""
        if spline is None:
            return read_chain(kaiming(X.shape[1], widths, len(coordinates.y_centre), rule, seed))
        return spline_start(spline, coordinates, X, widths, rule, self.fill, np.random.default_rng(seed))

    def _run(self, X: Any) -> Floats:
        """Run the network on a table: (N, d) → (N, outputs)."""
        matrix = np.asarray(read_table(self, X), dtype=np.float64)
        # In double precision: a row's prediction then does not depend on the other rows.
        return evaluate(read_chain(self.network_), matrix)
