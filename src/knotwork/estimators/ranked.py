"""Networks for rows on the ranks of ``torch.distributed``: each rank has its own rows, and all train one network.

The survey of all rows, and a sample of them, are the same on every rank, and so is what follows from these: how columns
are encoded, coordinates, limits, the rows that are held out. The start is fitted to the sums over all rows; every rank
then trains on its own rows and validates on its share of those held out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch

from knotwork.arrays import Floats
from knotwork.data.batches import MEMORY_LIMIT, IterableSource, Rows
from knotwork.data.coordinates import Coordinates
from knotwork.data.limits import Limits
from knotwork.data.part_reader import Part
from knotwork.data.sample import Sample
from knotwork.errors import DataError
from knotwork.estimators.sampled import Sampled, read_sampled
from knotwork.estimators.sources import Opened, open_source
from knotwork.network.devices import read_device
from knotwork.network.start.parts import start_of_parts
from knotwork.network.start.ranks import RanksSource, gathered, together
from knotwork.network.start.task import StartOptions, StartTask
from knotwork.network.train import rows as table
from knotwork.network.train.checkpoint import described
from knotwork.network.train.losses import Deviance, Loss
from knotwork.network.train.ranks import Ranks, rank_count
from knotwork.spline.model import Spline

T = TypeVar("T")
# Parameters that ranks may differ in: files, seeds and the progress bar are rank 0's, threads and devices their own.
OWN = {"checkpoint", "random_state", "verbose", "n_jobs", "device"}
# Rows that a rank trains on at least, as in kw.train.
MIN_ROWS = 2


def ranks_of(model: Any) -> Ranks | None:
    """Return the processes that fit an estimator together, None for one alone; all must have the same parameters."""
    if rank_count() == 1:
        return None
    ranks = Ranks(read_device(model.device))
    own = {name: described(value) for name, value in model.get_params(deep=False).items() if name not in OWN}
    ranks.require_same({"estimators": type(model).__name__, **own})
    return ranks


@dataclass(frozen=True)
class Ranked(Sampled):
    """The rows of this rank, and what is known of those of all ranks.

    ranks : the processes; rows : of this one, as they came
    own : those of them to train on, encoded, None before that is known
    """

    ranks: Ranks | None = None
    rows: Rows | None = None
    own: Part | None = None

    @property
    def streams(self) -> bool:
        """Whether there are other rows than the sample's."""
        return not self.is_all

    def without(self, X: Floats, limits: Limits | None, seed: int) -> Ranked:
        """Return the same less some rows, (N, d) encoded and held at limits; this rank's others are encoded here."""
        found = super().without(X, limits, seed)
        assert isinstance(found, Ranked)
        assert self.rows is not None
        with together():
            own = found._encoded(self.rows)
            if len(own.X) < MIN_ROWS:
                raise DataError(
                    f"every rank needs {MIN_ROWS} rows to train on, this one has {len(own.X)} beside those held out; "
                    f"give it more"
                )
        return replace(found, own=own)

    def start(self, task: StartTask, options: StartOptions) -> Spline:
        """Fit the spline that a network begins as to the rows of all ranks that are not held out."""
        assert self.own is not None
        assert self.rows is not None
        source = RanksSource(Rows(self.own.X, self.own.y, self.own.weight, self.rows.number))
        sample = Part(task.rows.X, task.rows.y, task.weights)
        return start_of_parts(source, sample, task, options, memory_limit=self.memory_limit)

    def tables(
        self, loss: Loss, coordinates: Coordinates, training: table.Part, validation: table.Part, report: Any = None
    ) -> tuple[table.Part, table.Part]:
        """Return this rank's rows to train on and its share of those to validate on, in the network's coordinates."""
        own, ranks = self.own, self.ranks
        assert own is not None
        assert ranks is not None
        with together():
            if isinstance(loss, Deviance):
                loss.loss.check(own.y)
        largest = max(gathered(float(own.weights.max())))
        rows = Sample(own.X, own.y, own.weights)
        mine = table.Part.of(
            rows, loss, coordinates, training.device, training.weight.dtype, training.x.dtype, largest
        )  # fmt: skip
        return mine, validation.at(torch.arange(ranks.rank, len(validation), ranks.count, device=validation.device))


def read_ranks(model: Any, X: Any, y: Any, sample_weight: Any, ranks: Ranks) -> Ranked:
    """Survey the rows of all ranks for a network; X, y and sample_weight are those of this one, in memory."""
    with together():
        if open_source(X, y, sample_weight) is not None:
            raise DataError(
                f"inside torchrun every rank passes a table or an array of its own rows, got a {type(X).__name__} that "
                f"is read in parts; load this rank's part of it, or fit in one process"
            )
        (rows,) = IterableSource([(X, y) if sample_weight is None else (X, y, sample_weight)], None, None).parts(None)
        rows = replace(rows, number=ranks.rank)
    found = read_sampled(model, Opened(RanksSource(rows), MEMORY_LIMIT), show=bool(model.verbose) and ranks.is_first)
    return Ranked(found.source, found.survey, found.reader, found.memory_limit, ranks=ranks, rows=rows)


def first_says(ranks: Ranks | None, make: Callable[[], T]) -> T:
    """Return what is made here, or on rank 0 of several."""
    if ranks is None:
        return make()
    made: T | None = None
    with together():
        if ranks.is_first:
            made = make()
    return cast(T, gathered(made)[0])
