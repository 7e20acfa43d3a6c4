"""The folder of a saved model: ``model.json`` and the file of arrays that it names.

The arrays have a name of their own, made of their contents. A save writes them first and then replaces the document,
which names them: a reader, and whoever comes after a kill, finds the model from before or the new one. Saves into one
folder wait for each other. Arrays that the document no longer needs are removed, by the next save if this one was
killed. They are known by their names and contents; no other file is ever removed or replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from knotwork.atomic import atomic_file, locked_folder, writing
from knotwork.errors import DataError, FileError
from knotwork.serial.document import (
    ARRAYS_1,
    MAX_DOCUMENT,
    Arrays,
    Document,
    arrays_file,
    is_ours,
    parse,
    read_document,
)
from knotwork.serial.migrate import SCHEMA
from knotwork.serial.tables import DOCUMENT, not_as_written
from knotwork.serial.tensors import read_arrays

_NAME = re.compile(r"model-[0-9a-f]{32}\.safetensors")
# Schemas 1 and 2 put the arrays of the model from before aside, until the document was replaced.
_PREVIOUS_1 = ".model.previous.safetensors"
_EARLIER = (ARRAYS_1, _PREVIOUS_1)
# Seconds for which a reader begins again if the model is replaced under it.
_PATIENCE = 10.0


def require_free(folder: Path, overwrite: bool, *, option: str = "overwrite=True") -> Any:
    """Refuse a place where no model can be saved, or where there is one unless it may be replaced.

    Return the document of the model that will be replaced, as JSON, or None.
    """
    with writing(folder):  # no file system has every path
        return _require_free(folder, overwrite, option)


def _require_free(folder: Path, overwrite: bool, option: str) -> Any:
    document = folder / DOCUMENT
    present = next((path for path in (folder, *folder.absolute().parents) if path.exists()), folder)
    if not present.is_dir():
        raise DataError(f"a model is saved in a folder, {folder} is or lies in a file; choose another path")
    if not os.path.lexists(document):
        return None
    if document.is_symlink() or not document.is_file():
        raise DataError(f"{document} is a link or a folder, which is never replaced; choose another path")
    found = _document_in(folder)
    if not is_ours(found):
        raise DataError(f"{document} is not a model of knotwork and is never replaced; choose another path")
    if not overwrite:
        kind, version = (str(found.get(key))[:40] for key in ("kind", "version"))
        raise DataError(
            f"{folder} holds a model already ({kind!r}, saved by knotwork {version!r}); pass {option} to replace it or "
            f"choose another path"
        )
    return found


def is_part(path: Path) -> bool:
    """Whether a file is the document of a saved model, or its arrays; links are followed."""
    place = Path(os.path.realpath(path))
    if not place.is_file():
        return False
    if place.name == DOCUMENT:
        return is_ours(_document_in(place.parent))
    return _NAME.fullmatch(place.name) is not None or place.name in (_needed(place.parent) or ())


@contextmanager
def output_file(path: str | os.PathLike[str], *, overwrite: bool) -> Iterator[Path]:
    """Yield a path to write a result to, as :func:`knotwork.atomic.atomic_file` does; never over a part of a model."""
    with writing(path):
        if is_part(Path(path)):
            raise DataError(
                f"an output must be no part of a saved model, {os.fspath(path)} is one; choose another path"
            )
    with atomic_file(path, overwrite=overwrite) as fresh:
        yield fresh


def write_model(folder: Path, document: bytes, arrays: bytes, overwrite: bool) -> None:
    """Put a model into a folder, which is made if need be; on failure what was there is as it was."""
    file = folder / Arrays.of(arrays).file
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DataError(f"a model is saved in a folder, {folder} is or lies in a file; choose another path") from None
    except OSError as error:
        raise FileError(f"{folder} cannot be made ({error.strerror or error}); choose another path") from error
    with writing(folder), locked_folder(folder) as locked:
        before = require_free(folder, overwrite)
        if file.is_symlink():
            raise DataError(f"{file} is a link, which is never replaced; choose another path")
        stale = _arrays_in(folder, before) if locked else []
        placed = False
        try:
            if _contents(file, len(arrays)) != arrays:
                with atomic_file(file) as fresh:
                    fresh.write_bytes(arrays)
            with atomic_file(folder / DOCUMENT, overwrite=overwrite) as fresh:
                fresh.write_bytes(document)
            placed = True
        finally:
            # An interrupt may come behind the last rename: what the document names stays, whatever it is.
            needed = (file.name,) if placed else _needed(folder)
            for path in (*stale, file):
                if needed is not None and path.name not in needed:
                    with contextlib.suppress(OSError):
                        path.unlink(missing_ok=True)


def read_model(folder: Path) -> tuple[Document, dict[str, NDArray[Any]]]:
    """Read the document and its arrays: both of one save, however many there are meanwhile."""
    give_up = time.monotonic() + _PATIENCE
    try:
        while True:
            with _open_document(folder) as file:
                stamp = _stamp(os.fstat(file.fileno()))
                document = read_document(_read_limited(file), str(folder))
            previous = (_PREVIOUS_1,) if document.schema < 3 else ()
            try:
                return document, read_arrays(folder, document.arrays, (document.arrays.file, *previous))
            except (DataError, FileNotFoundError):
                if _stamp((folder / DOCUMENT).stat()) == stamp or time.monotonic() > give_up:
                    raise
    except OSError as error:
        raise FileError(f"{folder} cannot be read ({error.strerror or error}); check the path") from error


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    """Return what tells a document from one that replaced it, even with the same contents."""
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _open_document(folder: Path) -> BinaryIO:
    path = folder / DOCUMENT
    if not path.is_file():
        found = "has none" if folder.exists() else "does not exist"
        raise DataError(f"a saved model is a folder with {DOCUMENT} in it, {folder} {found}; check the path")
    return path.open("rb")


def _read_limited(file: BinaryIO) -> bytes:
    size = os.fstat(file.fileno()).st_size
    if size > MAX_DOCUMENT:
        raise not_as_written(f"{size} bytes where {MAX_DOCUMENT} are the maximum")
    return file.read(size)


def _document_in(folder: Path) -> Any:
    """Return the JSON of a folder's document, None if there is none that can be read."""
    try:
        with _open_document(folder) as file:
            return parse(_read_limited(file), str(folder))
    except (DataError, OSError):
        return None


def _needed(folder: Path) -> tuple[str, ...] | None:
    """Return the files of arrays that the document of a folder needs; None if it cannot be read."""
    if not os.path.lexists(folder / DOCUMENT):
        return ()
    match _document_in(folder):
        case {"format": "knotwork", "schema": 1 | 2}:
            return _EARLIER
        case {"format": "knotwork", "schema": int(schema), "arrays": {"file": str(name)}} if schema <= SCHEMA:
            return (name,)
    return None


def _arrays_in(folder: Path, document: Any) -> list[Path]:
    """Return the files of arrays that saves into a folder have left there, known by what is in them."""
    earlier = document.get("digest") if document and document.get("schema") in (1, 2) else None
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    found = []
    for name in names:
        if name in _EARLIER or _NAME.fullmatch(name):
            with (folder / name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if name == arrays_file(digest) or digest == earlier:
                found.append(folder / name)
    return found


def _contents(path: Path, size: int) -> bytes | None:
    """Return what is in a file if it is that long."""
    try:
        return path.read_bytes() if path.stat().st_size == size else None
    except OSError:
        return None
