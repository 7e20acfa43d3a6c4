"""Progress of long work in the terminal; nothing is loaded unless it is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knotwork.network.train.history import History
    from knotwork.spline.forward import Step


@contextmanager
def forward_progress(show: bool) -> Iterator[Callable[[Step], None] | None]:
    """Yield a function that shows a step of the forward pass as it happens, or None."""
    if not show:
        yield None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("forward pass: {task.description}"), TimeElapsedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("starting", total=None)

        def report(step: Step) -> None:
            progress.update(task, description=f"{step.terms} terms, R² {step.rsq:.4f}, GRSq {step.grsq:.4f}", advance=1)

        yield report


@contextmanager
def reading_progress(show: bool) -> Iterator[Callable[[str], Callable[[int, int | None], None] | None]]:
    """Yield a function that takes what a reading of a source is for, and returns what shows its rows, or None."""
    if not show:
        yield lambda _: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("reading for {task.description}"), BarColumn(), TextColumn("{task.fields[speed]}"),
               TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns) as progress:
        lines: dict[str, Any] = {}

        def reading(purpose: str) -> Callable[[int, int | None], None]:
            # Readings for one purpose, what is before a colon, follow each other in one line.
            kind = purpose.partition(":")[0]
            if kind in lines:
                progress.reset(lines[kind], description=purpose, total=None, speed="")
            else:
                lines[kind] = progress.add_task(purpose, total=None, speed="")
            task = lines[kind]

            def report(done: int, rows: int | None) -> None:
                elapsed = progress.tasks[task].elapsed or 0.0
                speed = f"{done:,} rows, {done / elapsed:,.0f} rows/s" if elapsed > 0 else f"{done:,} rows"
                progress.update(task, completed=done, total=rows, speed=speed)

            return report

        yield reading


class EpochReport:
    """Shows epochs of training as they end, and the rows of one as they are read, where that takes long."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress, self._task = progress, task
        self._epoch, self._seen, self._losses = 0, 0, "starting"
        self._begun = time.perf_counter()

    def __call__(self, epoch: int, history: History, _: object) -> None:
        """Show an epoch that has ended."""
        best = history.validation_loss[history.best_epoch]
        self._epoch = epoch
        self._losses = (
            f"validation loss {history.validation_loss[-1]:.5g}, best {best:.5g} (epoch {history.best_epoch})"
        )
        self._progress.update(self._task, completed=epoch, epoch=epoch, description=self._losses)

    def rows(self, done: int, rows: int | None) -> None:
        """Show how many rows of the next epoch have been read."""
        if self._seen >= done:
            self._seen, self._begun = 0, time.perf_counter()
        speed = (done - self._seen) / max(time.perf_counter() - self._begun, 1e-9)
        self._seen, self._begun = done, time.perf_counter()
        text = f"{done:,} rows of epoch {self._epoch + 1}, {speed:,.0f} rows/s, {self._losses}"
        self._progress.update(self._task, completed=self._epoch + done / (rows or done), description=text)


@contextmanager
def epoch_progress(show: bool, epochs: int, *, unseen: bool = True) -> Iterator[EpochReport | None]:
    """Yield what shows an epoch of training as it ends, or None.

    ``unseen`` is whether the network cannot have seen the validation rows; where it may have, a line says so.
    """
    if not show:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("epoch {task.fields[epoch]}/{task.total}"), BarColumn(), TextColumn("{task.description}"),
               TimeElapsedColumn(), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns) as progress:
        if not unseen:
            progress.console.print(
                "The validation rows are some of X's, which the network may have seen before: no epoch is undone. "
                "Rows that it has not seen, validation=(X, y), judge better."
            )
        yield EpochReport(progress, progress.add_task("starting", total=epochs, epoch=0))


@contextmanager
def batch_progress(show: bool, batches: int | None) -> Iterator[Callable[[], None]]:
    """Yield a function that shows one more batch of rows that a network has run on."""
    if not show:
        yield lambda: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("features: batch {task.completed}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task("features", total=batches)
        yield lambda: progress.advance(task)
