"""From a table in Python to what onnxruntime takes."""

from __future__ import annotations

import json
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.columns.instants import lengths, moments
from knotwork.data.columns.series import floats, texts
from knotwork.data.table import as_frame
from knotwork.errors import DataError


def onnx_feed(session: Any, X: Any) -> dict[str, NDArray[Any]]:
    """Return a table as the inputs of a file that takes columns: ``session.run(None, onnx_feed(session, X))``.

    Parameters
    ----------
    session : the file in an ``onnxruntime.InferenceSession``
    X : data frame of any library; columns that the file does not take may be there

    Returns
    -------
    A matrix (rows, 1) for each input: numbers as float64, NaN where they are missing, dates and durations as seconds,
    text as str, "" where it is missing
    """
    frame = as_frame(X)
    if frame is None:
        raise DataError(f"a file that takes columns is fed from a data frame, got {type(X).__name__}; pass the table")
    if not callable(getattr(session, "get_inputs", None)):
        raise DataError(f"session must be an onnxruntime.InferenceSession, got {type(session).__name__}; open the file")
    known = {str(name): name for name in frame.columns}
    inputs = {i.name: i.type == "tensor(string)" for i in session.get_inputs()}
    missing = [name for name in inputs if name not in known]
    if missing:
        raise DataError(f"a table must have the columns that the file takes, this one has no {missing[0]!r}; add it")
    written = session.get_modelmeta().custom_metadata_map.get("knotwork.columns")
    if written is None:
        raise DataError("the file must be one of export_onnx, this one says nothing of its columns; export it again")
    about = json.loads(written)
    columns = {column["name"]: column for column in about}
    return {
        name: as_text(texts(frame[known[name]])) if is_text else _numbers(frame[known[name]], columns[name])[:, None]
        for name, is_text in inputs.items()
    }


def _numbers(values: nw.Series[Any], about: dict[str, Any]) -> Floats:
    """Return a column as the numbers that a file takes: (rows,)."""
    name, unit = about["name"], about.get("unit", "")
    if unit == "seconds":
        return lengths(values, name) / 1e6
    if not unit:
        return floats(values, name)
    found = moments(values, name, about["zone"])
    if (found.zone is None) != (about["zone"] is None):
        raise DataError(
            f"dates must have a time zone if those of training had one, column {name!r} has {found.zone} and had "
            f"{about['zone']}; convert it to what training had"
        )
    return found.values / 1e6


def as_text(values: NDArray[Any]) -> NDArray[Any]:
    """Return texts with None, NaN or NA for gaps as a column of strings: (rows,) → (rows, 1)."""
    import pandas as pd

    made = np.empty((len(values), 1), dtype=object)
    made[:, 0] = ["" if gap else str(value) for value, gap in zip(values, pd.isna(values), strict=True)]
    return made
