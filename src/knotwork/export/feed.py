"""From a table in Python to what onnxruntime takes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    A matrix (rows, 1) for each input: numbers as float64, NaN where they are missing, text as str, "" where missing
    """
    frame = as_frame(X)
    if frame is None:
        raise DataError(f"a file that takes columns is fed from a data frame, got {type(X).__name__}; pass the table")
    known = {str(name): name for name in frame.columns}
    inputs = {i.name: i.type == "tensor(string)" for i in session.get_inputs()}
    missing = [name for name in inputs if name not in known]
    if missing:
        raise DataError(f"a table must have the columns that the file takes, this one has no {missing[0]!r}; add it")
    return {
        name: as_text(texts(frame[known[name]])) if is_text else floats(frame[known[name]], name)[:, None]
        for name, is_text in inputs.items()
    }


def as_text(values: NDArray[Any]) -> NDArray[Any]:
    """Return texts with None, NaN or NA for gaps as a column of strings: (rows,) → (rows, 1)."""
    import pandas as pd

    made = np.empty((len(values), 1), dtype=object)
    made[:, 0] = ["" if gap else str(value) for value, gap in zip(values, pd.isna(values), strict=True)]
    return made
