"""What is in the tables, as a table in Markdown."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .catalogue import TABLES
from .draw import FINAL
from .load import load, load_split, text_columns


def describe(names: list[str]) -> str:
    """Read the tables; return a row of Markdown for each."""
    lines = [
        "| table | from | response | rows × columns | training, test rows | text columns, most levels | "
        "columns with gaps | origin; licence | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        table, whole = TABLES[name], load(name)
        train, test = load_split(name, 0)
        levels = [whole.X[column].nunique() for column in text_columns(whole.X)]
        response = f"log {table.response}" if table.log else "last column" if table.response == "-1" else table.response
        if table.task == "classes":
            response += f", {len(np.unique(whole.y))} classes"
        lines.append(
            f"| {name} | {table.place} | {response} | {len(whole.y)} × {whole.X.shape[1]} | "
            f"{len(train.y)}, {len(test.y)} | {len(levels)}, {max(levels, default=0)} | {_gaps(whole.X)} | "
            f"{table.origin} | {'final' if name in FINAL else ''} |"
        )
    return "\n".join(lines)


def _gaps(X: pd.DataFrame) -> str:
    missing = X.isna().mean()
    count = int((missing > 0).sum())
    return f"{count}, up to {100 * missing.max():.2g} %" if count else "0"
