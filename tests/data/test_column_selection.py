from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from knotwork.data.column_selection import choose_columns, guess_task
from knotwork.data.files import Table
from knotwork.errors import ColumnsError, DataError

N = 40


def table_of(**columns):
    made = {}
    kinds = {}
    for name, values in {**columns, "y": np.random.default_rng(0).normal(size=N)}.items():
        if isinstance(values, str):
            kinds[name] = values
            continue
        values = np.asarray(values)
        kinds[name] = "number" if values.dtype.kind in "fi" else "text"
        made[name] = values.astype(float) if kinds[name] == "number" else pd.Categorical(values)
    return Table(Path("t.csv"), made, kinds, N, "CSV")


X = np.random.default_rng(1).normal(size=N)


@pytest.mark.parametrize(
    "identifier",
    [
        np.arange(N), np.arange(N) * 7 + 1000, -np.arange(N), np.random.default_rng(0).permutation(N),
        [f"row {k}" for k in range(N)],
    ],
)  # fmt: skip
def test_identifiers_are_left_out_unless_included(identifier):
    table = table_of(id=identifier, x=X)
    found = choose_columns(table, "y")
    assert found.features == ("x",)
    assert "looks like an identifier" in found.left_out["id"]
    assert "--include id" in found.left_out["id"]
    forced = choose_columns(table, "y", include=["id"])
    assert forced.features == ("id", "x")
    assert forced.left_out == {}


def test_whole_numbers_that_repeat_or_jump_about_are_features():
    rng = np.random.default_rng(0)
    table = table_of(counts=rng.integers(0, 9, N), jumps=rng.permutation(N) ** 2, x=X)
    assert choose_columns(table, "y").features == ("counts", "jumps", "x")


def test_a_count_that_is_the_only_column_is_used():
    assert choose_columns(table_of(x=np.arange(N)), "y").features == ("x",)


def test_columns_that_tell_nothing_are_left_out_with_the_reason():
    table = table_of(
        constant=np.full(N, 3.0), word=["a"] * N, empty=np.full(N, np.nan), many=[f"c{max(k, 1)}" for k in range(N)],
        endless="text", x=X, z=X**2,
    )  # fmt: skip
    found = choose_columns(table, "y", exclude=["z"])
    assert found.features == ("x",)
    assert found.left_out == {
        "constant": "is 3 in every row",
        "word": "is 'a' in every row",
        "empty": "has no values",
        "many": "looks like an identifier: 39 different values in 40 rows (--include many uses it)",
        "endless": "holds more than 1000000 different texts, or more than 64 MB of them",
        "z": "excluded",
    }
    assert choose_columns(table, "y", include=["many"]).features == ("many", "x", "z")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"x": X}, {"target": "z"}, "no column 'z'; its columns are 'x', 'y'"),
        ({"Weight": X}, {"exclude": ["weigth"]}, r"'weigth' \(did you mean 'Weight'\?\)"),
        ({"x": X}, {"exclude": ["y"]}, "the target cannot be a feature"),
        ({"x": X, "when": "date"}, {"target": "when"}, "column 'when' of t.csv holds dates; choose another target"),
        ({"x": X, "key": "text"}, {"target": "key"}, "'key' of t.csv holds more than 1000000 different texts"),
        ({"x": X}, {"exclude": ["x"], "include": ["x"]}, "either included or excluded"),
        ({"x": X}, {"exclude": ["x"]}, "needs a column other than the target, .*'x': excluded"),
        ({}, {}, "only the target"),
        ({"when": "date", "x": X}, {}, r"ISO 8601.*, column 'when' of t.csv holds other notations.*\(--exclude when\)"),
        ({"big": "text", "x": X}, {"include": ["big"]}, "must have few different values"),
    ],
)
def test_what_cannot_be_used_is_refused(columns, options, message):
    with pytest.raises(DataError, match=message):
        choose_columns(table_of(**columns), **{"target": "y", **options})


def test_all_that_cannot_be_used_is_refused_together_in_the_files_order():
    table = table_of(
        when="date", x=X, far=np.where(np.arange(N) == 3, np.inf, X), price="text", big="text", same=np.full(N, np.inf)
    )
    table = replace(table, refused={"price": "column 'price' must hold numbers; correct it"})
    expected = [
        "column 'when' of t.csv holds other",
        "column 'far' of t.csv has inf in data row 4",
        "column 'price' must",
    ]
    with pytest.raises(ColumnsError) as error:
        choose_columns(table, "y")
    assert all(part in sentence for part, sentence in zip(expected, error.value.args, strict=True))
    with pytest.raises(ColumnsError) as error:
        choose_columns(table, "when", exclude=["price"], include=["big"])
    assert [sentence.split(" holds ")[0].split(", ")[-1] for sentence in error.value.args[::2]] == [
        "column 'when' of t.csv", "column 'big' of t.csv"
    ]  # fmt: skip
    assert "the target must hold" in error.value.args[0]
    with pytest.raises(ColumnsError, match="'price' must hold numbers"):  # it says which rows to hold out
        choose_columns(table, "y", exclude=["when", "far", "price"], groups="price")
    assert choose_columns(table, "y", exclude=["when", "far", "price"]).features == ("x",)


def test_dates_may_be_excluded():
    assert choose_columns(table_of(when="date", x=X), "y", exclude=["when"]).features == ("x",)


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (pd.Categorical(["a", "b"]), "classification"),
        (np.array([0.0, 1.0, 1.0]), "classification"),
        (np.array([-1.0, 1.0, np.nan]), "classification"),
        (np.array([1.0, 2.0, 3.0, 2.0]), "classification"),
        (np.array([3.0, 4.0, 5.0, 6.0, 7.0, 8.0]), "regression"),
        (np.arange(29.0), "regression"),
        (np.arange(1.0, 11.0), "regression"),
        (np.arange(1.0, 11.0).repeat(2), "classification"),
        (np.array([0.5, 1.5]), "regression"),
        (np.array([0.0, 1.0, 3.0]), "regression"),
        (np.array([7.0, 7.0]), "regression"),
    ],
)  # fmt: skip
def test_the_task_is_guessed(values, task):
    assert guess_task(values)[0] == task
