"""Models as two files: ``model.json`` says what a model is made of, a safetensors file next to it holds its arrays.

What comes back is the same bit for bit. Loading runs nothing that it finds in a file: kinds, classes and layers come
from the tables in ``serial``, and every other name is refused. Only networks need torch. Models of earlier versions are
brought to the present schema first, by ``serial/migrate.py``.

Whenever a save is cut short, the folder holds the model from before or the new one, never a mixture; a reader finds one
of the two. A changed or damaged file is refused, whatever was changed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.numpy
from numpy.typing import NDArray

from knotwork.errors import DataError
from knotwork.network.resolve import is_wrapper
from knotwork.parameters import checked, place, switch
from knotwork.serial.document import Arrays, write_document
from knotwork.serial.folder import read_model, require_free, write_model
from knotwork.serial.migrate import SCHEMA, migrate
from knotwork.serial.reader import Reader
from knotwork.serial.tables import KINDS, NotAsWritten, name_in, not_as_written
from knotwork.serial.writer import Writer

_OTHER_NETWORK = ", or any network with torch.save(net.state_dict(), path)"


@checked(path=place(), overwrite=switch())
def save(model: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a model into a folder, which is made if need be.

    Parameters
    ----------
    model : Spline, LatticePWL, MaxSum, a fitted estimator of knotwork, or nn.Sequential of Linear, Scaling, Dropout,
        Identity, Flatten and the activations that a network of knotwork may have
    path : folder; it gets ``model.json`` and a safetensors file. Other files in it stay as they are
    overwrite : whether a model of knotwork that is there already may be replaced; nothing else ever is

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
            f"save the part of it that is one of these{_OTHER_NETWORK * hasattr(model, 'state_dict')}"
        )
    folder = Path(path)
    require_free(folder, overwrite)
    writer = Writer()
    body = writer.value(model, "")
    _require_readable(body, writer.arrays)
    arrays = safetensors.numpy.save(writer.arrays)
    write_model(folder, write_document(kind, body, Arrays.of(arrays)), arrays, overwrite)


def _require_readable(body: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse to save what could not be loaded: weights that are NaN, say."""
    try:
        _build(body, arrays)
    except NotAsWritten as error:
        raise DataError(
            f"a saved model must be able to predict, this one has {error.found}; fix it, or fit it again"
        ) from None


@checked(path=place())
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
    document, arrays = read_model(Path(path))
    model = _build(document.model, arrays, document.schema)
    if name_in(KINDS, model) != document.kind:
        raise not_as_written(f"kind {document.kind} and {type(model).__name__} inside")
    return model


def _build(body: Any, arrays: Mapping[str, NDArray[Any]], schema: int = SCHEMA) -> Any:
    """Build a model from its JSON; whatever goes wrong is the fault of what was read."""
    try:
        # A field of schema 1 became two.
        return Reader(arrays, max_uses=2 if schema == 1 else 1).model(migrate(body, schema))
    except DataError:
        raise
    except (
        ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
    ) as error:  # fmt: skip
        raise not_as_written(f"a part that does not fit ({type(error).__name__}: {error})") from None
