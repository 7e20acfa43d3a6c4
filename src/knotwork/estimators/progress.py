"""Progress of the forward pass in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from knotwork.spline.forward import Step


@contextmanager
def forward_progress(show: bool) -> Iterator[Callable[[Step], None] | None]:
    """Yield a function that shows a step as it happens, or None."""
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
