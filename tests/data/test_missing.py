"""Missing values: every spelling counts, the indicator has an effect of its own, and nothing else changes."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import knotwork as kw
from knotwork.commands.fit_report import describe
from knotwork.data.columns.number import weighted_median
from knotwork.data.learn import learn_encoder, learn_table
from knotwork.errors import ColumnWarning, DataError, MissingWarning
from knotwork.explanation.usage import reached
from knotwork.network.resolve import resolve

N = 300
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 3))
GAPS = rng.random(size=N) < 0.2
Y = np.abs(X[:, 0]) + np.where(GAPS, 3.0, X[:, 1]) + 0.1 * rng.normal(size=N)
HOLES = np.where(GAPS[:, None] & (np.arange(3) == 1), np.nan, X)
FILL = np.median(X[~GAPS, 1])

COLUMN = [None if gap else float(x) for x, gap in zip(X[:, 1], GAPS, strict=True)]
FRAME = {"a": X[:, 0], "b": HOLES[:, 1], "c": X[:, 2]}
SPELLINGS = {
    "pandas NaN": lambda: pd.DataFrame(FRAME),
    "pandas None": lambda: pd.DataFrame({**FRAME, "b": pd.Series(COLUMN, dtype=object)}),
    "pandas NA in objects": lambda: pd.DataFrame(
        {**FRAME, "b": pd.Series([pd.NA if v is None else v for v in COLUMN], dtype=object)}
    ),
    "pandas nullable": lambda: pd.DataFrame({**FRAME, "b": pd.array(COLUMN, dtype="Float64")}),
    "pandas arrow": lambda: pd.DataFrame({**FRAME, "b": pd.Series(COLUMN, dtype="double[pyarrow]")}),
    "polars null": lambda: pl.DataFrame({**FRAME, "b": COLUMN}),
    "polars NaN": lambda: pl.DataFrame(FRAME),
    "pyarrow": lambda: pa.table({**FRAME, "b": pa.array(COLUMN)}),
}
MODELS = {
    "mars": kw.MarsRegressor(),
    "splinenet": kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=3, random_state=0),
    "hinges": kw.HingingHyperplanesRegressor(max_hinges=3, random_state=0),
    "max-affine": kw.DCMaxAffineRegressor(n_pieces=3, random_state=0),
}
CLASSIFIERS = {
    "mars classes": kw.MarsClassifier(),
    "splinenet classes": kw.SplineNetClassifier(n_members=1, hidden=(16,), epochs=3, random_state=0),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_a_gap_gives_the_same_bits(spelling):
    expected = kw.MarsRegressor().fit(pd.DataFrame(FRAME), Y)
    model = kw.MarsRegressor().fit(SPELLINGS[spelling](), Y)
    assert model.encoder_ == expected.encoder_
    assert model.spline_ == expected.spline_
    assert np.array_equal(model.predict(SPELLINGS[spelling]()), expected.predict(pd.DataFrame(FRAME)))


ARRAYS = [HOLES, np.ma.masked_array(X, np.isnan(HOLES)), np.where(np.isnan(HOLES), None, X)]


@pytest.mark.parametrize("array", ARRAYS, ids=["nan", "masked", "objects"])
def test_arrays(array):
    expected = kw.MarsRegressor().fit(HOLES, Y)
    model = kw.MarsRegressor().fit(array, Y)
    assert model.encoder_.feature_names == ("x0", "x1", "x1 is missing", "x2")
    assert model.spline_ == expected.spline_
    assert np.array_equal(model.predict(array), expected.predict(HOLES))


@pytest.mark.parametrize(
    "column",
    [pd.array([True, None, False] * 100, dtype="boolean"), pd.Series([True, None, False] * 100, dtype="bool[pyarrow]"),
     pd.array([1, None, 0] * 100, dtype="Int64"), pd.Series([True, None, False] * 100, dtype=object)],
    ids=["boolean", "arrow", "Int64", "objects"],
)  # fmt: skip
def test_nullable_booleans_and_integers_are_numbers_with_gaps(column):
    encoder, matrix = learn_table(pd.DataFrame({"a": column, "b": X[:, 0]}))
    assert encoder.feature_names == ("a", "a is missing", "b")
    assert matrix[:3, :2].tolist() == [[1, 0], [0.5, 1], [0, 0]]
    polars = pl.DataFrame({"a": [True, None, False] * 100, "b": X[:, 0]})
    assert np.array_equal(encoder.encode(polars), matrix)


@pytest.mark.parametrize("name", MODELS)
def test_a_missing_value_has_an_effect_of_its_own(name):
    model = MODELS[name].fit(HOLES, Y)
    assert model.encoder_.columns[1].fill == FILL
    full, gap = np.array([[0.5, FILL, 0.0]]), np.array([[0.5, np.nan, 0.0]])
    # At the fill the response is about 0; where the value is missing it is 3.
    assert 2 < (model.predict(gap) - model.predict(full))[0] < 4
    assert np.array_equal(model.predict(HOLES[::-1]), model.predict(HOLES)[::-1])


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classes(name):
    model = CLASSIFIERS[name].fit(HOLES, Y > 2)
    assert model.predict_proba([[0.5, np.nan, 0.0]])[0, 1] > 0.8
    assert model.score(HOLES, Y > 2) > 0.85


@pytest.mark.parametrize("name", {**MODELS, **CLASSIFIERS})
def test_gaps_at_prediction_only_are_filled_and_said_once(name):
    model = {**MODELS, **CLASSIFIERS}[name].fit(pd.DataFrame(X, columns=list("abc")), Y > 2 if "classes" in name else Y)
    rows = pd.DataFrame({"a": [np.nan, 0.0], "b": [1.0, np.nan], "c": [0.0, 0.0]})
    with pytest.warns(MissingWarning, match=r"had no missing values in training have some now \('a', 'b'\)") as said:
        found = model.predict(rows)
    assert len(said) == 1
    means = {column.name: column.fill for column in model.encoder_.columns}
    assert np.array_equal(found, model.predict(rows.fillna(means)))
    assert abs(means["a"] - X[:, 0].mean()) < 0.1


@pytest.mark.parametrize("name", {**MODELS, **CLASSIFIERS})
def test_missing_error_refuses_gaps_and_the_tag_says_so(name):
    model = {**MODELS, **CLASSIFIERS}[name]
    y = Y > 2 if "classes" in name else Y
    assert model.__sklearn_tags__().input_tags.allow_nan
    strict = type(model)(**{**model.get_params(), "missing": "error"})
    assert not strict.__sklearn_tags__().input_tags.allow_nan
    with pytest.raises(DataError, match=r"column 'x1' contains NaN.*or fit with missing='indicator'"):
        strict.fit(HOLES, y)
    strict.fit(X, y)
    with pytest.raises(DataError, match="column 'x1' contains NaN"):
        strict.predict(HOLES)
    with pytest.raises(DataError, match="column 'kind' has 1 of them"):
        strict.fit(pd.DataFrame({"kind": ["a"] * (N - 1) + [None], "b": X[:, 0]}), y)


def test_infinities_stay_errors():
    with pytest.raises(DataError, match="column 'x0' contains inf"):
        kw.MarsRegressor().fit(np.where(X > 2, np.inf, HOLES), Y)
    with pytest.raises(DataError, match="column 'x1' contains inf"):
        kw.MarsRegressor().fit(HOLES, Y).predict([[0.0, -np.inf, 0.0]])


def test_a_gap_in_a_category_is_a_category():
    kind = np.where(GAPS, None, np.where(X[:, 1] > 0, "up", "down"))
    encoders = []
    for frame in (pd.DataFrame({"kind": kind}), pd.DataFrame({"kind": pd.Categorical(kind)}),
                  pl.DataFrame({"kind": kind.tolist()}), pa.table({"kind": kind.tolist()}),
                  pa.table({"kind": pa.array(kind.tolist()).dictionary_encode()}),
                  pl.DataFrame({"kind": pl.Series(kind.tolist(), dtype=pl.Categorical)}),
                  pd.DataFrame({"kind": pd.Series(kind, dtype="string")})):  # fmt: skip
        encoder, matrix = learn_table(frame)
        encoders.append(encoder)
        assert encoder.feature_names == ("kind=down", "kind=up", "kind is missing")
        assert np.array_equal(matrix[:, 2], GAPS)
        assert np.array_equal(encoder.encode(frame), matrix)
    assert all(encoder == encoders[0] for encoder in encoders)
    known = learn_encoder(pd.DataFrame({"kind": ["up", "down"]}))
    with pytest.warns(MissingWarning, match="'kind'"):
        assert known.encode(pd.DataFrame({"kind": ["up", None]})).tolist() == [[0, 1], [0, 0]]


def test_a_column_without_values_is_left_out():
    frame = pd.DataFrame({"a": X[:, 0], "empty": np.full(N, np.nan), "none": [None] * N})
    with pytest.warns(ColumnWarning, match="column '(empty|none)' was left out: it has no values"):
        model = kw.MarsRegressor().fit(frame, Y)
    assert model.encoder_.feature_names == ("a",)
    assert model.predict(frame).shape == (N,)
    with (
        pytest.warns(ColumnWarning),
        pytest.raises(DataError, match=r"a fit needs a column.*'empty' has no values; 'none' has no values"),
    ):
        kw.MarsRegressor().fit(frame[["empty", "none"]], Y)


def test_rows_of_weight_zero_teach_nothing():
    weight = np.where(GAPS, 0.0, 1.0)
    model = kw.MarsRegressor().fit(HOLES, Y, sample_weight=weight)
    assert model.encoder_.feature_names == ("x0", "x1", "x2")
    assert model.spline_ == kw.MarsRegressor().fit(X[~GAPS], Y[~GAPS]).spline_


@given(
    st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 4)), min_size=1, max_size=30).filter(
        lambda pairs: any(w for _, w in pairs)
    )
)
def test_the_weighted_median_counts_a_weight_like_that_many_values(pairs):
    values, weights = (np.array(v, dtype=np.float64) for v in zip(*pairs, strict=True))
    kept = weights > 0
    expected = np.median(np.repeat(values, weights.astype(int)))
    found = weighted_median(values[kept], weights[kept])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_permuted_rows_give_the_same_model():
    order = rng.permutation(N)
    model = kw.MarsRegressor(max_degree=2).fit(HOLES, Y)
    other = kw.MarsRegressor(max_degree=2).fit(HOLES[order], Y[order])
    np.testing.assert_allclose(other.predict(HOLES), model.predict(HOLES), atol=1e-8 * Y.std())


def test_saved_and_explained(tmp_path):
    model = kw.MarsRegressor().fit(HOLES, Y)
    kw.save(model, tmp_path / "m")
    again = kw.load(tmp_path / "m")
    assert again.encoder_ == model.encoder_
    assert np.array_equal(again.predict(HOLES), model.predict(HOLES))
    explanation = kw.explain(model, HOLES, Y)
    effect = explanation.effects["x1"]
    assert list(explanation.effects) == ["x0", "x1", "x2"]
    assert effect.missing.count == GAPS.sum()
    heights = np.interp(HOLES[~GAPS, 1], effect.grid, effect.spline[:, 0])
    assert abs((heights.sum() + GAPS.sum() * effect.missing.spline[0]) / N) < 0.3
    assert effect.missing.spline[0] - np.interp(FILL, effect.grid, effect.spline[:, 0]) == pytest.approx(
        (model.predict([[0, np.nan, 0]]) - model.predict([[0, FILL, 0]]))[0]
    )
    assert np.isnan(effect.to_frame().index[-1])
    parts = explanation.contributions(HOLES[:5]).to_frame()
    np.testing.assert_allclose(parts.drop(columns="prediction").sum(axis=1), model.predict(HOLES[:5]))
    explanation.to_html(tmp_path / "report.html")


def test_a_network_and_a_scaler_in_front_know_about_gaps():
    pipeline = make_pipeline(StandardScaler(), kw.MarsRegressor()).fit(HOLES, Y)
    net = kw.to_network(pipeline, dtype=torch.float64)
    encoder = net.conversion.encoder
    assert encoder.feature_names == ("x0", "x1", "x1 is missing", "x2")
    assert encoder.columns[1].fill == pytest.approx(FILL)
    rows = torch.from_numpy(np.ascontiguousarray(encoder.encode(HOLES)))
    np.testing.assert_allclose(net(rows).detach().numpy()[:, 0], pipeline.predict(HOLES), rtol=0, atol=1e-9)


def test_an_effect_of_gaps_is_claimed_only_where_the_model_has_one():
    rng = np.random.default_rng(3)
    x = rng.normal(size=200)
    gaps = rng.random(200) < 0.2
    frame = pd.DataFrame({"a": np.where(gaps, np.nan, x), "b": rng.normal(size=200)})
    own = "missing values count as .*, with an effect of their own"
    used = kw.MarsRegressor().fit(frame, np.where(gaps, 5.0, x))
    assert "a is missing" in used.summary()
    assert re.search(own, used.summary())
    dropped = kw.MarsRegressor().fit(frame, frame["b"])
    assert "a: missing values count as" in dropped.summary()
    assert "effect of their own" not in dropped.summary()
    assert "effect of their own" not in str(describe(dropped, "y")["encoding"])
    net = kw.SplineNetRegressor(n_members=1, hidden=(4,), epochs=0, random_state=0).fit(frame, frame["b"])
    assert ("effect of their own" in str(describe(net, "y")["encoding"])) == bool(reached(resolve(net).network)[1])
