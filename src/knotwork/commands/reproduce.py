"""``knotwork reproduce``: the published experiments, run again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from knotwork.commands.output import print_json, take_folder
from knotwork.printable import printable

Stages = Callable[[str, int], AbstractContextManager[Callable[[bool], None]]]


class Which(StrEnum):
    """What to run."""

    abalone = "abalone"
    wine = "wine"
    all = "all"


def reproduce(
    which: Annotated[Which, typer.Argument(help="The data set, or all of them.", show_default=False)],
    quick: Annotated[bool, typer.Option("--quick", help="A minute: fewer seeds, epochs and sizes.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds; 20, or 2 if quick.", show_default=False)] = None,
    out: Annotated[Path, typer.Option(help="Folder of the report, its pictures and the finished runs.")] = Path(
        "reproduction"
    ),
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; default: one per core.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Run the published experiments again.

    If a run was interrupted, the same command resumes it.
    """
    from dataclasses import replace

    from knotwork.experiments.protocol import FULL, shortened
    from knotwork.experiments.reproduction import known, reproduce

    take_folder(out, "reproduce")
    plan = replace(FULL, seeds=seeds or (2 if quick else FULL.seeds))
    plan = shortened(plan) if quick else plan
    console = Console(stderr=True, highlight=False, emoji=False)
    start = time.perf_counter()
    with _stages(console) as progress:
        try:
            result = reproduce(known(which), plan, out, jobs=jobs or _cores(), progress=progress)
        except KeyboardInterrupt:
            console.print(
                f"\nStopped: the same command goes on from the finished runs, kept in {printable(out)}.",
                markup=False, soft_wrap=True,
            )  # fmt: skip
            raise typer.Exit(130) from None
    if as_json:
        print_json(result)
        return
    from knotwork.experiments.report import targets

    screen = Console(highlight=False, emoji=False)
    for name in known(which):
        screen.print(f"[bold]{name}[/]")
        screen.print(targets(result[name]), markup=False)
    screen.print(f"\n{time.perf_counter() - start:.0f} s. The report: {printable(out / 'report.md')}", markup=False)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _stages(console: Console) -> Iterator[Stages]:
    """Yield a way to show stages of work, each with a bar and the time left, on stderr."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description:10s}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))  # fmt: skip
    with Progress(*columns, console=console) as progress:

        @contextmanager
        def stage(name: str, total: int) -> Iterator[Callable[[bool], None]]:
            row = progress.add_task(name, total=total, note="")
            reused = 0

            def advance(stored: bool) -> None:
                nonlocal reused
                reused += stored
                progress.update(row, advance=1, note=f"({reused} kept from before)" if reused else "")

            yield advance

        yield stage
