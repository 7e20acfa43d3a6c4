"""Networks for rows that are not in memory: the start is fitted to all of them, the network trained on a sample."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.batches import Report, Rows, Source
from knotwork.data.limits import Limits
from knotwork.data.part_reader import Numbers, Part, PartReader
from knotwork.data.survey import Survey, learn_survey
from knotwork.errors import ColumnWarning, DataError, SampleWarning, warn
from knotwork.estimators.sources import Opened, read_counts, survey
from knotwork.network.start.choose import StartOptions, StartTask
from knotwork.network.start.parts import start_of_parts
from knotwork.progress import reading_progress
from knotwork.spline.model import Spline

T = TypeVar("T")


@dataclass(frozen=True)
class Sampled:
    """A source that was surveyed: its sample, and how its parts are read."""

    source: Source
    survey: Survey
    reader: PartReader

    def read(self, model: Any) -> Any:
        """Return what the network is to learn, of the sample; it is encoded as all rows are."""
        found = self.survey
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ColumnWarning)  # which the survey has given
            problem = model._read(found.X, found.y, found.weight)
        X = np.asarray(self.reader.encoder.encode(found.X), dtype=np.float64)
        return replace(problem, encoder=self.reader.encoder, rows=replace(problem.rows, X=X))

    def start(self, task: StartTask, options: StartOptions, limits: Limits | None) -> Spline:
        """Fit the spline that a network begins as to all rows, held at limits."""
        encoded = _Encoded(self.source, self.reader, limits)
        return start_of_parts(encoded, Part(task.rows.X, task.rows.y, task.weights), task, options)


def read_sampled(model: Any, opened: Opened) -> Sampled:
    """Survey a source for a network; say how many rows it is trained on."""
    classes = hasattr(model, "class_weight")
    with reading_progress(bool(model.verbose)) as reading:
        found = survey(model, opened, classes, reading)
    target: Any = Numbers()
    if classes:
        labels, target = read_counts(found.response, model.class_weight)
        lost = [label for label in labels.tolist() if not (found.y == label).any()]
        if lost:
            raise DataError(
                f"a network is trained on a sample of {len(found.y)} rows, which has none of class {lost[0]!r}; join "
                f"rare classes, or fit a MarsClassifier"
            )
    if len(found.y) < found.rows:
        warn(
            f"the network is trained on a uniform sample of {len(found.y)} of {found.rows} rows; its start is "
            f"fitted to all of them",
            SampleWarning,
        )
    return Sampled(opened.source, found, PartReader(learn_survey(found, model.missing), target))


@dataclass(frozen=True)
class _EncodedTask:
    task: Callable[[Rows], Any]
    reader: PartReader
    limits: Limits | None

    def __call__(self, rows: Rows) -> Any:
        part = self.reader(rows)
        X: Floats = part.X if self.limits is None else self.limits.hold(part.X)
        return self.task(Rows(X, part.y, part.weight, rows.number))


class _Encoded:
    """A source whose parts are encoded before a task sees them."""

    def __init__(self, source: Source, reader: PartReader, limits: Limits | None) -> None:
        self.local, self._source, self._reader, self._limits = source.local, source, reader, limits

    def add(
        self,
        task: Callable[[Rows], T],
        plus: Callable[[T, T], T],
        columns: Sequence[str] | None = None,
        report: Report | None = None,
    ) -> T:
        """Read all parts once; all columns, for they are encoded together."""
        return self._source.add(_EncodedTask(task, self._reader, self._limits), plus, None, report)
