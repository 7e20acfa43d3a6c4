"""Networks for rows that are not in memory: started from all of them, and trained on them as they are read.

A sample of at most 65,536 rows settles how columns are encoded, coordinates and limits. Some of its rows are held out,
and copies of these anywhere in the source are neither in the start nor in training. Where the sample is all rows, or
the source cannot be read here (Dask), the sample is what the network is trained on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.batches import LocalSource, Report, Rows, Source, no_rows, one_ahead
from knotwork.data.coordinates import Coordinates
from knotwork.data.limits import Limits
from knotwork.data.part_reader import Numbers, Part, PartReader
from knotwork.data.sample import Sample
from knotwork.data.split import HeldRows
from knotwork.data.survey import Survey, learn_survey
from knotwork.errors import ColumnWarning, DataError, SampleWarning, warn
from knotwork.estimators.sources import Moments, Opened, read_counts, survey
from knotwork.network.start.parts import start_of_parts
from knotwork.network.start.task import StartOptions, StartTask
from knotwork.network.train import rows as table
from knotwork.network.train.buffer import Buffered
from knotwork.network.train.losses import Deviance, Loss
from knotwork.progress import reading_progress
from knotwork.spline.model import Spline

T = TypeVar("T")
# Share of the memory that is for the buffer. Half of it is copied when it is filled again; the rest is for a part, as
# it is read, and in the coordinates of the network.
BUFFER_SHARE = 8


@dataclass(frozen=True)
class Sampled:
    """A source that was surveyed: its sample, how its parts are read, and which rows of it are left out.

    memory_limit : bytes that the fit may take
    limits : that encoded features are held at, None for none; held : rows held out, None before they are chosen
    """

    source: Source
    survey: Survey
    reader: PartReader
    memory_limit: int
    limits: Limits | None = None
    held: HeldRows | None = None

    @property
    def is_all(self) -> bool:
        """Whether the sample is all rows."""
        return len(self.survey.y) == self.survey.rows

    @property
    def responses(self) -> Floats:
        """The ends of the range of all responses, (2, p); none of classes."""
        moments = self.survey.response
        return np.stack([moments.low, moments.high]) if isinstance(moments, Moments) else np.empty((0, 1))

    @property
    def streams(self) -> bool:
        """Whether the network is trained on rows as they are read: there are others than the sample's, and here."""
        return self.source.local and not self.is_all

    def read(self, model: Any) -> Any:
        """Return what the network is to learn, of the sample; it is encoded as all rows are."""
        found = self.survey
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ColumnWarning)  # which the survey has given
            problem = model._read(found.X, found.y, found.weight)
        part = self.reader(Rows(found.X, found.y, found.weight, 0))
        return replace(problem, encoder=self.reader.encoder, rows=Sample(part.X, part.y, part.weights))

    def without(self, X: Floats, limits: Limits | None, seed: int) -> Sampled:
        """Return the same less some rows, (N, d) encoded and held at limits."""
        return replace(self, limits=limits, held=HeldRows.of(X, seed))

    def start(self, task: StartTask, options: StartOptions) -> Spline:
        """Fit the spline that a network begins as to all rows that are not held out."""
        encoded = _Encoded(self.source, self._encoded)
        sample = Part(task.rows.X, task.rows.y, task.weights)
        return start_of_parts(encoded, sample, task, options, memory_limit=self.memory_limit)

    def tables(
        self, loss: Loss, coordinates: Coordinates, training: table.Part, validation: table.Part, report: Report | None
    ) -> tuple[table.Part | Buffered, table.Part]:
        """Return the rows to train on and to validate on, given those of the sample, in the network's coordinates."""
        return self._streamed(loss, coordinates, training, report) if self.streams else training, validation

    def _streamed(self, loss: Loss, coordinates: Coordinates, looked_at: table.Part, report: Report | None) -> Buffered:
        """Return the rows of the source that are not held out."""
        source = self.source
        assert isinstance(source, LocalSource)
        count, largest = source.add(_CountTask(self._encoded, loss), _count_plus)
        if not count:
            raise no_rows()

        def read(seed: int) -> Iterator[table.Part]:
            done = 0
            parts = source.parts(None, np.random.default_rng(seed))
            for part in one_ahead(in_coordinates(encoded) for encoded in map(self._encoded, parts) if len(encoded.X)):
                yield part
                done += len(part)
                if report is not None:
                    report(done, count)

        def in_coordinates(part: Part) -> table.Part:
            rows = Sample(part.X, part.y, part.weights)
            return table.Part.of(
                rows, loss, coordinates, looked_at.device, looked_at.weight.dtype, looked_at.x.dtype, largest
            )

        row = sum(v[0].numel() * v.element_size() for v in looked_at.tensors().values())
        return Buffered(read, count, self.memory_limit // BUFFER_SHARE // row, looked_at)

    @property
    def _encoded(self) -> _Encode:
        return _Encode(self.reader, self.limits, self.held)


def read_sampled(model: Any, opened: Opened, show: bool) -> Sampled:
    """Survey a source for a network, with a progress bar if it is to show one; who trains on a sample is warned."""
    for name in ("validation", "spline_fraction"):
        if getattr(model, name) is not None:
            raise DataError(
                f"rows that are not in memory are held out by their values, {name} needs a table in memory; leave it "
                f"out, or set validation_fraction"
            )
    classes = hasattr(model, "class_weight")
    with reading_progress(show) as reading:
        found = survey(model, opened, classes, reading)
    target: Any = Numbers()
    if classes:
        labels, target = read_counts(found.response, model.class_weight)
        lost = [label for label in labels.tolist() if not (found.y == label).any()]
        if lost:
            raise DataError(
                f"a network is validated on a part of a sample of {len(found.y)} rows, which has none of class "
                f"{lost[0]!r}; join rare classes, or fit a MarsClassifier"
            )
    reader = PartReader(learn_survey(found, model.missing), target)
    sampled = Sampled(opened.source, found, reader, opened.memory_limit)
    if not sampled.is_all and not sampled.streams:
        warn(
            f"the network is trained on a uniform sample of {len(found.y)} of {found.rows} rows; its start is "
            f"fitted to all of them",
            SampleWarning,
        )
    return sampled


@dataclass(frozen=True)
class _Encode:
    """Reads a part: encoded rows, held at limits, less those held out."""

    reader: PartReader
    limits: Limits | None
    held: HeldRows | None

    def __call__(self, rows: Rows) -> Part:
        part = self.reader(rows)
        X: Floats = part.X if self.limits is None else self.limits.hold(part.X)
        out = None if self.held is None else self.held.among(X)
        if out is None or not out.any():
            return Part(X, part.y, part.weight)
        kept = np.flatnonzero(~out)
        return Part(X[kept], part.y[kept], None if part.weight is None else part.weight[kept])


@dataclass(frozen=True)
class _CountTask:
    """Counts the rows to train on, and finds the largest weight; refuses responses that the loss is not made for."""

    encode: _Encode
    loss: Loss

    def __call__(self, rows: Rows) -> tuple[int, float]:
        part = self.encode(rows)
        if isinstance(self.loss, Deviance):
            self.loss.loss.check(part.y)
        return len(part.X), 1.0 if part.weight is None else float(part.weight.max(initial=0.0))


def _count_plus(a: tuple[int, float], b: tuple[int, float]) -> tuple[int, float]:
    return a[0] + b[0], max(a[1], b[1])


@dataclass(frozen=True)
class _EncodedTask:
    """What a task makes of the encoded rows of a part, None of none."""

    task: Callable[[Rows], Any]
    encode: _Encode

    def __call__(self, rows: Rows) -> Any:
        part = self.encode(rows)
        return self.task(Rows(part.X, part.y, part.weight, rows.number)) if len(part.X) else None


@dataclass(frozen=True)
class _Plus:
    """Adds what tasks have made; None is nothing."""

    plus: Callable[[Any, Any], Any]

    def __call__(self, a: Any, b: Any) -> Any:
        return b if a is None else a if b is None else self.plus(a, b)


class _Encoded:
    """A source whose parts are encoded before a task sees them."""

    def __init__(self, source: Source, encode: _Encode) -> None:
        self.local, self._source, self._encode = source.local, source, encode

    def add(
        self,
        task: Callable[[Rows], T],
        plus: Callable[[T, T], T],
        columns: Sequence[str] | None = None,
        report: Report | None = None,
    ) -> T:
        """Read all parts once; all columns, for they are encoded together."""
        total: T | None = self._source.add(_EncodedTask(task, self._encode), _Plus(plus), None, report)
        if total is None:
            raise no_rows()
        return total
