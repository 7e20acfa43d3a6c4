"""The bytes of a CSV file, packed by gzip or not, with a limit on what a line may take.

A few megabytes of gzip can hold gigabytes. A line is counted while it is unpacked, and refused before it is in memory.
"""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from pathlib import Path
from typing import Any, TextIO

from knotwork.errors import DataError

# Bytes of a line.
MAX_LINE = 1 << 24
_BUFFER = 1 << 18


class BlockTooLong(Exception):
    """A block of rows takes more bytes than it was allowed: read fewer rows at a time."""


class CsvBytes(io.RawIOBase):
    """A file's bytes, unpacked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: gzip.GzipFile | io.FileIO = gzip.GzipFile(path) if is_packed(path) else io.FileIO(path)
        self._line, self._line_bytes = 1, 0
        self._bytes, self.allowed = 0, sys.maxsize

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read the next bytes; refuse a file that is damaged or a line that is too long."""
        view = memoryview(buffer).cast("B")[:_BUFFER]
        try:
            count = self._file.readinto(view) or 0
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DataError(
                f"a file packed by gzip must be whole, {self._path} cannot be unpacked ({error}); copy it again"
            ) from None
        self._count(bytes(view[:count]))
        return count

    def _count(self, read: bytes) -> None:
        self._bytes += len(read)
        if self._bytes > self.allowed:
            raise BlockTooLong
        last = read.rfind(b"\n")
        self._line += read.count(b"\n")
        self._line_bytes = len(read) - last - 1 if last >= 0 else self._line_bytes + len(read)
        if self._line_bytes > MAX_LINE:
            raise DataError(
                f"a line must have at most {MAX_LINE >> 20} MB, line {self._line} of {self._path} has more; check that "
                f"the file is a table, or save it as Parquet"
            )

    def allow(self, count: int) -> None:
        """Set how many bytes may be read from here on; to ask for more raises BlockTooLong."""
        self.allowed = self._bytes + count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def is_packed(path: Path) -> bool:
    """Whether a file is packed by gzip, whatever its name."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def as_text(source: CsvBytes) -> TextIO:
    """Return bytes as text in UTF-8; a byte order mark is skipped, ends of lines stay as they are."""
    return io.TextIOWrapper(io.BufferedReader(source, _BUFFER), encoding="utf-8-sig", newline="")


def open_text(path: Path) -> TextIO:
    """Open a CSV file as text."""
    return as_text(CsvBytes(path))
