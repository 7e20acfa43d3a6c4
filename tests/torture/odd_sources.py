"""Rows that are elsewhere: batches, Parquet, memory maps and Dask collections as they should be, and broken ones.

A source is (X, y, sample_weight) as ``fit`` takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import torch
from dask.delayed import delayed

import knotwork as kw

Rng = np.random.Generator
Source = tuple[Any, Any, Any]
Make = Callable[[Rng, Path], Source]


class Again:
    """Batches that differ from reading to reading."""

    def __init__(self, *readings: list[Any]) -> None:
        self._readings = list(readings)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._readings.pop(0) if len(self._readings) > 1 else self._readings[0])


class Breaking:
    """Batches of which one cannot be read."""

    def __init__(self, batches: list[Any], error: BaseException, at: int, readings: int = 0) -> None:
        self._batches, self._error, self._at, self._left = batches, error, at, readings

    def __iter__(self) -> Iterator[Any]:
        self._left -= 1
        for k, batch in enumerate(self._batches):
            if k == self._at and self._left < 0:
                raise self._error
            yield batch


def _rows(rng: Rng, rows: int = 12, columns: int = 3) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(rows, columns))
    return X, np.abs(X[:, 0])


def _frame(rng: Rng, rows: int = 12) -> pd.DataFrame:
    X, y = _rows(rng, rows)
    return pd.DataFrame({"a": X[:, 0], "b": rng.choice(["u", "v"], rows), "c": X[:, 2], "y": y, "w": y + 1})


def _batches(rng: Rng, count: int = 3) -> list[Any]:
    return [_rows(rng) for _ in range(count)]


def _parquet(path: Path, frame: Any, name: str = "t.parquet") -> str:
    path.mkdir(exist_ok=True)
    place = path / name
    pq.write_table(frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame), place)
    return str(place)


def _memmap(rng: Rng, path: Path) -> np.memmap:
    X, _ = _rows(rng, 40)
    X.tofile(path / "rows.bin")
    return np.memmap(path / "rows.bin", dtype=np.float64, shape=(40, 3), mode="r")


def _with(column: Callable[[Rng], Any], name: str = "a", y: Any = "y", w: Any = None) -> Make:
    return lambda rng, path: (_parquet(path, pa.Table.from_pandas(_frame(rng)).drop_columns([name]).append_column(
        name, pa.array(column(rng)) if not isinstance(column(rng), pa.Array) else column(rng))), y, w)  # fmt: skip


def _damaged(rng: Rng, path: Path) -> Source:
    place = Path(_parquet(path, _frame(rng)))
    content = bytearray(place.read_bytes())
    for _ in range(rng.integers(1, 20)):
        content[rng.integers(len(content))] = rng.integers(256)
    place.write_bytes(bytes(content[: rng.integers(4, len(content))] if rng.random() < 0.3 else content))
    return str(place), "y", None


def _folder(rng: Rng, path: Path, *frames: Any) -> Source:
    for k, frame in enumerate(frames):
        _parquet(path / "many", frame, f"{k}.parquet")
    return path / "many", "y", None


def _dask(rng: Rng) -> tuple[Any, Any]:
    X, y = _rows(rng, 36)
    return da.from_array(X, chunks=(12, 3)), da.from_array(y, chunks=12)


def _dask_frame(rng: Rng, partitions: int = 2) -> Any:
    return dd.from_pandas(_frame(rng), npartitions=partitions)


def _unknown(rng: Rng) -> tuple[Any, Any]:
    X, y = _dask(rng)
    return X[y > 0], y[y > 0]


def _failing() -> Any:
    def fail() -> Any:
        raise RuntimeError("a task of mine has failed")

    return da.concatenate([da.ones((12, 3)), da.from_delayed(delayed(fail)(), shape=(12, 3), dtype=float)])


USUAL: list[Make] = [
    lambda rng, path: (kw.Batches(_batches(rng)), None, None),
    lambda rng, path: (kw.Batches([(*_rows(rng), rng.random(12)) for _ in range(3)]), None, None),
    lambda rng, path: (_batches(rng), None, None),
    lambda rng, path: (_parquet(path, _frame(rng)), "y", None),
    lambda rng, path: (Path(_parquet(path, _frame(rng))), ["y", "w"], None),
    lambda rng, path: (kw.Batches(_parquet(path, _frame(rng))), "y", "w"),
    lambda rng, path: (ds.dataset(_parquet(path, _frame(rng)), format="parquet"), "y", None),
    lambda rng, path: (kw.Batches(_memmap(rng, path)), rng.normal(size=40), None),
    lambda rng, path: (*_dask(rng), None),
    lambda rng, path: (_dask_frame(rng)[["a", "b", "c"]], _dask_frame(rng)["y"], None),
]  # fmt: skip

ODD: list[Make] = [
    lambda rng, path: ([], None, None), lambda rng, path: ([(np.eye(3),)], None, None),
    lambda rng, path: (kw.Batches([]), None, None), lambda rng, path: (kw.Batches([1, 2]), None, None),
    lambda rng, path: (kw.Batches([[1, 2]]), None, None), lambda rng, path: (kw.Batches([(1, 2, 3, 4)]), None, None),
    lambda rng, path: (kw.Batches(b for b in _batches(rng)), None, None),
    lambda rng, path: (kw.Batches({"X": 1}), None, None), lambda rng, path: (kw.Batches({1: 2}.items()), None, None),
    lambda rng, path: (kw.Batches("ab"), "y", None), lambda rng, path: (kw.Batches("\0"), "y", None),
    lambda rng, path: (kw.Batches(None), None, None), lambda rng, path: (kw.Batches(3), None, None),
    lambda rng, path: (kw.Batches(np.ones(5)), np.ones(5), None),
    lambda rng, path: (kw.Batches(np.ones((0, 3))), np.ones(0), None),
    lambda rng, path: (kw.Batches(np.ones((5, 0))), np.ones(5), None),
    lambda rng, path: (kw.Batches(np.ones((40, 3))), np.ones(39), None),
    lambda rng, path: (kw.Batches(np.ones((40, 3))), 3, None),
    lambda rng, path: (kw.Batches(np.ones((40, 3))), np.ones(40), np.ones(3)),
    lambda rng, path: (kw.Batches(np.ones((40, 3))), np.ones(40), "w"),
    lambda rng, path: (kw.Batches(np.array([["u", "1"]] * 40)), np.ones(40), None),
    lambda rng, path: (kw.Batches([_rows(rng), _rows(rng, 12, 2)]), None, None),
    lambda rng, path: (kw.Batches([_rows(rng), (_frame(rng), rng.normal(size=12))]), None, None),
    lambda rng, path: (kw.Batches([(_frame(rng), rng.normal(size=12)), _rows(rng, 12, 5)]), None, None),
    lambda rng, path: (kw.Batches([(_frame(rng), np.ones(12)), (_frame(rng).assign(a="x"), np.ones(12))]), None, None),
    lambda rng, path: (kw.Batches([(_frame(rng), np.ones(12)), (_frame(rng)[["a", "b"]], np.ones(12))]), None, None),
    lambda rng, path: (kw.Batches([(np.eye(4), np.eye(4)), (np.eye(4), np.ones((4, 1)))]), None, None),
    lambda rng, path: (kw.Batches([(np.eye(4), np.ones((4, 1))), (np.eye(4), np.eye(4))]), None, None),
    lambda rng, path: (kw.Batches([(np.eye(4), np.ones(4)), (np.eye(4), np.ones((4, 1)))]), None, None),
    lambda rng, path: (kw.Batches([_rows(rng), (np.ones((12, 3)), None)]), None, None),
    lambda rng, path: (kw.Batches([_rows(rng), (np.ones((0, 3)), np.ones(0))]), None, None),
    lambda rng, path: (kw.Batches([(np.ones((0, 3)), np.ones(0))]), None, None),
    lambda rng, path: (kw.Batches([_rows(rng), (np.ones((12, 3)), np.full(12, np.nan))]), None, None),
    lambda rng, path: (kw.Batches([_rows(rng), (np.full((12, 3), np.inf), np.ones(12))]), None, None),
    lambda rng, path: (kw.Batches([(np.full((12, 3), np.nan), np.ones(12))] * 2), None, None),
    lambda rng, path: (kw.Batches([(*_rows(rng), np.zeros(12))] * 2), None, None),
    lambda rng, path: (kw.Batches([(*_rows(rng), -np.ones(12)), (*_rows(rng), np.ones(12))]), None, None),
    lambda rng, path: (kw.Batches([(*_rows(rng), np.ones(3))]), None, None),
    lambda rng, path: (kw.Batches([(*_rows(rng), np.ones(12)), _rows(rng)]), None, None),
    lambda rng, path: (kw.Batches([(*_rows(rng), np.full(12, 1e300))] * 3), None, None),
    lambda rng, path: (kw.Batches([(X * 10.0 ** rng.integers(-300, 300), y) for X, y in _batches(rng)]), None, None),
    lambda rng, path: (kw.Batches([(X, y * 10.0 ** rng.integers(-300, 300)) for X, y in _batches(rng)]), None, None),
    lambda rng, path: (kw.Batches([(np.ones((12, 3)), np.ones(12))] * 2), None, None),
    lambda rng, path: (kw.Batches([([[10**400]] * 4, [1, 2, 3, 4])]), None, None),
    lambda rng, path: (kw.Batches([([["1_7"]] * 4, ["1_7"] * 4)]), None, None),
    lambda rng, path: (kw.Batches([(torch.randn(12, 3, requires_grad=True), torch.randn(12))]), None, None),
    lambda rng, path: (kw.Batches([(torch.empty(12, 3, device="meta"), torch.randn(12))]), None, None),
    lambda rng, path: (kw.Batches([(torch.randn(12, 3).bfloat16(), torch.randn(12))]), None, None),
    lambda rng, path: (kw.Batches([(object(), object())]), None, None),
    lambda rng, path: (kw.Batches([("a", "b")]), None, None),
    lambda rng, path: (kw.Batches([(None, None)]), None, None),
    lambda rng, path: (kw.Batches(Again(_batches(rng), [])), None, None),
    lambda rng, path: (kw.Batches(Again(_batches(rng), _batches(rng, 1))), None, None),
    lambda rng, path: (kw.Batches(Again(_batches(rng), [_rows(rng, 12, 2)])), None, None),
    lambda rng, path: (kw.Batches(Again(_batches(rng), [(np.full((12, 3), np.nan), np.ones(12))])), None, None),
    lambda rng, path: (kw.Batches(Again(_batches(rng), [(1e9 * np.ones((12, 3)), np.ones(12))])), None, None),
    lambda rng, path: (kw.Batches(Again(_batches(rng), [(np.ones((12, 3)), np.full(12, np.nan))])), None, None),
    lambda rng, path: (kw.Batches(Breaking(_batches(rng), RuntimeError("mine"), 1)), None, None),
    lambda rng, path: (kw.Batches(Breaking(_batches(rng), OSError("mine"), 0, readings=1)), None, None),
    lambda rng, path: (kw.Batches(Breaking(_batches(rng), StopIteration(), 1)), None, None),
    lambda rng, path: (memoryview(rng.normal(size=(12, 3))), None, None),
    lambda rng, path: (str(path / "nothing.parquet"), "y", None), lambda rng, path: (path, "y", None),
    lambda rng, path: (_parquet(path, _frame(rng)), "nothing", None),
    lambda rng, path: (_parquet(path, _frame(rng)), "b", None),
    lambda rng, path: (_parquet(path, _frame(rng)), [], None),
    lambda rng, path: (_parquet(path, _frame(rng)), ["y", "y"], None),
    lambda rng, path: (_parquet(path, _frame(rng)), "y", "y"),
    lambda rng, path: (_parquet(path, _frame(rng)), "y", "b"),
    lambda rng, path: (_parquet(path, _frame(rng)[["y"]]), "y", None),
    lambda rng, path: (_parquet(path, _frame(rng).head(0)), "y", None),
    lambda rng, path: (_parquet(path, _frame(rng).head(1)), "y", None),
    lambda rng, path: (_parquet(path, _frame(rng).assign(y=np.nan)), "y", None),
    lambda rng, path: (_parquet(path, _frame(rng).assign(y=np.inf)), "y", None),
    lambda rng, path: (_parquet(path, pa.table([[1.0, 2.0]] * 3, names=["a", "a", "y"])), "y", None),
    lambda rng, path: (_parquet(path, pa.table({"a": [1.0] * 12, "\x1b[31m": [2.0] * 12})), "a", None),
    _with(lambda rng: [[1]] * 12), _with(lambda rng: [b"x"] * 12), _with(lambda rng: [Decimal("1.5")] * 12),
    _with(lambda rng: [None] * 12), _with(lambda rng: [True, None] * 6), _with(lambda rng: [{"x": 1}] * 12),
    _with(lambda rng: pd.date_range("2020", periods=12)), _with(lambda rng: ["u", None] * 6),
    _with(lambda rng: [f"t{k}" for k in range(12)]), _with(lambda rng: [1.0, None] * 6),
    _with(lambda rng: pa.array(["u", "v"] * 6).dictionary_encode()), _with(lambda rng: [np.inf] * 12),
    _with(lambda rng: ["u"] * 12, name="y"), _with(lambda rng: [None] * 12, name="y"),
    _with(lambda rng: [None, 1.0] * 6, name="y"), _with(lambda rng: [None, 1.0] * 6, name="w", w="w"),
    _with(lambda rng: [-1.0] * 12, name="w", w="w"), _with(lambda rng: ["x"] * 12, name="w", w="w"),
    _damaged, _damaged, _damaged,
    lambda rng, path: _folder(rng, path, _frame(rng), _frame(rng)[["a", "y"]]),
    lambda rng, path: _folder(rng, path, _frame(rng)[["a", "y"]], _frame(rng)),
    lambda rng, path: _folder(rng, path, _frame(rng), _frame(rng).assign(a="x")),
    lambda rng, path: _folder(rng, path, _frame(rng), _frame(rng).head(0)),
    lambda rng, path: _folder(rng, path, _frame(rng).astype({"a": "float32"}), _frame(rng)),
    lambda rng, path: (*_unknown(rng), None), lambda rng, path: (_dask(rng)[0], None, None),
    lambda rng, path: (_dask(rng)[0], np.ones(36), None), lambda rng, path: (_dask(rng)[0], _dask(rng)[1][:24], None),
    lambda rng, path: (_dask(rng)[0], _dask(rng)[1].rechunk(5), None),
    lambda rng, path: (_dask(rng)[0].rechunk((12, 1)), _dask(rng)[1], None),
    lambda rng, path: (_dask(rng)[0][:, 0], _dask(rng)[1], None),
    lambda rng, path: (_dask(rng)[1], _dask(rng)[1], None), lambda rng, path: (*_dask(rng), -_dask(rng)[1]),
    lambda rng, path: (*_dask(rng), _dask(rng)[1] * 0), lambda rng, path: (*_dask(rng), np.ones(36)),
    lambda rng, path: (_dask(rng)[0] * np.nan, _dask(rng)[1], None),
    lambda rng, path: (_dask(rng)[0], _dask(rng)[1] * np.inf, None),
    lambda rng, path: (_failing(), da.ones(24, chunks=12), None),
    lambda rng, path: (da.zeros((0, 3)), da.zeros(0), None),
    lambda rng, path: (_dask_frame(rng, 3), _dask_frame(rng)["y"], None),
    lambda rng, path: (_dask_frame(rng), _dask(rng)[1], None),
    lambda rng, path: (_dask_frame(rng)["a"], _dask_frame(rng)["y"], None),
    lambda rng, path: (_dask_frame(rng), _dask_frame(rng), None),
    lambda rng, path: (_dask_frame(rng), _dask_frame(rng)["b"], None),
]  # fmt: skip
