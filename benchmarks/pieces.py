"""Benchmarks in pieces: each is a line of JSON as soon as it is done, so that a run goes on where it was stopped.

Pieces that other machines have done are merged by naming their files: ``read([own, other, …])``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

Record = dict[str, Any]


def read(paths: Iterable[Path | None]) -> list[Record]:
    """Return the records of all files that exist, in their order; a line that was cut off is left out."""
    records = []
    for path in paths:
        for line in path.read_text().splitlines() if path and path.exists() else []:
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:  # the run was stopped while it wrote: the piece runs again
                continue
    return records


def run(
    function: Callable[..., Record], tasks: list[tuple[Hashable, ...]], jobs: int, out: Path | None, console: Console
) -> list[Record]:
    """Call the function with each task, in processes of their own, and append what it returns to the file."""
    records = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(function, *task) for task in tasks]
        for future in track(as_completed(futures), total=len(futures), console=console, description="fitting"):
            record = future.result()
            records.append(record)
            if "failed" in record:
                console.print(f"{record}", highlight=False, markup=False)
            if out:
                with out.open("a") as file:
                    file.write(json.dumps(record) + "\n")
    return records


def add_arguments(parser: argparse.ArgumentParser, out: str | None) -> None:
    """Add what every benchmark in pieces takes."""
    parser.add_argument("--device", default=None, help="where SplineNet trains; by default its own choice")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--out", type=Path, default=out and Path(out), help="a line of JSON a run; it goes on from there"
    )
    parser.add_argument("--more", nargs="*", type=Path, default=[], help="files of other machines, to show as well")
    parser.add_argument("--show", action="store_true", help="run nothing: show what the files have")


def run_missing(
    function: Callable[..., Record], asked: Iterable[tuple[Hashable, ...]], options: argparse.Namespace
) -> list[Record]:
    """Run the tasks that no file has, unless they are only to be shown; return the records of all tasks asked for.

    A record has its task under ``run``. The function is called with the task and the device.
    """
    asked = list(asked)
    records = {tuple(record["run"]): record for record in read([*options.more, options.out])}
    if not options.show:
        todo = [(*task, options.device) for task in asked if task not in records]
        fresh = run(function, todo, options.jobs, options.out, Console())
        records |= {tuple(record["run"]): record for record in fresh}
    return [records[task] for task in asked if task in records]


def markdown(rows: list[list[str]]) -> str:
    """Return heads and rows as a table in Markdown, numbers to the right."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|---" + "|---:" * (len(rows[0]) - 1) + "|", *lines[1:]])
