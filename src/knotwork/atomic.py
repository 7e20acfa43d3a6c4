"""Atomic writes: a file is written next to its place and renamed into it, so that it is never there in part.

Every file that we write goes through here. A write that fails leaves what was there before. A killed process leaves its
draft behind; the next write into the same folder removes it. Drafts are known by their names, which nobody else makes,
and the draft of a process that still runs by its lock, which ends with the process.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from knotwork.errors import DataError, FileError, KnotworkError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

_DRAFT = ".knotwork-"
# Where there are no locks, a draft is taken for abandoned after this many seconds.
_OLD = 86_400.0
# Seconds to wait for another process that works on the same folder.
_PATIENCE = 60.0
# File systems without hard links say one of these.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, overwrite: bool = True) -> Iterator[Path]:
    """Yield a path to write to; what is there takes the given one's place at the end, or is removed on failure.

    Parameters
    ----------
    path : the file; a link stays a link, and the file that it leads to is replaced
    overwrite : whether a file that is there may be replaced

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder) / "a.txt"
    ...     with atomic_file(place) as fresh:
    ...         _ = fresh.write_text("all of it")
    ...     place.read_text()
    'all of it'
    """
    with writing(path):
        place = _place(Path(path))
        remove_abandoned(place.parent)
        with _draft(place) as fresh:
            try:
                yield fresh
                _move(fresh, place, overwrite)
            finally:
                with contextlib.suppress(OSError):
                    fresh.unlink(missing_ok=True)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what the system says about a write into one sentence."""
    try:
        yield
    except KnotworkError:
        raise
    except OSError as error:
        raise FileError(
            f"{os.fspath(path)} cannot be written ({error.strerror or error}) and is as it was; make room for it or "
            f"choose another path"
        ) from error


def _place(path: Path) -> Path:
    """Follow a link, and refuse what is not a place for a file."""
    place = Path(os.path.realpath(path)) if path.is_symlink() else path.absolute()
    if not place.parent.is_dir():
        raise DataError(f"the folder of an output must exist, {place.parent} does not; make it first")
    if place.is_symlink() or (place.exists() and not place.is_file()):
        raise DataError(f"an output must be a file, {path} is a folder, a device or a link in a circle; name a file")
    if place.exists() and not os.access(place, os.W_OK):
        raise DataError(f"an output may replace a file that can be written, {path} is protected; choose another path")
    return place


def _move(fresh: Path, place: Path, overwrite: bool) -> None:
    with contextlib.suppress(FileNotFoundError):
        # Who could read the file before can read the new one.
        fresh.chmod(stat.S_IMODE(place.stat().st_mode))
    sync(fresh)  # a rename can reach the disk before the contents do
    if overwrite:
        os.replace(fresh, place)
    else:
        _move_to_free_place(fresh, place)
    sync(place.parent)


def _move_to_free_place(fresh: Path, place: Path) -> None:
    """Rename, unless somebody was faster: a hard link, unlike a rename, replaces nothing."""
    try:
        os.link(fresh, place)
    except OSError as error:
        if error.errno in _NO_LINKS and not place.exists():
            os.replace(fresh, place)
        elif error.errno in (errno.EEXIST, *_NO_LINKS):
            raise DataError(f"{place} exists already and may not be replaced; choose another path") from None
        else:
            raise


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR
    try:
        file = os.open(path, flags)
    except PermissionError:  # Windows opens no folders
        return
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno != errno.EINVAL:  # nothing to wait for on this file system
            raise
    finally:
        os.close(file)


@contextmanager
def _draft(place: Path) -> Iterator[Path]:
    """Make an empty file next to a place; it is locked until the end."""
    while True:
        # The ending stays: some writers choose a format by it.
        path = place.parent / f"{_DRAFT}{new_name()}{place.suffix[:32]}"
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        # Somebody who cleans up may have had the lock in between.
        if _lock(file) is not False and os.fstat(file).st_nlink:
            break
        os.close(file)
    try:
        yield path
    finally:
        _unlock_and_close(file)


def remove_abandoned(folder: Path) -> None:
    """Remove the drafts of processes that are no more: files with our names whose locks nobody holds."""
    with os.scandir(folder) as entries:
        names = [e.name for e in entries if e.name.startswith(_DRAFT) and e.is_file(follow_symlinks=False)]
    for name in names:
        if not is_new_name(name[len(_DRAFT) : len(_DRAFT) + 32]):
            continue
        with contextlib.suppress(OSError):  # gone, or not ours to touch
            file = os.open(folder / name, os.O_RDONLY)
            try:
                locked = _lock(file)
                if locked or (locked is None and time.time() - os.fstat(file).st_mtime > _OLD):
                    (folder / name).unlink(missing_ok=True)
            finally:
                os.close(file)


def new_name() -> str:
    """Return 32 hexadecimal digits; the second half follows from the first, so that nobody else makes such a name.

    >>> is_new_name(new_name()), is_new_name("0" * 32)
    (True, False)
    """
    random = secrets.token_hex(8)
    return random + _check_digits(random)


def is_new_name(text: str) -> bool:
    """Whether a text was made by :func:`new_name`."""
    return len(text) == 32 and text[16:] == _check_digits(text[:16])


def _check_digits(random: str) -> str:
    return hashlib.sha256(f"knotwork {random}".encode()).hexdigest()[:16]


@contextmanager
def locked_folder(folder: Path) -> Iterator[bool]:
    """Wait until nobody else works on a folder, and keep others waiting; yield whether there are such locks here."""
    try:
        file = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders
        yield False
        return
    try:
        give_up = time.monotonic() + _PATIENCE
        while (locked := _lock(file)) is False:
            if time.monotonic() > give_up:
                raise FileError(
                    f"{folder} must be free to be written, another process has been writing for {_PATIENCE:.0f} s; "
                    f"wait for it, or end it"
                )
            time.sleep(0.002)
        yield bool(locked)
    finally:
        _unlock_and_close(file)


def _unlock_and_close(file: int) -> None:
    # Closing is not enough: a process that was forked meanwhile has the file open too.
    if fcntl is not None:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


def _lock(file: int) -> bool | None:
    """Lock an open file until it is closed, if nobody else has; None where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
