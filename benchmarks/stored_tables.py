"""The tables of the benchmarks that run in pieces in one folder, for machines without the wheels that hold them.

    python benchmarks/stored_tables.py tables                # store: 60 files
    KNOTWORK_TABLES=tables python benchmarks/messy.py …      # all that load tables through ``stored`` read from there

A file is NumPy's ``.npz``, one member a column. Text is the number of its level (-1: a gap) and the levels as JSON, so
that nothing is pickled. Storing reads every file back and compares.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

VARIABLE = "KNOTWORK_TABLES"


def stored(kind: str, name: str) -> tuple[pd.DataFrame, pd.Series] | None:
    """Return features and response from the folder that ``KNOTWORK_TABLES`` names; None where it names none."""
    folder = os.environ.get(VARIABLE)
    return read(Path(folder) / f"{kind}_{name}.npz") if folder else None


def write(path: Path, X: pd.DataFrame, y: pd.Series) -> None:
    frame = X.assign(**{"": y.to_numpy()})  # no column of these tables has an empty name
    members: dict[str, Any] = {"names": as_bytes([str(c) for c in frame])}
    for place, name in enumerate(frame):
        column = frame[name]
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
            members[f"values {place}"] = column.to_numpy()
        else:
            codes, levels = pd.factorize(column)
            members |= {f"codes {place}": codes.astype(np.int32), f"levels {place}": as_bytes(list(levels))}
    np.savez_compressed(path, **members)


def read(path: Path) -> tuple[pd.DataFrame, pd.Series]:
    with np.load(path) as members:
        columns = {}
        for place, name in enumerate(json.loads(members["names"].tobytes())):
            if f"values {place}" in members:
                columns[name] = members[f"values {place}"]
            else:
                levels = np.array([*json.loads(members[f"levels {place}"].tobytes()), np.nan], dtype=object)
                columns[name] = levels[members[f"codes {place}"]]
    # Text stays of dtype object, as in the wheel.
    frame = pd.DataFrame({name: pd.Series(v, dtype=v.dtype) for name, v in columns.items()})
    return frame.drop(columns=""), frame[""]


def as_bytes(values: list[str]) -> np.ndarray:
    return np.frombuffer(json.dumps(values).encode(), dtype=np.uint8)


def store(kind: str, names: list[str], load: Callable[[str], tuple[Any, Any]], folder: Path) -> None:
    for name in names:
        X, y = load(name)
        X, y = pd.DataFrame(X), pd.Series(np.ravel(y))
        X.columns = [str(c) for c in X]
        path = folder / f"{kind}_{name}.npz"
        write(path, X, y)
        again, response = read(path)
        pd.testing.assert_frame_equal(again, X, check_exact=True)
        pd.testing.assert_series_equal(response, y, check_exact=True, check_names=False, check_dtype=False)


def main() -> None:
    import class_data
    import deviance
    import messy_data
    import real_data

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    store("messy", list(messy_data.TABLES), messy_data.load, folder)
    store("real", list(real_data.NAMES), real_data.load, folder)
    store("class", list(class_data.NAMES), class_data.load, folder)
    store("deviance", list(deviance.TABLES), deviance.load, folder)
    files = list(folder.glob("*.npz"))
    print(f"{len(files)} files, {sum(f.stat().st_size for f in files) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
