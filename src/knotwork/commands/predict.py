"""``knotwork predict``: a saved model on a new file."""

from __future__ import annotations

import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knotwork.commands.output import print_json, require_free_file
from knotwork.errors import DataError
from knotwork.printable import printable

if TYPE_CHECKING:
    import pandas as pd

    from knotwork.data.pieces import Kind
    from knotwork.data.table import TableEncoder
    from knotwork.network.resolve import Resolved

# Bytes of predictions for stdout that are kept in memory; more go to a temporary file.
MEMORY = 1 << 26


def predict(
    model: Annotated[Path, typer.Argument(help="Folder that knotwork fit --out or kw.save wrote.", show_default=False)],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the model's columns.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="File for the predictions, .csv or .parquet; by default CSV on stdout.")
    ] = None,
    id_columns: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="COLUMN", help="A column to copy in front of the predictions; repeatable."),
    ] = None,
    na: Annotated[
        list[str] | None,
        typer.Option("--na", metavar="TEXT", help="A word that means missing in this file; repeatable."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Predict the rows of a table."""
    import knotwork as kw
    from knotwork.commands.prediction_files import open_csv, open_output
    from knotwork.network.resolve import resolve
    from knotwork.serial.folder import output_file

    if out is not None:
        require_free_file(out, force, [model, data])
        if out.suffix.lower() not in (".csv", ".parquet"):
            raise DataError(f"predictions are written as .csv or .parquet, got {out}; choose one of these endings")
    fitted = resolve(kw.load(model))
    blocks = _predicted(fitted, model, data, list(dict.fromkeys(id_columns or ())), na or ())
    if out is not None:
        with output_file(out, overwrite=force) as fresh, open_output(fresh, out.suffix.lower()) as write:
            rows = sum(map(write, blocks))
        if as_json:
            print_json({"rows": rows, "saved": str(out)})
        else:
            typer.echo(f"{rows} predictions in {printable(out)}")
    elif as_json:
        columns: dict[str, list[Any]] = {}
        for block in blocks:
            for name in block:
                columns.setdefault(str(name), []).extend(map(_json_value, block[name].tolist()))
        print_json({"rows": len(next(iter(columns.values()))), "predictions": columns})
    else:
        # Set aside until all rows are predicted: what comes on stdout is never a part.
        with tempfile.SpooledTemporaryFile(MEMORY, mode="w+", encoding="utf-8", newline="") as aside:
            write = open_csv(aside, on_terminal=sys.stdout.isatty())
            for block in blocks:
                write(block)
            aside.seek(0)
            shutil.copyfileobj(aside, sys.stdout)


def _predicted(
    parts: Resolved, model: Path, data: Path, carry: list[str], missing: Sequence[str]
) -> Iterator[pd.DataFrame]:
    """Yield the predictions of a file, a block of rows at a time, behind the columns carried over."""
    import pandas as pd

    from knotwork.data.blocks import read_blocks
    from knotwork.data.files import infinities
    from knotwork.data.refused import refuse_columns

    columns = columns_of(parts, model)
    lost = rows = 0
    notes: dict[Any, warnings.WarningMessage] = {}
    for block in read_blocks(data, columns, carry, missing):
        numbers = {name: block.frame[name].to_numpy() for name, kind in columns.items() if kind == "number"}
        refuse_columns(infinities(data, numbers, rows))
        rows += len(block.frame)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            predictions = _predictions(parts, block.frame)
        for note in caught:  # the same about other rows is said once
            about = tuple(name for name in columns if repr(name) in str(note.message))
            notes.setdefault((note.category, about), note)
        taken = [name for name in carry if name in predictions]
        if taken:
            raise DataError(
                f"--id {taken[0]!r} is the name of a column of predictions; rename it in {data}, or leave it out"
            )
        lost += _not_finite(predictions)
        yield pd.concat([block.carried, predictions], axis=1) if carry else predictions
    for note in notes.values():
        warnings.warn(note.message, note.category, stacklevel=2)
    if lost:
        warnings.warn(
            f"{lost} of {rows} predictions are not finite (inf or NaN, null in JSON): the values of those rows are too "
            f"large to compute with",
            stacklevel=2,
        )


def _json_value(value: Any) -> Any:
    """Return what JSON has, of a column carried over from Parquet; other values as text."""
    import pandas as pd

    if isinstance(value, (str, bool, int, float)):
        return value
    return None if value is None or value is pd.NA or value is pd.NaT else str(value)


def columns_of(parts: Resolved, path: Path) -> dict[str, Kind]:
    """Return the columns that a model takes and what they must hold."""
    from knotwork.data.columns.date import Date
    from knotwork.data.columns.kinds import Categories
    from knotwork.data.columns.skipped import Skipped

    if parts.encoder is None or (parts.estimator is None and parts.spline is None):
        raise DataError(
            f"a table is predicted by a Spline or an estimator, {path} holds a {parts.kind}; save the estimator instead"
        )
    kinds: dict[str, Kind] = {}
    for column in parts.encoder.columns:
        if not isinstance(column, Skipped):
            text = isinstance(column, Categories)
            kinds[column.name] = "text" if text else "date" if isinstance(column, Date) else "number"
    return kinds


def with_all_columns(frame: pd.DataFrame, encoder: TableEncoder) -> pd.DataFrame:
    """Return a frame with the columns that training left out as well, without values."""
    names = [column.name for column in encoder.columns]
    return frame if list(frame.columns) == names else frame.reindex(columns=names)


def _predictions(parts: Resolved, frame: pd.DataFrame) -> pd.DataFrame:
    """Predict: a column ``prediction`` (several if the model has several outputs), and one per class if it has any."""
    import pandas as pd

    model = parts.estimator
    assert parts.encoder is not None
    frame = with_all_columns(frame, parts.encoder)
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


def _not_finite(predictions: pd.DataFrame) -> int:
    """Count the rows with a number that is not finite."""
    import numpy as np

    numbers = predictions.select_dtypes("number").to_numpy(dtype=np.float64)
    return int((~np.isfinite(numbers).all(axis=1)).sum())
