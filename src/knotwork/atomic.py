"""Atomic writes: files and folders are written next to their place and renamed into it, so none is ever partial."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from knotwork.errors import DataError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to; it becomes the given one at the end, or is removed on failure.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder) / "a.txt"
    ...     with atomic_file(place) as fresh:
    ...         _ = fresh.write_text("all of it")
    ...     place.read_text()
    'all of it'
    """
    parent = path.absolute().parent
    if not parent.is_dir():
        raise DataError(f"the folder of an output must exist, {parent} does not; make it first")
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=parent) as folder:
        fresh = Path(folder) / path.name
        yield fresh
        os.replace(fresh, path)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the given one's place at the end; on failure all is as it was."""
    parent = path.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=parent) as folder:
        fresh, previous = Path(folder) / "fresh", Path(folder) / "previous"
        fresh.mkdir()
        yield fresh
        if path.exists():
            os.replace(path, previous)
        try:
            os.replace(fresh, path)
        except OSError:
            if previous.exists():
                os.replace(previous, path)
            raise
