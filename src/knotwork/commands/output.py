"""Where a command's results go: never over something that is there, unless asked to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import typer

from knotwork.atomic import atomic_file, remove_abandoned, writing
from knotwork.errors import DataError
from knotwork.printable import printable_json

# By this file a command knows its own folder.
MARK = "knotwork.txt"


def print_json(result: dict[str, Any]) -> None:
    """Print a result as the one JSON object of stdout; numbers that JSON does not have (inf, NaN) become null."""
    typer.echo(printable_json(json.dumps(_without_nan(result), ensure_ascii=False, allow_nan=False)))


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return value


def require_free_file(path: Path, force: bool, inputs: Sequence[Path]) -> None:
    """Refuse a file that exists already unless it may be replaced; an input, or a part of a model, never may."""
    from knotwork.serial.folder import is_part

    if path.is_dir():
        raise DataError(f"the output must be a file, {path} is a folder; name a file in it")
    if path.exists() and not force:
        raise DataError(f"{path} exists already; pass --force to replace it or choose another --out")
    if path.exists() and any(place.exists() and path.samefile(place) for place in inputs):
        raise DataError(f"the output must be another file than the inputs, {path} is one of them; choose another --out")
    if is_part(path):
        raise DataError(f"the output must be no part of a saved model, {path} is one; choose another --out")
    if not path.absolute().parent.is_dir():
        raise DataError(f"the folder of the output must exist, {path.absolute().parent} does not; make it first")


def take_folder(path: Path, command: str) -> None:
    """Make the folder of a command's files; refuse one with something in it that this command did not make.

    The folder is known by a file whose text nobody else writes: people have folders called ``runs`` and ``model``.
    """
    mark, text = path / MARK, f"knotwork {command} made this folder. It replaces its own files here.\n"
    if path.exists() and not path.is_dir():
        raise DataError(f"the output must be a folder, {path} is a file; choose another --out")
    with writing(path):
        if path.is_dir():
            remove_abandoned(path)  # of a run that was killed before it had made the mark
        if path.is_dir() and any(path.iterdir()) and not (mark.is_file() and mark.read_bytes() == text.encode()):
            raise DataError(
                f"the output must be a new folder or one that knotwork {command} made, {path} has other things in it; "
                f"choose another --out"
            )
        path.mkdir(parents=True, exist_ok=True)
        with atomic_file(mark) as fresh:
            fresh.write_bytes(text.encode())


def require_free_folder(path: Path, force: bool) -> None:
    """Refuse a folder that no model can be saved in; with ``force`` a model of knotwork may be replaced."""
    from knotwork.serial.folder import require_free

    require_free(path, force, option="--force")
