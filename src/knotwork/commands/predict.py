"""``knotwork predict``: a saved model on a new file."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from knotwork.atomic import atomic_file
from knotwork.commands.output import print_json, require_free_file
from knotwork.commands.spreadsheet import marked
from knotwork.errors import DataError, MissingPackage
from knotwork.printable import printable

if TYPE_CHECKING:
    import pandas as pd

    from knotwork.data.pieces import Kind
    from knotwork.network.resolve import Resolved


def predict(
    model: Annotated[Path, typer.Argument(help="Folder that knotwork fit --out or kw.save wrote.", show_default=False)],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the model's columns.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="File for the predictions, .csv or .parquet; without it CSV to stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Predict the rows of a table. Other columns, the target among them, may be there or not."""
    import numpy as np

    import knotwork as kw
    from knotwork.data.files import read_file
    from knotwork.network.resolve import resolve

    if out is not None:
        require_free_file(out, force)
        if out.suffix.lower() not in (".csv", ".parquet"):
            raise DataError(f"predictions are written as .csv or .parquet, got {out}; choose one of these endings")
    fitted = resolve(kw.load(model))
    columns = columns_of(fitted, model)
    table = read_file(data, columns=columns)
    frame = table.frame(tuple(columns), np.arange(table.rows))
    del table
    predictions = _predictions(fitted, frame)
    _tell_of_overflow(predictions)
    if out is not None:
        with atomic_file(out) as fresh:
            _write(predictions, fresh)
        if as_json:
            print_json({"rows": len(predictions), "saved": str(out)})
        else:
            typer.echo(f"{len(predictions)} predictions in {printable(out)}")
    elif as_json:
        print_json({"rows": len(predictions), "predictions": predictions.to_dict("list")})
    else:
        _write_csv(predictions, sys.stdout)


def columns_of(parts: Resolved, path: Path) -> dict[str, Kind]:
    """Return the columns that a model takes and what they must hold."""
    from knotwork.data.columns.levels import Levels

    if parts.encoder is None or (parts.estimator is None and parts.spline is None):
        raise DataError(
            f"a table is predicted by a Spline or an estimator, {path} holds a {parts.kind}; save the estimator instead"
        )
    return {c.name: "text" if isinstance(c, Levels) else "number" for c in parts.encoder.columns}


def _predictions(parts: Resolved, frame: pd.DataFrame) -> pd.DataFrame:
    """Predict: a column ``prediction`` (several if the model has several outputs), and one per class if it has any."""
    import pandas as pd

    model = parts.estimator
    X = frame if parts.named else frame.to_numpy()  # fitted to an array
    if model is None:
        values = parts(frame.to_numpy())
        values = values[:, 0] if values.shape[1] == 1 else values
    else:
        values = model.predict(X)
    if values.ndim == 2:
        return pd.DataFrame(values, columns=[f"prediction {k}" for k in range(values.shape[1])])
    result = pd.DataFrame({"prediction": values})
    if parts.classes is not None:
        for name, share in zip(parts.classes, model.predict_proba(X).T, strict=True):
            result[f"probability of {name}"] = share
    return result


def _tell_of_overflow(predictions: pd.DataFrame) -> None:
    import numpy as np

    numbers = predictions.select_dtypes("number").to_numpy(dtype=np.float64)
    lost = int((~np.isfinite(numbers).all(axis=1)).sum())
    if lost:
        warnings.warn(
            f"{lost} of {len(predictions)} predictions are not finite (inf or NaN, null in JSON): the values of those "
            f"rows are too large to compute with",
            stacklevel=2,
        )


def _write_csv(predictions: pd.DataFrame, place: Path | TextIO) -> None:
    """Write CSV; text that a spreadsheet would run, or that would steer the terminal it is shown on, is marked."""
    shown = getattr(place, "isatty", bool)()

    def cell(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return printable(marked(value)) if shown else marked(value)

    written = predictions.rename(columns=cell)
    for name in written.columns[[dtype.kind not in "fiub" for dtype in written.dtypes]]:
        written[name] = written[name].map(cell)
    written.to_csv(place, index=False)


def _write(predictions: pd.DataFrame, path: Path) -> None:
    if path.suffix.lower() == ".csv":
        _write_csv(predictions, path)
        return
    try:
        predictions.to_parquet(path, index=False)
    except ImportError:
        raise MissingPackage("writing Parquet needs pyarrow; pip install 'knotwork[parquet]'") from None
