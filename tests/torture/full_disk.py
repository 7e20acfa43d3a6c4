"""Everything that we write, onto a disk without room for it: what was there stays, and nothing else is left.

With the rights to mount one, half of the time the disk is a small one in memory, filled up to a random number of bytes.
Otherwise the system's limit on the size of files takes its place.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from typer.testing import CliRunner

import knotwork as kw
from knotwork.cli import app
from knotwork.errors import KnotworkError
from knotwork.experiments.figures import draw
from knotwork.export import export_torch
from tests.torture.outcome import Outcome

NAME = "full_disk"
DEFAULT_COUNT = 400
SHORT_COUNT = 16
# Bytes of the small disk: more than all that is written.
DISK = 32 * 2**20


class Targets:
    """What can be written, and what it is written from; ``source`` is a folder with room."""

    def __init__(self, source: Path) -> None:
        rng = np.random.default_rng(0)
        X = pd.DataFrame(rng.normal(size=(400, 3)), columns=["a", "b", "c"])
        self.model = kw.MarsRegressor(max_terms=7).fit(X, np.abs(X["a"]))
        self.net = kw.to_network(self.model, dtype=torch.float64)
        self.explanation = kw.explain(self.model, X, np.abs(X["a"]))
        self.table, self.saved = source / "table.csv", source / "model"
        X.to_csv(self.table, index=False)
        kw.save(self.model, self.saved)
        self.writers: dict[str, Callable[[Path], None]] = {
            "model": lambda place: kw.save(self.model, place, overwrite=True),
            "network": lambda place: kw.save(self.net, place, overwrite=True),
            "report.html": self.explanation.to_html,
            "model.onnx": lambda place: kw.export_onnx(self.model, place),
            "model.pt2": lambda place: export_torch(self.model, place),
            "predictions.csv": self.predict,
            "predictions.parquet": self.predict,
            "picture": lambda place: draw(place, (3, 2), 1, lambda _, axes: axes[0].plot([0, 1])) and None,
        }

    def predict(self, place: Path) -> None:
        """Run the command; its refusal is one sentence and exit code 2."""
        result = CliRunner().invoke(app, ["predict", str(self.saved), str(self.table), "--out", str(place), "--force"])
        if result.exit_code == 2 and result.stderr.startswith("knotwork: "):
            raise KnotworkError(result.stderr)
        if result.exit_code:
            raise RuntimeError(f"exit code {result.exit_code}: {result.exception!r}")


def attack(first: int, count: int, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome:
    """Write ``count`` things; see ``tests.torture``."""
    counts: Counter[str] = Counter()
    bad: list[str] = []
    source, disk = folder / "source", folder / "disk"
    source.mkdir()
    targets = Targets(source)
    with _small_disk(disk) as limited:
        for case in range(first, first + count):
            rng = np.random.default_rng([seed, case])
            name = list(targets.writers)[case % len(targets.writers)]
            report(f"case {case}, {name}")
            how = limited if case // len(targets.writers) % 2 else short_files
            what, sentence = one_case(disk, name, targets.writers[name], how, rng)
            counts[what] += 1
            if sentence:
                bad.append(f"case {case}, {name}: {sentence}")
    return Outcome(count, dict(counts), bad)


def one_case(
    disk: Path, name: str, write: Callable[[Path], None], limited: Callable, rng: np.random.Generator
) -> tuple[str, str | None]:
    """Write something twice, the second time without room; return what came of it, and a sentence if it must not be."""
    write(disk / name)
    before = contents(disk)
    # From nothing to what the largest file takes: some of it, or a few bytes too few.
    room = int(rng.uniform(0, 1.2) * max(map(len, before.values())))
    try:
        with limited(room):
            write(disk / name)
    except KnotworkError as error:
        after, text = contents(disk), str(error).strip()
        if after != before:
            return "changed", f"left {sorted(after)} where there was {sorted(before)} (room for {room})"
        return "refused", None if text.isprintable() else f"the sentence {text!r}"
    except Exception as error:
        return "raised", f"{type(error).__name__}: {error}"
    finally:
        _empty(disk)
    return "written", None


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _empty(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


@contextlib.contextmanager
def _small_disk(disk: Path) -> Iterator[Callable]:
    """Make a disk, a real one if that is allowed; yield how to leave it with room for so many bytes."""
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield short_files
        return
    try:
        yield lambda room: _filled(disk, room)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@contextlib.contextmanager
def _filled(disk: Path, room: int) -> Iterator[None]:
    filler = disk.parent / "disk" / "filler.bin"
    free = os.statvfs(disk)
    # Whole pages: what is left is the room and less than one more.
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - room - free.f_frsize))
    try:
        yield
    finally:
        filler.unlink()


@contextlib.contextmanager
def short_files(room: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes: the system then refuses to write, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
