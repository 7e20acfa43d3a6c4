import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import knotwork as kw
from knotwork.data.columns.number import Number
from knotwork.data.dialect import is_number
from knotwork.data.learn import learn_encoder
from knotwork.errors import CategoryWarning, ColumnWarning, DataError

COLUMNS = {
    "size": [1.0, 2.0, 3.0, 4.0],
    "colour": ["red", "blue", "red", "green"],
    "old": [True, False, True, True],
}
MATRIX = [[1, 0, 0, 1, 1], [2, 1, 0, 0, 0], [3, 0, 0, 1, 1], [4, 0, 1, 0, 1]]
NAMES = ("size", "colour=blue", "colour=green", "colour=red", "old")

FRAMES = {
    "pandas": lambda c: pd.DataFrame(c),
    "pandas object": lambda c: pd.DataFrame(c).astype({"colour": object}),
    "pandas category": lambda c: pd.DataFrame(c).astype({"colour": "category"}),
    "pandas nullable": lambda c: pd.DataFrame(c).convert_dtypes(),
    "polars": lambda c: pl.DataFrame(c),
    "polars categorical": lambda c: pl.DataFrame(c).with_columns(pl.col("colour").cast(pl.Categorical)),
    "pyarrow": lambda c: pa.table(c),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_every_kind_encode_alike(kind):
    frame = FRAMES[kind](COLUMNS)
    encoder = learn_encoder(frame)
    assert encoder.feature_names == NAMES
    assert encoder.source == (0, 1, 1, 1, 2)
    assert encoder.encode(frame).tolist() == MATRIX


@pytest.mark.parametrize("kind", FRAMES)
def test_abalone_fits_alike_from_every_kind_of_frame(kind):
    X, y = kw.datasets.load_abalone()
    columns = {"colour": X["Sex"].tolist(), **{name: X[name].tolist() for name in X.columns[1:]}}
    model = kw.MarsRegressor().fit(FRAMES[kind](columns), y)
    expected = kw.MarsRegressor().fit(X.rename(columns={"Sex": "colour"}), y)
    assert model.spline_ == expected.spline_
    assert np.array_equal(model.predict(FRAMES[kind](columns)), expected.predict(X.rename(columns={"Sex": "colour"})))
    assert list(model.feature_names_in_) == list(columns)
    assert "where colour is I" in model.summary()


def test_unseen_categories_count_as_none_and_are_named():
    encoder = learn_encoder(pd.DataFrame(COLUMNS))
    new = pd.DataFrame(COLUMNS).assign(colour=["red", "violet", "ochre", "red"])
    with pytest.warns(CategoryWarning, match=r"'colour'.*'ochre', 'violet'.*indicators are 0"):
        matrix = encoder.encode(new)
    assert matrix[1:3, 1:4].tolist() == [[0, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            pd.DataFrame({"a": [1.0, np.nan, 3.0]}),
            r"column 'a' contains NaN \(NaN or inf in 1 of 3 rows, first 1\)",
        ),
        (pd.DataFrame({"a": [1.0, 2.0, np.inf]}), "column 'a' contains inf"),
        (pl.DataFrame({"a": [1, None, 3]}), "column 'a' contains NaN"),
        (
            pl.DataFrame({"a": ["x", None, "y"]}),
            "column 'a' has 1 of them; drop those rows, give the gap a category",
        ),
        (pd.DataFrame({"a": ["x", 1, 2.5]}), "column 'a' mixes float and int and str; convert it to text"),
        (pl.DataFrame({"a": [[1, 2], [3]]}), "column 'a' holds List"),
    ],
)
def test_what_cannot_be_encoded_is_named(frame, message):
    with pytest.raises(DataError, match=message):
        learn_encoder(frame, missing="error").encode(frame)


def test_a_column_that_changes_its_kind_is_named():
    encoder = learn_encoder(pd.DataFrame({"a": [1.0, 2.0], "b": [1, 2]}))
    with pytest.raises(DataError, match="column 'b' held numbers in training and now holds text"):
        encoder.encode(pd.DataFrame({"a": [1.0], "b": ["one"]}))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_an_array_for_a_model_of_categories():
    X, y = kw.datasets.load_abalone()
    model = kw.MarsRegressor().fit(X, y)
    with pytest.raises(DataError, match=r"'Sex'.*got an array; pass a data frame"):
        model.predict(np.zeros((2, 8)))


def test_a_frame_that_has_some_of_the_names_is_read_by_name_or_refused():
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    encoder = learn_encoder(table)
    np.testing.assert_array_equal(encoder.encode(table[["b", "a"]]), table)
    with pytest.raises(DataError, match="without 'a'"):
        encoder.encode(table.rename(columns={"a": "A"})[["b", "A"]])
    np.testing.assert_array_equal(encoder.encode(table.set_axis(["x", "y"], axis=1)), table)


@pytest.mark.parametrize("odd", ["1_771", "１.5", "٣.٥"])
def test_texts_that_only_python_takes_for_numbers_are_none(odd):
    x = np.linspace(0, 1, 40)
    texts = [odd if k == 7 else f"{v:.6f}" for k, v in enumerate(x)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColumnWarning)  # that the column says nothing
        column = learn_encoder(pd.DataFrame({"a": texts, "b": x})).columns[0]
    assert not isinstance(column, Number)
    model = kw.MarsRegressor().fit(pd.DataFrame({"a": x}), x)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.predict(pd.DataFrame({"a": ["0.25", odd]}))
    assert any(f"now has texts that are not numbers ('{odd}')" in str(note.message) for note in said)
    array = np.array(texts, dtype=object)[:, None]
    for X, y, weight in ((array, x, None), (x[:, None], texts, None), (x[:, None], x, texts)):
        with pytest.raises(DataError, match=f"could not convert string to float: '{odd}'"):
            kw.MarsRegressor().fit(X, y, weight)
    assert not is_number(odd)


@pytest.mark.parametrize("text", ["inf", "Infinity", "-INF", "1e400"])
def test_texts_of_infinities_are_refused_like_infinities(text):
    x = np.linspace(0, 1, 40)
    model = kw.MarsRegressor().fit(pd.DataFrame({"a": x}), x)
    with pytest.raises(DataError, match="column 'a' contains inf"):
        model.predict(pd.DataFrame({"a": ["0.25", text]}))


def test_sparse_columns_of_pandas_are_what_they_hold():
    x = np.where(np.arange(60) % 3, 0.0, np.linspace(0, 1, 60))
    dense = pd.DataFrame({"a": x, "b": x > 0.5, "c": np.where(x > 0, "u", "v"), "d": np.linspace(0, 1, 60)})
    sparse = dense.astype({"a": pd.SparseDtype(float, 0.0), "b": pd.SparseDtype(bool, False)})
    sparse["c"] = pd.arrays.SparseArray(dense["c"].to_numpy(dtype=object), fill_value="v")
    y = dense["a"] + dense["d"]
    model = kw.MarsRegressor().fit(sparse, y)
    assert model.spline_ == kw.MarsRegressor().fit(dense, y).spline_
    assert np.array_equal(model.predict(sparse), model.predict(dense))
    assert isinstance(sparse.dtypes["a"], pd.SparseDtype)  # the table is as it was
