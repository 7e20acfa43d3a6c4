"""Values that no function expects: wrong types, shapes and dtypes, numbers at the ends of their range, odd frames."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse
import torch
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, TimeSeriesSplit
from torch import nn

Rng = np.random.Generator
Make = Callable[[Rng], Any]

HUGE = 10**400


class Failing(nn.Module):
    """A network that raises."""

    def forward(self, x):
        raise RuntimeError("a layer of my own has failed")


class Pair(nn.Module):
    """A network that gives two things."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 1)

    def forward(self, x):
        return self.inner(x), x


class Unsteady(nn.Module):
    """A network that gives one row fewer than it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 1)

    def forward(self, x):
        return self.inner(x)[1:]


class FailingSplitter:
    """A splitter that raises."""

    def split(self, X, y=None, groups=None):
        raise RuntimeError("no split of mine")

    def get_n_splits(self, X=None, y=None, groups=None):
        return 1


class Stubborn:
    """An object that no one can turn into an array."""

    def __array__(self, *_, **__):
        raise RuntimeError("no array of me")


def _rows(rng: Rng) -> int:
    return int(rng.choice([0, 1, 2, 3, 12]))


def _filled(value: float) -> Make:
    def make(rng: Rng) -> Any:
        array = rng.normal(size=(12, 3))
        array[rng.integers(12), rng.integers(3)] = value
        return array

    return make


def _all(value: Any) -> Make:
    return lambda rng: np.full((12, 3), value)


def _poisoned(net: nn.Module, value: float) -> nn.Module:
    with torch.no_grad():
        next(net.parameters()).fill_(value)
    return net


def _mlp(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), *layers, nn.Linear(4, 1))


NUMBERS: list[Make] = [
    lambda rng, v=v: v
    for v in (
        None, True, False, -1, 0, 1, 2, 2**31, 2**63, 10**19, -(10**19), HUGE, -0.5, 0.5, 1.0, 2.5, 1e-300, 5e-324,
        1e300,
        float("nan"), float("inf"), -float("inf"), 1j, Decimal("0.1"), Fraction(1, 3), np.float32(0.5), np.int8(-1),
        np.float64("nan"), np.bool_(True), np.array(3), np.array([3]), np.datetime64("2020-01-01"), date(2020, 1, 1),
        np.complex64(1), np.timedelta64(1, "D"), np.float16(0.5), np.longdouble(0.5),
    )
]  # fmt: skip

OBJECTS: list[Make] = [
    lambda rng: "", lambda rng: "banana", lambda rng: "auto", lambda rng: "x0", lambda rng: "\x1b[31m\n",
    lambda rng: b"bytes", lambda rng: [], lambda rng: (), lambda rng: {}, lambda rng: set(), lambda rng: [[]],
    lambda rng: [None], lambda rng: [1, "a"], lambda rng: ("a", 1.5), lambda rng: {"a": 1}, lambda rng: {1, 2},
    lambda rng: object(), lambda rng: (lambda x: x), lambda rng: range(3), lambda rng: (v for v in [1, 2]),
    lambda rng: type, lambda rng: Path("nowhere"), lambda rng: Stubborn(), lambda rng: slice(1),
    lambda rng: NotImplemented,
    lambda rng: ..., lambda rng: np.random.default_rng(0), lambda rng: [[1, 2], [3]], lambda rng: "9" * 5000,
    lambda rng: [float("nan")] * 12, lambda rng: [HUGE] * 12, lambda rng: [[HUGE] * 3] * 12,
]  # fmt: skip

ARRAYS: list[Make] = [
    lambda rng: np.zeros((0, 3)), lambda rng: np.zeros((12, 0)), lambda rng: np.zeros(()),
    lambda rng: np.zeros((2, 3, 4)),
    lambda rng: rng.normal(size=12), lambda rng: rng.normal(size=(1, 3)), lambda rng: rng.normal(size=(12, 7)),
    lambda rng: rng.normal(size=(_rows(rng), 3)), lambda rng: rng.normal(size=(3, 12)).T,
    lambda rng: rng.integers(-128, 127, (12, 3)).astype(np.int8),
    lambda rng: np.full((12, 3), 2**64 - 1, dtype=np.uint64),
    lambda rng: rng.random((12, 3)) < 0.5, lambda rng: rng.normal(size=(12, 3)) + 1j,
    lambda rng: rng.normal(size=(12, 3)).astype(np.float16),
    lambda rng: rng.normal(size=(12, 3)).astype(np.longdouble),
    lambda rng: np.full((12, 3), np.datetime64("2020-01-01")), lambda rng: np.full((12, 3), np.timedelta64(3, "D")),
    lambda rng: np.array([["a", "b", "c"]] * 12), lambda rng: np.array([["1", "2", "3.5"]] * 12),
    lambda rng: np.array([[1, None, "a"]] * 12, dtype=object),
    lambda rng: np.array([[1, 2.5, True]] * 12, dtype=object),
    lambda rng: np.array([[HUGE, 1, 2]] * 12, dtype=object), lambda rng: np.array([[b"a", b"b", b"c"]] * 12),
    lambda rng: np.array([(1, 2.0)] * 12, dtype=[("a", int), ("b", float)]),
    _filled(np.nan), _filled(np.inf), _filled(-np.inf), _filled(1e308), _filled(5e-324), _all(1e308), _all(5e-324),
    _all(0.0), _all(-0.0), _all(1e-310), _all(7.0), lambda rng: 1e12 + rng.normal(size=(12, 3)),
    lambda rng: 1e200 * rng.normal(size=(12, 3)), lambda rng: 1e-200 * rng.normal(size=(12, 3)),
    lambda rng: np.ma.masked_less(rng.normal(size=(12, 3)), 0), lambda rng: np.asmatrix(rng.normal(size=(12, 3))),
    lambda rng: np.broadcast_to(rng.normal(size=3), (12, 3)), lambda rng: rng.normal(size=(24, 6))[::2, ::-2],
    lambda rng: rng.normal(size=(12, 3)).astype(">f8"), lambda rng: np.zeros(12), lambda rng: np.full(12, np.nan),
    lambda rng: -np.ones(12), lambda rng: np.array(["a", "b"] * 6), lambda rng: np.array([1, "a"] * 6, dtype=object),
    lambda rng: np.array([None] * 12), lambda rng: rng.integers(0, 2, 12), lambda rng: rng.integers(0, 12, 12),
    lambda rng: np.arange(12), lambda rng: np.full(12, 1e308), lambda rng: np.full(12, 5e-324),
    lambda rng: rng.normal(size=(12, 2)), lambda rng: rng.normal(size=(12, 1)),
    lambda rng: np.array([True, False] * 6),
    lambda rng: scipy.sparse.csr_matrix(rng.normal(size=(12, 3))), lambda rng: scipy.sparse.eye_array(12).tocoo(),
    lambda rng: rng.normal(size=(12, 3)).tolist(), lambda rng: memoryview(rng.normal(size=(12, 3))),
]  # fmt: skip

TENSORS: list[Make] = [
    lambda rng: torch.zeros(0, 3), lambda rng: torch.randn(12, 3, requires_grad=True), lambda rng: torch.randn(12),
    lambda rng: torch.randn(12, 3, dtype=torch.bfloat16), lambda rng: torch.ones(12, 3, dtype=torch.int32),
    lambda rng: torch.eye(12).to_sparse(), lambda rng: torch.empty(12, 3, device="meta"),
    lambda rng: torch.tensor(3.0),
    lambda rng: torch.full((12, 3), float("nan")), lambda rng: torch.randn(12, 3, dtype=torch.complex64),
    lambda rng: torch.randn(2, 3, 4), lambda rng: torch.ones(12, dtype=torch.bool), lambda rng: torch.float16,
    lambda rng: torch.device("cpu"), lambda rng: torch.device("meta"), lambda rng: nn.Parameter(torch.randn(12, 3)),
]  # fmt: skip


def _frame(column: Callable[[Rng], Any], name: Any = "a") -> Make:
    return lambda rng: pd.DataFrame({name: column(rng), "b": rng.normal(size=12), "c": rng.normal(size=12)})


FRAMES: list[Make] = [
    _frame(lambda rng: ["u", "v", "w"] * 4), _frame(lambda rng: pd.array([True, None] * 6, dtype="boolean")),
    _frame(lambda rng: pd.array([1, None] * 6, dtype="Int64")),
    _frame(lambda rng: pd.array(["x", None] * 6, dtype="string")),
    _frame(lambda rng: pd.date_range("2020", periods=12)), _frame(lambda rng: pd.timedelta_range("1D", periods=12)),
    _frame(lambda rng: pd.Categorical(["p", "q", None] * 4)), _frame(lambda rng: pd.Categorical([1, 2, 3] * 4)),
    _frame(lambda rng: [1, "a"] * 6), _frame(lambda rng: [[1], [2]] * 6), _frame(lambda rng: [HUGE] * 12),
    _frame(lambda rng: [1j] * 12), _frame(lambda rng: [Decimal("1.5")] * 12), _frame(lambda rng: [None] * 12),
    _frame(lambda rng: [np.inf] * 12), _frame(lambda rng: [f"t{k}" for k in range(12)]),
    _frame(lambda rng: [b"x"] * 12), _frame(lambda rng: ["1_7", "2.5"] * 6), _frame(lambda rng: ["٣", "１.5"] * 6),
    _frame(lambda rng: ["inf", "NAN", "Infinity", "-nan"] * 3),
    _frame(lambda rng: rng.normal(size=12), name=1), _frame(lambda rng: rng.normal(size=12), name=("a", 1)),
    _frame(lambda rng: rng.normal(size=12), name="\x1b[31m"), _frame(lambda rng: rng.normal(size=12), name=""),
    _frame(lambda rng: pd.arrays.SparseArray([0.0, 1.0] * 6)), _frame(lambda rng: pd.period_range("2020", periods=12)),
    _frame(lambda rng: pd.interval_range(0, 12)), _frame(lambda rng: ["b", "c"] * 6, name="b=x"),
    lambda rng: pd.DataFrame(rng.normal(size=(12, 3)), columns=["a", "a", "b"]),
    lambda rng: pd.DataFrame({"a": ["b", "c"] * 6, "a=b": rng.normal(size=12), "d": 1.0}),
    lambda rng: pd.DataFrame(), lambda rng: pd.DataFrame(index=range(12)), lambda rng: pd.DataFrame({"a": []}),
    lambda rng: pd.DataFrame(rng.normal(size=(12, 3)), columns=list("abc"), index=[0] * 12),
    lambda rng: pd.DataFrame(rng.normal(size=(12, 3)), columns=pd.MultiIndex.from_tuples([(1, 2), (1, 3), (2, 2)])),
    lambda rng: pd.DataFrame(rng.normal(size=(12, 3)), columns=[np.nan, None, "x"]),
    lambda rng: pd.Series(rng.normal(size=12)), lambda rng: pd.Series([1, None] * 6, dtype="Int64"),
    lambda rng: pd.Series(["a", "b"] * 6, dtype="category"), lambda rng: pd.Series(pd.date_range("2020", periods=12)),
    lambda rng: pd.Index(range(12)), lambda rng: pd.Series(["a", None] * 6),
    lambda rng: pl.DataFrame({"a": [1.0, None] * 6, "b": rng.normal(size=12), "c": ["u", "v"] * 6}),
    lambda rng: pl.DataFrame({"a": [[1]] * 12, "b": rng.normal(size=12)}), lambda rng: pl.DataFrame(),
    lambda rng: pl.DataFrame({"a": [{"x": 1}] * 12}), lambda rng: pl.DataFrame({"a": [date(2020, 1, 1)] * 12}),
    lambda rng: pl.DataFrame({"a": rng.normal(size=12)}).lazy(), lambda rng: pl.Series("a", [1, 2] * 6),
    lambda rng: pl.DataFrame({"a": [2**100] * 12}, schema={"a": pl.Int128}),
    lambda rng: pa.table({"a": rng.normal(size=12), "b": [True, None] * 6, "c": ["u", "v"] * 6}),
    lambda rng: pa.Table.from_arrays([pa.array(rng.normal(size=12))] * 2, names=["a", "a"]),
    lambda rng: pa.table({"a": pa.array([b"x"] * 12)}), lambda rng: pa.array([1, 2]),
    # Dates, times and durations, in all clocks, with gaps, at the ends of their ranges.
    _frame(lambda rng: pd.date_range("2020", periods=12, tz="Europe/Berlin")), _frame(lambda rng: [pd.NaT] * 12),
    _frame(lambda rng: [pd.Timestamp("2020-02-29 23:59"), pd.NaT] * 6), _frame(lambda rng: [pd.Timedelta(0)] * 12),
    _frame(lambda rng: pd.to_timedelta([None, "3h"] * 6)), _frame(lambda rng: [time(k, 30) for k in range(12)]),
    _frame(lambda rng: [date(1, 1, 1), date(9999, 12, 31)] * 6), _frame(lambda rng: [datetime(2020, 1, 1)] * 12),
    _frame(lambda rng: [datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=3)))] * 6),
    _frame(lambda rng: np.array(["2262-04-11", "1677-09-22"] * 6, dtype="datetime64[ns]")),
    _frame(lambda rng: np.array(["0001-01-01", "9999-12-31"] * 6, dtype="datetime64[s]")),
    _frame(lambda rng: ["2020-01-01", "2020-13-77"] * 6), _frame(lambda rng: [date(2020, 1, 1), "x"] * 6),
    lambda rng: pd.DataFrame({"a": pd.date_range("2020", periods=12), "b": ["u", None] * 6, "c": [np.nan] * 12}),
    lambda rng: pl.DataFrame({"a": [datetime(2020, 1, k + 1) for k in range(12)],
                              "b": [timedelta(k) for k in range(12)],
                              "c": [time(k) for k in range(12)]}),
    lambda rng: pl.DataFrame({"a": [date(2020, 1, 1), None] * 6, "b": rng.normal(size=12), "c": [float("nan")] * 12}),
    lambda rng: pl.DataFrame({"a": pl.Series(["u", "v"] * 6, dtype=pl.Enum(["v", "u"])), "b": rng.normal(size=12),
                              "c": pl.Series(["s", None] * 6, dtype=pl.Categorical)}),
    lambda rng: pa.table({"a": pa.array(["u", None] * 6).dictionary_encode(), "b": rng.normal(size=12),
                          "c": pa.array([datetime(2020, 1, 1)] * 12, pa.timestamp("us", tz="UTC"))}),
    # Gaps and categories: none, all, many, in an order, in names that collide with ours.
    _frame(lambda rng: pd.Categorical(["p", "q", None] * 4, ordered=True)),
    _frame(lambda rng: pd.Categorical([None] * 12)),
    _frame(lambda rng: pd.Categorical(["p"] * 12, categories=["p", "q", ""])), _frame(lambda rng: ["", " ", "\0"] * 4),
    _frame(lambda rng: [np.nan, 1.0] * 6), _frame(lambda rng: [np.nan, np.inf] * 6),
    _frame(lambda rng: [True, None] * 6),
    lambda rng: pd.DataFrame({"a": [np.nan, 1.0] * 6, "a is missing": rng.normal(size=12), "c": 1.0}),
    lambda rng: pd.DataFrame({"a": rng.normal(size=12), "b": ["new", None] * 6, "c": rng.normal(size=12)}),
    lambda rng: pd.DataFrame({"a": ["text", "x"] * 6, "b": 1.0, "c": pd.date_range("2020", periods=12)}),
    lambda rng: pa.record_batch({"a": rng.normal(size=12), "b": rng.normal(size=12), "c": rng.normal(size=12)}),
]  # fmt: skip

MODULES: list[Make] = [
    lambda rng: nn.Identity(), lambda rng: nn.Sequential(), lambda rng: nn.Linear(3, 1), lambda rng: nn.ReLU(),
    lambda rng: nn.Sequential(nn.ReLU()), lambda rng: _mlp(nn.Tanh()), lambda rng: _mlp(nn.BatchNorm1d(4), nn.ReLU()),
    lambda rng: _mlp(nn.Softmax(dim=1)),
    lambda rng: nn.Sequential(nn.Conv1d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2, 1)),
    lambda rng: nn.LSTM(3, 1), lambda rng: nn.LazyLinear(1), lambda rng: Failing(), lambda rng: Pair(),
    lambda rng: Unsteady(),
    lambda rng: _mlp(nn.ReLU()).to(torch.bfloat16), lambda rng: _mlp(nn.ReLU()).half(),
    lambda rng: _mlp(nn.ReLU()).to("meta"),
    lambda rng: _poisoned(_mlp(nn.ReLU()), float("nan")), lambda rng: _poisoned(_mlp(nn.ReLU()), float("inf")),
    lambda rng: _poisoned(_mlp(nn.ReLU()), 1e30),
    lambda rng: nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 1)),
    lambda rng: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 1)),
    lambda rng: nn.ModuleList([nn.Linear(3, 1)]),
    lambda rng: nn.Embedding(3, 2), lambda rng: _mlp(nn.PReLU(4)), lambda rng: _mlp(nn.LeakyReLU(-1.0)),
    lambda rng: _mlp(nn.LeakyReLU(1.0)), lambda rng: nn.Sequential(nn.Linear(3, 0), nn.ReLU(), nn.Linear(0, 1)),
    lambda rng: torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 1)),
    lambda rng: _mlp(nn.Dropout(1.0), nn.ReLU()),
    lambda rng: torch.jit.script(nn.Linear(3, 1)), lambda rng: nn.Transformer, lambda rng: nn.Bilinear(3, 3, 1),
]  # fmt: skip

SPLITS: list[Make] = [
    lambda rng: KFold(3), lambda rng: KFold(50), lambda rng: GroupKFold(2), lambda rng: TimeSeriesSplit(2),
    lambda rng: TimeSeriesSplit(30), lambda rng: ShuffleSplit(1, random_state=0), lambda rng: KFold,
    lambda rng: FailingSplitter(),
    lambda rng: [([0, 1, 2, 3, 4, 5], [6, 7, 8])], lambda rng: [(range(6), range(6, 12))],
    lambda rng: [(np.arange(12) < 6, np.arange(12) >= 6)],
    lambda rng: [(range(12), range(12))], lambda rng: [([0], [])],
    lambda rng: [([], [])],
    lambda rng: [(range(6), [99])], lambda rng: [(range(6), [-1])], lambda rng: [([0.5], [1.5])],
    lambda rng: [(["a"], ["b"])], lambda rng: [(None, None)], lambda rng: [1, 2], lambda rng: [[range(6)]],
    lambda rng: iter([(range(6), range(6, 12))]), lambda rng: [([2**70], [1])], lambda rng: [(np.ones(3, bool), [1])],
    lambda rng: (rng.normal(size=(4, 3)), rng.normal(size=4)),
    lambda rng: (rng.normal(size=(4, 2)), rng.normal(size=4)),
    lambda rng: (rng.normal(size=(4, 3)), rng.normal(size=5)), lambda rng: (pd.DataFrame({"a": [1.0]}), [1.0]),
    lambda rng: (np.full((4, 3), np.nan), np.zeros(4)), lambda rng: (np.zeros((0, 3)), np.zeros(0)),
]  # fmt: skip
# What parameters with a few values may be: combinations of these are tried beside values that are refused.
CHOICES: dict[str, tuple[Any, ...]] = {
    "missing": ("indicator", "error"), "extrapolate": ("clip", "linear", None), "backend": ("auto", "cpu", "torch"),
    "inputs": ("columns", "features", None), "dtype": ("float32", "float64", torch.float32, torch.float64, None),
    "task": ("auto", "regression", "classification"), "compat": ("earth", None), "interaction": ("min", "product"),
    "start": ("spline", "random"), "activation": ("relu", "leaky_relu", "gelu", "softplus", nn.SiLU(), nn.ReLU6()),
    "max_degree": (1, 2, "auto"), "fold": (True, False), "freeze": (True, False), "overwrite": (True, False),
    "class_weight": ("balanced", {False: 1, True: 3}, None), "shape": ("convex", "concave"), "reduce": (1, None),
    "dropout": (0.0, 0.5), "average": (True, False, 2), "standardise": (True, False),
    "loss": ("squared_error", "poisson", "gamma", "tweedie", "quantile", "absolute_error", "huber", nn.MSELoss()),
    "n_members": (1, 2, "auto"), "quantile": (0.1, 0.5), "power": (1.5, 2, 3), "batch_size": ("auto", 8),
    "coverage": (0.5, 0.9), "calibrate": (True, False), "draws": (2, 5), "blocks": (2, 6), "points": (2, 5),
    "monotonic_cst": ([1, 0, -1], [0, 0, 0], {"a": 1}, {"x0": -1}, [1, 0], (2, 0, 0), np.ones(3),
                      [np.array([1, 2]), 0, 0]),
    "knots": ({"x0": [0.0, 0.5]}, {"a": [0.0]}, [[0.0], None, []], [None] * 3, {"b": [0.0]}, {"x0": ["u"]},
              [[np.nan]] * 3, {"x0": range(10**6)}),
    "interacting": (["x0"], ["a"], [0, 1], [99], ["b"], [True], [[0]]),
    "cells": (["A2", "B2", "C2"], {"a": "$B7", "b": "C7", "c": "D7"}, ["", "", ""], ["=1", "B2", "\n"]),
    "output": (0, 1, -1), "name": ("predict", "double", "float", "main", "namespace", "x0", "_", "é", "a b"),
}  # fmt: skip

POOLS = {"number": NUMBERS, "object": OBJECTS, "array": ARRAYS, "tensor": TENSORS, "frame": FRAMES, "module": MODULES,
         "split": SPLITS}  # fmt: skip
# Which kinds of odd values are near what a parameter expects; the others are tried too, less often.
NEAR = {
    "X": ("array", "frame", "tensor"), "y": ("array", "frame", "tensor"), "sample_weight": ("array", "frame"),
    "net": ("module",), "module": ("module",), "model": ("module", "object"), "activation": ("module", "object"),
    "validation": ("split",), "cv": ("split", "number"), "groups": ("array", "frame"),
    "limits": ("array", "object"), "lower": ("array", "number"),
    "upper": ("array", "number"), "data": ("tensor", "array", "object"),
    "box": ("array", "object"), "device": ("tensor", "object"),
}  # fmt: skip


def odd(name: str, rng: Rng) -> Any:
    """Return an odd value for a parameter of this name."""
    if name in CHOICES and rng.random() < 0.4:
        return CHOICES[name][rng.integers(len(CHOICES[name]))]
    near = NEAR.get(name, ("number", "object"))
    kinds = near if rng.random() < 0.8 else tuple(POOLS)
    pool = POOLS[kinds[rng.integers(len(kinds))]]
    return pool[rng.integers(len(pool))](rng)
