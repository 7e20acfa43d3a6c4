"""``knotwork report``: a saved model and a table, explained in one HTML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knotwork.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


def report(
    model: Annotated[Path, typer.Argument(help="Folder that kw.save wrote.", show_default=False)],
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file with the model's columns.", show_default=False)],
    target: Annotated[
        str | None, typer.Option(help="The column that was to be predicted; without it, the one that the model lacks.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    random_start: Annotated[
        bool, typer.Option("--random-start", help="Train the network again from a random start, to compare.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the page if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Write a page that explains a model on the rows of a table: one file, which needs no network."""
    from rich.console import Console

    import knotwork as kw

    if out.exists() and not force:
        raise DataError(f"{out} exists already; pass --force to replace it or choose another --out")
    fitted = kw.load(model)
    X, y = split_table(fitted, model, data, target)
    with Console(stderr=True).status("explaining …"):
        kw.explain(fitted, X, y, random_start=random_start or None).to_html(out)
    if as_json:
        typer.echo(json.dumps({"saved": str(out), "bytes": out.stat().st_size, "rows": len(X)}))
    else:
        typer.echo(f"{len(X)} rows explained in {out} ({out.stat().st_size / 1e6:.1f} MB)")


def split_table(model: Any, path: Path, data: Path, target: str | None) -> tuple[pd.DataFrame, pd.Series[Any] | None]:
    """Read a table and part it: the model's columns, and the target where there is one."""
    import knotwork as kw

    encoder = getattr(model, "encoder_", None)
    if isinstance(model, kw.Spline):
        columns, texts = list(model.feature_names), []
    elif encoder is not None:
        columns = [c.name for c in encoder.columns]
        texts = [c.name for c in encoder.columns if c.categories is not None]
    else:
        raise DataError(
            f"a table is explained by a model that knows its columns, {path} is a {type(model).__name__}; "
            f"save the estimator instead"
        )
    table = _read(data, texts)
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise DataError(f"{data} must have the columns of the model, {missing[0]!r} is not there")
    others = [name for name in table.columns if name not in columns]
    if target is None and len(others) == 1:
        target = others[0]
    if target is not None and target not in others:
        raise DataError(f"--target must name a column of {data} that the model does not use, got {target!r}")
    return table[columns], None if target is None else table[target]


def _read(path: Path, texts: list[str]) -> pd.DataFrame:
    import pandas as pd

    if not path.is_file():
        raise DataError(f"{path} is no file; name a CSV or Parquet file")
    if path.suffix.lower() == ".parquet":
        return pd.read_parquet(path)
    try:
        return pd.read_csv(path, dtype=dict.fromkeys(texts, str))
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as CSV: {error}") from None
