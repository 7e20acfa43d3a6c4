"""Models as two files: ``model.json`` says what a model is made of, ``model.safetensors`` holds its arrays.

What comes back is the same bit for bit. Loading runs nothing that it finds in a file: kinds, classes and layers come
from the tables in ``serial``, and every other name is refused. Only networks need torch. Models of earlier versions are
brought to the present schema first, by ``migrate``.

``model.json`` carries the digest of the arrays that belong to it, and renaming it is the last step of a save. Whenever
a save is cut short, the folder holds the model from before or the new one, never a mixture.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from knotwork import __version__
from knotwork.errors import DataError
from knotwork.migrate import SCHEMA, migrate
from knotwork.network.resolve import is_wrapper
from knotwork.serial import ARRAYS, DOCUMENT, KINDS, Reader, Writer, name_in, not_as_written, require_known

# The arrays of the model that is being replaced, until model.json no longer asks for them.
PREVIOUS = ".model.previous.safetensors"


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model into a folder, which is made if need be; a model that is there already is replaced.

    Parameters
    ----------
    model : Spline, LatticePWL, MaxSum, a fitted estimator of knotwork, or nn.Sequential of Linear, Scaling, Dropout,
        Identity, Flatten and the activations that a network of knotwork may have
    path : folder; it gets ``model.json`` and ``model.safetensors``

    Examples
    --------
    >>> import tempfile
    >>> from knotwork import Hinge, Spline
    >>> spline = Spline((Hinge(0, 1.0, 1),), intercept=[2.0], coef=[[0.1]], feature_names=("x",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(spline, folder)
    ...     load(folder) == spline
    True
    """
    kind = name_in(KINDS, model)
    if kind is None and is_wrapper(model):
        raise DataError(
            f"save takes models of knotwork, a {type(model).__name__} of scikit-learn is not one; save "
            f"kw.to_network(model), or the estimator inside"
        )
    if kind is None:
        raise DataError(
            f"save takes one of {', '.join(KINDS)} and no class derived from them, got {type(model).__name__}; "
            f"save the part of it that is one of these"
        )
    writer = Writer()
    body = writer.value(model, "")
    arrays = safetensors.numpy.save(writer.arrays)
    document = {
        "format": "knotwork",
        "schema": SCHEMA,
        "version": __version__,
        "kind": kind,
        "digest": _digest(arrays),
        "model": body,
    }
    _write(Path(path), json.dumps(document, indent=1, allow_nan=False).encode(), arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that :func:`save` wrote; networks come back on the CPU.

    Parameters
    ----------
    path : the folder

    Returns
    -------
    record, estimator or nn.Sequential, equal to what was saved bit for bit

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from knotwork import MarsRegressor
    >>> X = np.arange(20.0)[:, None]
    >>> model = MarsRegressor().fit(X, np.abs(X[:, 0] - 8))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, folder)
    ...     again = load(folder)
    >>> np.array_equal(again.predict(X), model.predict(X))
    True
    """
    folder = Path(path)
    document = _read_document(folder)
    kind = document["kind"]
    arrays = _read_arrays(folder, document.get("digest"))
    try:
        model = Reader(arrays).value(migrate(document["model"], document["schema"]))
    except DataError:
        raise
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise not_as_written(f"a part that does not fit ({type(error).__name__}: {error})") from None
    if name_in(KINDS, model) != kind:
        raise not_as_written(f"kind {kind} and {type(model).__name__} inside")
    return model


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write(folder: Path, document: bytes, arrays: bytes) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DataError(f"a model is saved in a folder, {folder} is or lies in a file; choose another path") from None
    with tempfile.TemporaryDirectory(prefix=".saving-", dir=folder) as name:
        fresh = Path(name)
        _put(fresh / ARRAYS, arrays)
        _put(fresh / DOCUMENT, document)
        _move_into_place(fresh, folder)


def _put(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        # A rename can reach the disk before the contents do.
        os.fsync(file.fileno())


def _move_into_place(fresh: Path, folder: Path) -> None:
    arrays, previous = folder / ARRAYS, folder / PREVIOUS
    if arrays.exists():
        os.replace(arrays, previous)
    try:
        os.replace(fresh / ARRAYS, arrays)
        os.replace(fresh / DOCUMENT, folder / DOCUMENT)
    except BaseException:
        if (fresh / DOCUMENT).exists():  # the model from before still counts
            arrays.unlink(missing_ok=True)
            if previous.exists():
                os.replace(previous, arrays)
        raise
    previous.unlink(missing_ok=True)


def _read_document(folder: Path) -> dict[str, Any]:
    path = folder / DOCUMENT
    if not path.is_file():
        raise DataError(
            f"a saved model is a folder with {DOCUMENT} in it, {folder} is not; check the path given to save"
        )
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise not_as_written(f"something in {folder} that is not JSON ({error})") from None
    if not isinstance(document, dict) or document.get("format") != "knotwork":
        raise DataError(f"{DOCUMENT} must be a model of knotwork, the one in {folder} is not; check the path")
    schema = document.get("schema")
    if type(schema) is not int or schema < 1:
        raise not_as_written(f"schema {schema!r}")
    if schema > SCHEMA:
        raise DataError(
            f"knotwork {__version__} reads models up to schema {SCHEMA}, got schema {schema}, written by version "
            f"{document.get('version')}; upgrade knotwork"
        )
    require_known(KINDS, document.get("kind"))
    return document


def _read_arrays(folder: Path, digest: object) -> dict[str, NDArray[Any]]:
    """Read the arrays that belong to the document; those put aside if a save ended before its last step."""
    found = [folder / name for name in (ARRAYS, PREVIOUS) if (folder / name).is_file()]
    if not found:
        raise DataError(f"a saved model has {ARRAYS} next to {DOCUMENT}, {folder} lacks it; copy the whole folder")
    for path in found:
        data = path.read_bytes()
        if _digest(data) == digest:
            return _parse_arrays(data)
    raise DataError(
        f"{ARRAYS} must have the contents that {DOCUMENT} was saved with, the one in {folder} has others: it was cut "
        f"short or changed; copy the whole folder again or save the model again"
    )


def _parse_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    try:
        return safetensors.numpy.load(data)
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        raise DataError(
            f"{ARRAYS} must be a safetensors file of numbers, got one that cannot be read ({error}); "
            f"save the model again"
        ) from None
