"""Progress of long work in the terminal; nothing is loaded unless it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

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

        def reading(purpose: str) -> Callable[[int, int | None], None]:
            task = progress.add_task(purpose, total=None, speed="")

            def report(done: int, rows: int | None) -> None:
                elapsed = progress.tasks[task].elapsed or 0.0
                speed = f"{done:,} rows, {done / elapsed:,.0f} rows/s" if elapsed > 0 else f"{done:,} rows"
                progress.update(task, completed=done, total=rows, speed=speed)

            return report

        yield reading


@contextmanager
def epoch_progress(
    show: bool, epochs: int, *, unseen: bool = True
) -> Iterator[Callable[[int, History, object], None] | None]:
    """Yield a function that shows an epoch of training as it ends, or None.

    ``unseen`` is whether the network cannot have seen the validation rows; where it may have, a line says so.
    """
    if not show:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("epoch {task.completed}/{task.total}"), BarColumn(), TextColumn("{task.description}"),
               TimeElapsedColumn())  # fmt: skip
    with Progress(*columns) as progress:
        if not unseen:
            progress.console.print(
                "The validation rows are some of X's, which the network may have seen before: no epoch is undone. "
                "Rows that it has not seen, validation=(X, y), judge better."
            )
        task = progress.add_task("starting", total=epochs)

        def report(epoch: int, history: History, _: object) -> None:
            progress.update(
                task,
                completed=epoch,
                description=f"validation loss {history.validation_loss[-1]:.5g}, best "
                f"{history.validation_loss[history.best_epoch]:.5g} (epoch {history.best_epoch})",
            )

        yield report


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
