"""Rows on the ranks of ``torch.distributed``: every rank sums its own rows, and the sums are added over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import ArrayLike
from torch import Tensor, nn

from knotwork.arrays import Floats, read_array
from knotwork.data.batches import Report, Rows
from knotwork.data.part_reader import Part
from knotwork.data.survey import Survey, survey_rows
from knotwork.data.table import TableEncoder, as_frame
from knotwork.errors import KnotworkError, NetworkError, one_line
from knotwork.network.start.parts import start_of_parts
from knotwork.network.start.task import StartOptions, StartTask
from knotwork.network.train.targets import to_numpy
from knotwork.spline.model import Spline

T = TypeVar("T")


def world() -> int:
    """Return the number of ranks of the process group, 1 if there is none."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


@contextmanager
def _answering() -> Iterator[None]:
    """Turn what a collective operation says of a rank that is gone into one sentence."""
    try:
        yield
    except KnotworkError:
        raise
    except RuntimeError as error:
        raise NetworkError(
            f"all {world()} ranks must take part, one does not answer: {one_line(error)}; start all of them again"
        ) from None


def gathered(value: T) -> list[T]:
    """Return what each rank has, in order."""
    found: list[Any] = [None] * world()
    with _answering():
        dist.all_gather_object(found, value)
    return found


@contextmanager
def together() -> Iterator[None]:
    """Let all ranks raise what one of them raises inside the block, so that none waits for the others."""
    problem: str | None = None
    try:
        yield
    except Exception as error:
        problem = str(error) if isinstance(error, KnotworkError) else f"{type(error).__name__}: {one_line(error)}"
    for rank, other in enumerate(gathered(problem)):
        if other is not None:
            raise NetworkError(f"on rank {rank}: {other}")


class RanksSource:
    """The rows of this rank, (n, d) in memory; sums are those of all ranks. A source for :mod:`knotwork.spline.parts`.

    Every rank makes the same calls in the same order. If a task fails on one of them, all raise its message.
    """

    local = True

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def add(
        self,
        task: Callable[[Rows], T],
        plus: Callable[[T, T], T],
        columns: Sequence[str] | None = None,
        report: Report | None = None,
    ) -> T:
        """Run a task on this rank's rows and add what all ranks found."""
        found: Any = None
        with together():
            if len(self._rows) == 0:
                raise NetworkError("every rank needs rows, this one has none; give it some")
            found = task(self._rows)
        numbers = _numbers(found)
        if not _is_sum(found):
            first, *others = gathered(found)
            for each in others:
                first = plus(first, each)
            return first
        total: T = _rebuilt(
            found, iter(np.split(_reduced(np.concatenate(numbers)), np.cumsum([n.size for n in numbers])))
        )
        return total


def _is_sum(record: Any) -> bool:
    """Whether a record is nothing but sums of numbers, which may be large."""
    from knotwork.spline.moments.moments import Residual
    from knotwork.spline.moments.stored import StoredSums
    from knotwork.spline.part_logits import LogitSums

    return isinstance(record, StoredSums | Residual | LogitSums)


def _numbers(record: Any) -> list[Floats]:
    """Return the sums of a record, flat; knots are none."""
    if isinstance(record, float | np.ndarray):
        return [np.asarray(record, dtype=np.float64).reshape(-1)]
    if not _is_sum(record) and type(record).__name__ != "Opening":
        return []
    return [flat for field in fields(record) if field.name != "grid" for flat in _numbers(getattr(record, field.name))]


def _rebuilt(record: Any, flat: Iterator[Floats]) -> Any:
    if isinstance(record, float):
        return float(next(flat)[0])
    if isinstance(record, np.ndarray):
        return next(flat).reshape(record.shape)
    own: dict[str, Any] = {f.name: _rebuilt(getattr(record, f.name), flat) for f in fields(record) if f.name != "grid"}
    return replace(record, **own)


def _reduced(numbers: Floats) -> Floats:
    """Add numbers over all ranks; all get the bits of the first."""
    tensor = torch.from_numpy(numbers).to(_device())
    with _answering():
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0)
    return np.asarray(tensor.cpu().numpy())


def _device() -> torch.device:
    """Return where the group's operations are done: NCCL knows GPUs only."""
    if dist.get_backend() == "nccl":
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


@dataclass(frozen=True)
class SurveyRank:
    """Surveys the rows of a rank."""

    def __call__(self, rows: Rows) -> Survey:
        """Survey the rows."""
        return survey_rows(rows.X, rows.y, rows.weight, rows.number, None)


def _merged(a: Survey, b: Survey) -> Survey:
    return a.plus(b, lambda first, _: first)


@dataclass(frozen=True)
class Shards:
    """The rows of this rank, and a survey of those of all ranks, the same on each of them."""

    rows: Rows
    survey: Survey

    @classmethod
    def of(cls, X: Any, y: Any, sample_weight: ArrayLike | None) -> Shards:
        """Survey the rows of all ranks."""
        with together():
            labels = read_array(y, "y", NetworkError)
            table = X if not isinstance(X, Tensor) and as_frame(X) is not None else _flat(to_numpy(X))
            weight = None if sample_weight is None else to_numpy(sample_weight, "sample_weight")
            rows = Rows(table, labels, weight, dist.get_rank())
            if len(rows) != len(labels) or (weight is not None and weight.shape != (len(labels),)):
                raise NetworkError(f"X, y and sample_weight must have the same rows, got {len(rows)} and {len(labels)}")
            if weight is not None and not (np.isfinite(weight.sum()) and (weight > 0).all()):
                raise NetworkError("sample_weight must be positive and finite; leave out rows that do not count")
        if len(set(gathered(weight is None))) > 1:
            raise NetworkError("all ranks or none must pass sample_weight; some do and others do not")
        found = RanksSource(rows).add(SurveyRank(), _merged)
        if as_frame(found.X) is None and any(column.gaps for column in found.columns):
            raise NetworkError("X must be finite, got NaN or inf; leave those rows out or fill them in")
        return cls(rows, found)

    def start(
        self,
        task: StartTask,
        options: StartOptions,
        encoder: TableEncoder | None,
        values: Callable[[Any], Any],
        hold: Callable[[Floats], Floats],
    ) -> Spline:
        """Fit the start to the rows of all ranks; values : y as the task has it; hold : X as the layers see it."""
        X = self.rows.X if encoder is None else encoder.encode(self.rows.X)
        own = Rows(hold(np.asarray(X, dtype=np.float64)), values(self.rows.y), self.rows.weight, self.rows.number)
        sample = Part(task.rows.X, task.rows.y, task.weights)
        return start_of_parts(RanksSource(own), sample, task, options)


def _flat(rows: Floats) -> Floats:
    return rows.reshape(len(rows), -1) if rows.ndim > 2 else rows


def same_seed(random_state: int | None) -> int:
    """Return a seed that all ranks have: the one given, or the first rank's choice."""
    own = int(np.random.default_rng().integers(2**31)) if random_state is None else int(random_state)
    return gathered(own)[0]


def share_weights_(module: nn.Module) -> None:
    """Give all ranks the parameters and buffers of the first one, bit for bit."""
    device = _device()
    with torch.no_grad(), _answering():
        for tensor in (*module.parameters(), *module.buffers()):
            copy = tensor.detach().to(device)
            dist.broadcast(copy, 0)
            tensor.copy_(copy)
