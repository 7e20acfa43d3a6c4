"""``knotwork report``: a saved model and a table, explained in one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knotwork.commands.output import print_json, require_free_file
from knotwork.errors import DataError
from knotwork.printable import printable

if TYPE_CHECKING:
    import pandas as pd


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
    X, y = split_table(fitted, model, data, target, na or ())
    with Console(stderr=True).status("explaining …"):
        kw.explain(fitted, X, y, random_start=random_start or None).to_html(out, overwrite=force)
    if as_json:
        print_json({"saved": str(out), "bytes": out.stat().st_size, "rows": len(X)})
    else:
        typer.echo(
            f"{len(X)} rows explained in {printable(out)} ({out.stat().st_size / 1e6:.1f} MB); open it in a browser"
        )


def split_table(
    model: Any, path: Path, data: Path, target: str | None, missing: Sequence[str] = ()
) -> tuple[pd.DataFrame, pd.Series[Any] | None]:
    """Read a table and part it: the model's columns, and the target where there is one."""
    import numpy as np

    from knotwork.commands.predict import columns_of, with_all_columns
    from knotwork.data.columns.series import listing
    from knotwork.data.files import read_file
    from knotwork.data.names import require_columns
    from knotwork.network.resolve import resolve

    parts = resolve(model)
    columns = columns_of(parts, path)
    assert parts.encoder is not None
    table = read_file(data, as_text=[name for name, kind in columns.items() if kind == "text"], missing=missing)
    require_columns(columns, list(table.kinds), data)
    others = [name for name in table.columns if name not in columns]
    if target is None and len(others) == 1:
        target = others[0]
    elif target is None and others:
        typer.echo(
            f"knotwork: the report cannot measure the model's errors, any of {listing(others)} could be the target; "
            f"pass --target",
            err=True,
        )
    if target is not None and target not in others:
        raise DataError(f"--target must name a column of {data} that the model does not use, got {target!r}")
    wanted = [*columns] if target is None else [*columns, target]
    gaps = 0 if target is None else int(table.missing(target).sum())
    if gaps:
        raise DataError(
            f"the target must have no missing values, {target!r} of {data} has {gaps}; remove those rows from the file"
        )
    frame = table.frame(tuple(wanted), np.arange(table.rows))
    X = with_all_columns(frame[list(columns)], parts.encoder)
    return X, None if target is None else frame[target]
