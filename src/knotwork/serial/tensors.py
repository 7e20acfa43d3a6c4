"""The arrays of a saved model, a safetensors file: its sizes are compared with one another before it is read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from knotwork.errors import DataError
from knotwork.serial.document import Arrays, digest_of
from knotwork.serial.tables import shown

# Bytes of the header, which names the arrays: a longer one is not read.
MAX_HEADER = 64 * 2**20


def read_arrays(folder: Path, arrays: Arrays, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Read the arrays that belong to a document from the first file of these names that has them."""
    found = [folder / name for name in names if (folder / name).is_file()]
    if not found:
        raise DataError(
            f"a saved model has the file {names[0]} of its arrays next to its document, {folder} lacks it; copy the "
            f"whole folder"
        )
    for path in found:
        with path.open("rb") as file:
            data = _read(file, arrays.size)
        if data is not None and digest_of(data) == arrays.digest:
            return _parse(data)
    raise DataError(
        f"the arrays of a saved model must be those that it was saved with, {found[0].name} in {folder} holds others: "
        f"it was cut short or changed; copy the whole folder again or save the model again"
    )


def _read(file: BinaryIO, expected: int | None) -> bytes | None:
    """Return the contents of a file if its size is the expected one, and the one that its header adds up to."""
    size = os.fstat(file.fileno()).st_size
    if expected not in (None, size):
        return None
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(MAX_HEADER, size - 8):
        return None
    header = file.read(length)
    if 8 + length + _data_length(header) != size:
        return None
    data = start + header + file.read(size - 8 - length)
    return data if len(data) == size else None


def _data_length(header: bytes) -> int:
    """Return how many bytes the arrays of a header take; −1 if it is none."""
    try:
        entries = json.loads(header)
        ends = [entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"]
        return max(ends, default=0) if all(type(end) is int for end in ends) else -1
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return -1


def _parse(data: bytes) -> dict[str, NDArray[Any]]:
    try:
        return safetensors.numpy.load(data)
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"the arrays of a saved model must be a safetensors file of numbers, got one that cannot be read "
            f"({shown(str(error))}); save the model again"
        ) from None
