"""Files of predictions, written a block of rows at a time: CSV, safe for spreadsheets and terminals, and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from knotwork.commands.spreadsheet import marked
from knotwork.errors import MissingPackage
from knotwork.printable import printable

if TYPE_CHECKING:
    import pandas as pd

# Write some rows, and return how many.
Write = Callable[["pd.DataFrame"], int]


@contextmanager
def open_output(fresh: Path, ending: str) -> Iterator[Write]:
    """Open a file for predictions, ``.csv`` or ``.parquet``: a fresh one, which an atomic write moves into place."""
    if ending == ".csv":
        with fresh.open("w", encoding="utf-8", newline="") as file:
            yield open_csv(file)
        return
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingPackage("writing Parquet needs pyarrow; pip install 'knotwork[parquet]'") from None
    writer: Any = None

    def write(block: pd.DataFrame) -> int:
        nonlocal writer
        table = pa.Table.from_pandas(block, preserve_index=False, schema=writer and writer.schema)
        writer = writer or pq.ParquetWriter(fresh, table.schema)
        writer.write_table(table)
        return len(block)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


def open_csv(file: IO[str], on_terminal: bool = False) -> Write:
    """Return what writes CSV; text that a spreadsheet would run, or that would steer a terminal, is marked."""
    header = True

    def cell(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return printable(marked(value)) if on_terminal else marked(value)

    def write(block: pd.DataFrame) -> int:
        nonlocal header
        written = block.rename(columns=cell)
        for place in [k for k, dtype in enumerate(block.dtypes) if dtype.kind not in "fiub"]:
            written.isetitem(place, [cell(value) for value in block.iloc[:, place].astype(object)])
        written.to_csv(file, index=False, header=header)
        header = False
        return len(block)

    return write
