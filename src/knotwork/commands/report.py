"""``knotwork report``: a saved model and a table, explained in one HTML file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knotwork.commands.output import print_json, require_free_file
from knotwork.errors import DataError
from knotwork.printable import printable

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from knotwork.data.files import Table


def report(
    model: Annotated[Path, typer.Argument(help="Folder that knotwork fit --out or kw.save wrote.", show_default=False)],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the model's columns.", show_default=False)],
    target: Annotated[
        str | None, typer.Option(help="The response; by default the one column that the model does not use.")
    ] = None,
    na: Annotated[
        list[str] | None,
        typer.Option("--na", metavar="TEXT", help="A word that means missing in this file; repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    random_start: Annotated[
        bool, typer.Option("--random-start", help="Train the network again from a random start, to compare.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the page if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Write one HTML page that explains a model on a table."""
    from rich.console import Console

    import knotwork as kw

    require_free_file(out, force, [model, data])
    fitted = kw.load(model)
    X, y, notes = split_table(fitted, model, data, target, na or ())
    for note in () if as_json else notes:
        typer.echo(f"note: {printable(note)}", err=True)
    with Console(stderr=True).status("explaining …"):
        kw.explain(fitted, X, y, random_start=random_start or None).to_html(out, overwrite=force)
    if as_json:
        print_json({"saved": str(out), "bytes": out.stat().st_size, "rows": len(X), "notes": notes})
    else:
        typer.echo(
            f"{len(X)} rows explained in {printable(out)} ({out.stat().st_size / 1e6:.1f} MB); open it in a browser"
        )


def split_table(
    model: Any, path: Path, data: Path, target: str | None, missing: Sequence[str] = ()
) -> tuple[pd.DataFrame, pd.Series[Any] | None, list[str]]:
    """Read a table and part it: the model's columns, and the target where there is one; with notes about both.

    Rows without a target are dropped. Columns that are neither are not read: they may hold anything.
    """
    from knotwork.commands.predict import columns_of, with_all_columns
    from knotwork.data.files import column_names, read_file
    from knotwork.data.names import require_columns
    from knotwork.network.resolve import resolve

    parts = resolve(model)
    columns = columns_of(parts, path)
    assert parts.encoder is not None
    names = column_names(data)
    require_columns([*columns, *([] if target is None else [target])], names, data)
    target, notes = _response(target, columns, [name for name in names if name not in columns])
    wanted = [*columns] if target is None else [*columns, target]
    text = [name for name, kind in columns.items() if kind == "text"]
    table = read_file(data, as_text=text, skip=[name for name in names if name not in wanted], missing=missing)
    table.require(wanted)
    rows, dropped = _rows(table, target)
    frame = table.frame(wanted, rows)
    X = with_all_columns(frame[list(columns)], parts.encoder)
    return X, None if target is None else frame[target], notes + dropped


def _response(target: str | None, columns: Collection[str], others: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the response, by default the one column that the model does not use.

    A note says what it could be if there are several.
    """
    from knotwork.data.columns.series import listing

    if target in columns:
        raise DataError(
            f"--target must name a column that the model does not use, got {target!r}, which it uses; name the response"
        )
    if target is not None or not others:
        return target, []
    if len(others) == 1:
        return others[0], []
    return None, [
        f"the report cannot measure the model's errors, any of {listing(others)} could be the target; pass --target"
    ]


def _rows(table: Table, target: str | None) -> tuple[NDArray[np.intp], list[str]]:
    """Return the rows that have a target, as numbers, and a note if others are dropped."""
    import numpy as np

    from knotwork.commands.rows import dropped_note

    if target is None:
        return np.arange(table.rows), []
    rows = np.flatnonzero(~table.missing(target))
    if not len(rows):
        raise DataError(
            f"the target must have values, {target!r} of {table.path} has none; name another column in --target, or "
            f"remove it from the file"
        )
    return rows, [dropped_note(table.rows - len(rows), table.rows, target)] if len(rows) < table.rows else []
