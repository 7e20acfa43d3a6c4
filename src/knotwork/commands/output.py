"""Where a command's results go: never over something that is there, unless asked to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import typer

from knotwork.errors import DataError
from knotwork.printable import printable_json


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
    """Refuse a file that exists already unless it may be replaced; an input, or a part of one, never may."""
    if path.is_dir():
        raise DataError(f"the output must be a file, {path} is a folder; name a file in it")
    if path.exists() and not force:
        raise DataError(f"{path} exists already; pass --force to replace it or choose another --out")
    if path.exists() and any(path.samefile(part) for place in inputs for part in _files(place)):
        raise DataError(f"the output must be another file than the inputs, {path} is one of them; choose another --out")
    if not path.absolute().parent.is_dir():
        raise DataError(f"the folder of the output must exist, {path.absolute().parent} does not; make it first")


def _files(place: Path) -> list[Path]:
    """Return the files of an input: itself, or those of a model's folder that a save puts there."""
    if not place.is_dir():
        return [place] if place.exists() else []
    from knotwork.serial.tables import DOCUMENT

    return [*place.glob(DOCUMENT), *place.glob("*.safetensors")]


def require_own_folder(path: Path, mark: str) -> None:
    """Refuse a folder with something in it that a command did not make: its own ones have ``mark`` in them."""
    if path.exists() and not path.is_dir():
        raise DataError(f"the output must be a folder, {path} is a file; choose another --out")
    if path.is_dir() and any(path.iterdir()) and not (path / mark).exists():
        raise DataError(f"{path} is a folder with other things in it, which may be replaced; choose another --out")


def require_free_folder(path: Path, force: bool) -> None:
    """Refuse a folder that no model can be saved in; with ``force`` a model of knotwork may be replaced."""
    from knotwork.serial.folder import require_free

    require_free(path, force, option="--force")
