"""Where a command's results go: never over something that is there, unless asked to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from knotwork.errors import DataError


def print_json(result: dict[str, Any]) -> None:
    """Print a result as the one JSON object of stdout."""
    typer.echo(json.dumps(result, ensure_ascii=False, allow_nan=False))


def require_free_file(path: Path, force: bool) -> None:
    """Refuse a file that exists already unless it may be replaced."""
    if path.is_dir():
        raise DataError(f"the output must be a file, {path} is a folder; name a file in it")
    if path.exists() and not force:
        raise DataError(f"{path} exists already; pass --force to replace it or choose another --out")
    if not path.absolute().parent.is_dir():
        raise DataError(f"the folder of the output must exist, {path.absolute().parent} does not; make it first")


def require_free_folder(path: Path, force: bool) -> None:
    """Refuse a folder with something in it; with ``force`` a folder that holds something other than a model."""
    from knotwork.serial import DOCUMENT

    if path.exists() and not path.is_dir():
        raise DataError(f"a model is saved in a folder, {path} is a file; choose another --out")
    if not path.is_dir() or not any(path.iterdir()):
        return
    if not (path / DOCUMENT).is_file():
        raise DataError(f"{path} is a folder with other things in it and is never replaced; choose another --out")
    if not force:
        raise DataError(f"{path} holds a model already; pass --force to replace it or choose another --out")
