"""export_onnx takes the raw table: every kind of column, gaps, unseen categories; onnxruntime and predict agree."""

import json
import warnings
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import knotwork as kw
from knotwork.errors import DataError, NetworkError
from knotwork.export import columns as columns_module
from knotwork.export import onnx_feed

# Share of the response's std that a file may be off.
TOLERANCE = 1e-5


def session_of(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def outputs(path, X):
    session = session_of(path)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, onnx_feed(session, X)), strict=True))


def quietly(function, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(X)


def table(rows=400, seed=0):
    """Numbers (one far from zero), booleans, text and categories of few and many levels, with and without gaps."""
    rng = np.random.default_rng(seed)
    gaps = rng.random((rows, 3)) < 0.15
    x, z = rng.normal(size=(2, rows))
    text, level = rng.choice(["a", "b", "c d", "ü, ß"], rows), rng.choice(["low", "mid", "high"], rows)
    X = pd.DataFrame({
        "x": x, "z": np.where(gaps[:, 0], np.nan, z), "when": 1.7e9 + 3600 * rng.uniform(size=rows),
        "flag": rng.random(rows) < 0.4, "text": text, "level": np.where(gaps[:, 1], None, level),
        "whole": rng.integers(0, 9, rows), "grade": rng.choice(["poor", "fair", "good"], rows),
        "city": rng.choice([f"city {k}" for k in range(40)], rows),
    })  # fmt: skip
    X["level"] = X["level"].astype("category")
    order = pd.CategoricalDtype(["poor", "fair", "good", "very good"], ordered=True)
    X["grade"] = X["grade"].where(~gaps[:, 2], None).astype(order)
    X.loc[0, "text"] = "only once"  # too rare for an indicator
    y = (
        X["grade"].cat.codes
        + 5 * (X["city"] < "city 2")
        + np.abs(x)
        + np.where(gaps[:, 0], 1, np.maximum(z, 0))
        + (text == "b")
        - 2 * (level == "mid")
        + X["flag"]
    )
    return X, (y + 0.1 * rng.normal(size=rows)).to_numpy()


def strange(X, seed=1):
    """Rows to predict: gaps everywhere, categories that training did not see, values far out."""
    rng = np.random.default_rng(seed)
    odd = X.sample(200, random_state=seed, ignore_index=True).astype({"level": object, "flag": object, "whole": float})
    odd["grade"] = odd["grade"].astype(object)
    for name in odd.columns:
        odd.loc[rng.random(len(odd)) < 0.15, name] = np.nan if odd[name].dtype.kind == "f" else None
    for name in ("text", "level", "grade", "city"):
        odd.loc[rng.random(len(odd)) < 0.1, name] = "never seen"
    odd.loc[3, "grade"] = "very good"  # in the order, though training did not see it
    odd.loc[rng.random(len(odd)) < 0.1, "x"] *= 1e3
    return odd.astype({"flag": float})


NET = {"hidden": (16,), "epochs": 3, "random_state": 0}
REGRESSORS = {
    "mars": kw.MarsRegressor(),
    "mars of degree 2": kw.MarsRegressor(max_degree=2),
    "net": kw.SplineNetRegressor(n_members=1, **NET),
    "leaky net": kw.SplineNetRegressor(n_members=1, activation="leaky_relu", **NET),
    "hinging": kw.HingingHyperplanesRegressor(n_hinges=3, random_state=0),
    "max-affine": kw.MaxAffineRegressor(n_pieces=4, random_state=0),
}
CLASSIFIERS = {"mars": kw.MarsClassifier(), "net": kw.SplineNetClassifier(n_members=1, **NET)}


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_on_the_raw_table(tmp_path, name):
    X, y = table()
    model = REGRESSORS[name].fit(X, y)
    found = kw.export_onnx(model, tmp_path / "m.onnx")
    assert found.input_names == tuple(X.columns)
    assert found.output_names == ("prediction",)
    for rows in (X, strange(X), strange(X).head(1)):
        values = outputs(tmp_path / "m.onnx", rows)["prediction"]
        assert values.shape == (len(rows), 1)
        assert np.abs(values[:, 0] - quietly(model.predict, rows)).max() <= TOLERANCE * y.std()


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [3, 5], ["a", "b", "c"], [2, 0, 7], [1.0, 2.0]])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_on_the_raw_table(tmp_path, name, labels):
    X, y = table()
    labels = np.array(labels)[np.digitize(y, np.quantile(y, np.arange(1, len(labels)) / len(labels)))]
    model = CLASSIFIERS[name].fit(X, labels)
    found = kw.export_onnx(model, tmp_path / "m.onnx")
    assert found.output_names == ("label", "probabilities", "decision")
    for rows in (X, strange(X)):
        got = outputs(tmp_path / "m.onnx", rows)
        assert np.abs(got["probabilities"] - quietly(model.predict_proba, rows)).max() <= TOLERANCE
        assert got["label"].shape == (len(rows),)
        assert (got["label"] == quietly(model.predict, rows)).all()
        decision = quietly(model.decision_function, rows)
        assert np.abs(got["decision"] - decision.reshape(len(rows), -1)).max() <= TOLERANCE * decision.std()
    kind = {"U": "O", "b": "b", "i": "i", "f": "f"}[labels.dtype.kind]
    assert got["label"].dtype.kind == kind


def test_several_responses(tmp_path):
    X, y = table()
    model = kw.MarsRegressor().fit(X, np.column_stack([y, -(y**2)]))
    kw.export_onnx(model, tmp_path / "m.onnx")
    rows = strange(X)
    expected = quietly(model.predict, rows)
    values = outputs(tmp_path / "m.onnx", rows)["prediction"]
    assert (np.abs(values - expected).max(axis=0) <= TOLERANCE * np.std([y, -(y**2)], axis=1)).all()


def test_a_table_of_numbers_far_from_zero_needs_no_warning(tmp_path):
    X, _ = table()
    model = kw.MarsRegressor().fit(X[["when"]], np.abs(X["when"] - 1.7e9 - 1800))
    kw.export_onnx(model, tmp_path / "m.onnx")
    values = outputs(tmp_path / "m.onnx", X[["when"]])["prediction"][:, 0]
    np.testing.assert_allclose(values, model.predict(X[["when"]]), atol=1e-5)
    kw.export_onnx(model, tmp_path / "single.onnx", dtype="float32")  # its input is double all the same
    values = outputs(tmp_path / "single.onnx", X[["when"]])["prediction"][:, 0]
    np.testing.assert_allclose(values, model.predict(X[["when"]]), atol=0.01)


def test_what_predict_refuses_is_nan(tmp_path):
    X, y = table()
    model = kw.SplineNetRegressor(n_members=1, **NET, missing="error").fit(X[["x", "flag", "text"]], y)
    kw.export_onnx(model, tmp_path / "m.onnx")
    rows = X[["x", "flag", "text"]].head(5).copy()
    expected = model.predict(rows)
    rows.loc[1, "x"], rows.loc[2, "x"], rows.loc[3, "x"] = np.nan, np.inf, -np.inf
    values = outputs(tmp_path / "m.onnx", rows)["prediction"][:, 0]
    assert np.isnan(values).tolist() == [False, True, True, True, False]
    np.testing.assert_allclose(values[[0, 4]], expected[[0, 4]])
    model = kw.MarsClassifier(missing="error").fit(X[["x", "level"]].dropna(), y[X["level"].notna()] > 1)
    kw.export_onnx(model, tmp_path / "c.onnx")
    rows = X[["x", "level"]].astype({"level": object}).head(4)
    rows.loc[:, "level"] = [None, "low", "mid", "never seen"]
    assert np.isnan(outputs(tmp_path / "c.onnx", rows)["probabilities"][:, 1]).tolist() == [True, False, False, False]


def test_empty_text_is_missing_unless_it_was_a_category(tmp_path):
    X, y = table()
    X["text"] = X["text"].where(X["text"] != "b", "")
    with_empty = kw.MarsRegressor().fit(X[["text", "x"]], y)
    gappy = X[["text", "x"]].assign(text=X["text"].where(X["text"] != "", None))
    with_gaps = kw.MarsRegressor().fit(gappy, y)
    for model, meant in ((with_empty, X), (with_gaps, gappy)):
        kw.export_onnx(model, tmp_path / "m.onnx")
        values = outputs(tmp_path / "m.onnx", X[["text", "x"]])["prediction"][:, 0]
        np.testing.assert_allclose(values, model.predict(meant[["text", "x"]]), atol=1e-9)


HOSTILE = [
    "prediction", "prediction_", "features", "label", "_", "__relu1", "gemm3", "constant0", "Länge, cm", " ", "a\nb",
    "=1+1", "<script>", "日本", "/weights/0", "x" * 5000, "0",
]  # fmt: skip


@pytest.mark.parametrize(
    "estimator", [kw.MarsRegressor(), kw.MarsClassifier(), kw.SplineNetRegressor(n_members=1, **NET)]
)
def test_hostile_names_of_columns(tmp_path, estimator):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(120, len(HOSTILE))), columns=HOSTILE).assign(
        probabilities=rng.choice(["a", "b"], 120)
    )
    y = np.abs(X["prediction"]) + X["gemm3"] + (X["probabilities"] == "a")
    y = y > y.median() if isinstance(estimator, kw.MarsClassifier) else y
    model = estimator.fit(X, y)
    found = kw.export_onnx(model, tmp_path / "m.onnx")
    assert found.input_names == tuple(X.columns)
    got = outputs(tmp_path / "m.onnx", X)
    if isinstance(estimator, kw.MarsClassifier):
        assert found.output_names == ("label_", "probabilities_", "decision")
        assert (got["label_"] == model.predict(X)).all()
    else:
        assert found.output_names == ("prediction__",)
        np.testing.assert_allclose(got["prediction__"][:, 0], model.predict(X), atol=1e-9)


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_names_that_no_file_can_hold_are_refused(tmp_path, name):
    X = pd.DataFrame({"a": np.arange(30.0), name: np.arange(30.0) % 7})
    model = kw.MarsRegressor().fit(X, X["a"])
    with pytest.raises(NetworkError, match="rename the column, or pass inputs='features'"):
        kw.export_onnx(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_categories_that_are_numbers_or_of_several_kinds(tmp_path):
    X, y = table()
    rows = X[["x"]].assign(code=pd.Categorical(X["whole"] * 10))
    model = kw.MarsRegressor().fit(rows, y + (X["whole"] == 3) * 2)
    kw.export_onnx(model, tmp_path / "m.onnx")
    assert [i.type for i in session_of(tmp_path / "m.onnx").get_inputs()] == ["tensor(double)", "tensor(double)"]
    odd = rows.astype({"code": float})
    odd.loc[::7, "code"], odd.loc[::11, "code"] = np.nan, 35.0
    values = outputs(tmp_path / "m.onnx", odd)["prediction"][:, 0]
    assert np.abs(values - quietly(model.predict, odd.astype({"code": object}))).max() <= TOLERANCE * y.std()


def test_pipelines_and_links(tmp_path):
    X, y = table()
    rows = X[["x", "when", "text", "whole"]]
    steps = ColumnTransformer([
        ("one-hot", OneHotEncoder(sparse_output=False, handle_unknown="ignore"), ["text", "whole"]),
        ("scaled", StandardScaler(), ["x", "when"]),
    ])  # fmt: skip
    pipeline = make_pipeline(steps, kw.MarsRegressor()).fit(rows, y)
    found = kw.export_onnx(pipeline, tmp_path / "m.onnx")
    assert set(found.input_names) == set(rows.columns)
    odd = rows.assign(text=rows["text"].where(rows.index % 5 > 0, "never seen"))
    assert np.abs(outputs(tmp_path / "m.onnx", odd)["prediction"][:, 0] - pipeline.predict(odd)).max() < 1e-8
    for func, inverse, name in ((np.log, np.exp, "log"), (np.log1p, np.expm1, "log1p"), (np.sqrt, np.square, "sqrt")):
        model = TransformedTargetRegressor(kw.MarsRegressor(), func=func, inverse_func=inverse).fit(rows, np.exp(y))
        found = kw.export_onnx(model, tmp_path / "t.onnx")
        assert found.output_names == (f"{name}_prediction", "prediction")
        values = outputs(tmp_path / "t.onnx", rows)["prediction"]
        np.testing.assert_allclose(values[:, 0], model.predict(rows), rtol=1e-9)


def test_a_column_that_is_left_out_is_no_input(tmp_path):
    X, y = table()
    steps = ColumnTransformer([("few", "passthrough", ["x", "whole"])])
    model = make_pipeline(steps, kw.MarsRegressor()).fit(X[["x", "z", "whole"]], y)
    assert kw.export_onnx(model, tmp_path / "m.onnx").input_names == ("x", "whole")


def test_which_models_take_columns(tmp_path):
    X, y = table()
    numbers = X[["x", "when"]]
    path = tmp_path / "m.onnx"
    frame, polars, array = (kw.MarsRegressor().fit(t, y) for t in (numbers, pl.DataFrame(numbers), numbers.to_numpy()))
    for model in (frame, polars):
        assert kw.export_onnx(model, path).input_names == ("x", "when")
        assert kw.export_onnx(model, path, inputs="features", dtype="float64").input_names == ("features",)
    assert kw.export_onnx(array, path).input_names == ("features",)
    assert kw.export_onnx(array, path, inputs="columns").input_names == ("x0", "x1")
    for bare in (frame.spline_, kw.to_network(frame)):
        assert kw.export_onnx(bare, path, dtype="float64").input_names == ("features",)
        with pytest.raises(NetworkError, match="only a model that was fitted knows its columns"):
            kw.export_onnx(bare, path, inputs="columns")
    with pytest.raises(NetworkError, match="inputs must be 'columns' or 'features', got 'rows'"):
        kw.export_onnx(frame, path, inputs="rows")


def test_gelu_is_float32_by_itself(tmp_path):
    X, y = table()
    model = kw.SplineNetRegressor(n_members=1, activation="gelu", **NET).fit(X, y)
    kw.export_onnx(model, tmp_path / "m.onnx")
    assert np.abs(outputs(tmp_path / "m.onnx", X)["prediction"][:, 0] - model.predict(X)).max() < 1e-3
    with pytest.raises(NetworkError, match="export it with dtype='float32'"):
        kw.export_onnx(model, tmp_path / "m.onnx", dtype="float64")


def test_a_saved_model_gives_the_same_file(tmp_path):
    X, y = table()
    model = kw.MarsClassifier().fit(X, y > 1)
    kw.save(model, tmp_path / "m")
    for name, this in (("one.onnx", model), ("two.onnx", kw.load(tmp_path / "m"))):
        kw.export_onnx(this, tmp_path / name)
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


@pytest.mark.parametrize("broken", ["filled", "_look_up"])
def test_the_check_goes_through_the_columns(tmp_path, monkeypatch, broken):
    """Break one kind of column on purpose: no file appears."""
    X, y = table()
    model = kw.MarsRegressor().fit(X, y)

    def other(*arguments):
        made = right(*arguments)
        if broken == "_look_up":
            return replace(made, unseen=0)
        return [arguments[1], *made[1:]]  # not filled

    right = getattr(columns_module, broken)
    monkeypatch.setattr(columns_module, broken, other)
    with pytest.raises(NetworkError, match="must give our prediction"):
        kw.export_onnx(model, tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_the_file_says_what_it_takes(tmp_path):
    X, y = table()
    kw.export_onnx(kw.MarsRegressor().fit(X, y), tmp_path / "m.onnx")
    about = {p.key.removeprefix("knotwork."): p.value for p in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert [c["name"] for c in json.loads(about["columns"])] == list(X.columns)
    session = session_of(tmp_path / "m.onnx")
    assert {i.name: i.type for i in session.get_inputs()} == {
        **dict.fromkeys(["x", "z", "when", "flag", "whole"], "tensor(double)"),
        **dict.fromkeys(["text", "level", "grade", "city"], "tensor(string)"),
    }
    assert [i.shape for i in session.get_inputs()] == [["rows", 1]] * 9


def test_tables_of_every_library_are_fed_alike(tmp_path):
    X, y = table()
    model = kw.MarsRegressor().fit(X, y)
    kw.export_onnx(model, tmp_path / "m.onnx")
    session = session_of(tmp_path / "m.onnx")
    expected = onnx_feed(session, X)
    tables = [
        pl.from_pandas(X),
        pl.from_pandas(X).to_arrow(),
        X.convert_dtypes(dtype_backend="pyarrow"),
        X.assign(more=1),
    ]
    for other in tables:
        fed = onnx_feed(session, other)
        assert list(fed) == list(expected)
        for name, values in fed.items():
            assert values.dtype == expected[name].dtype
            np.testing.assert_array_equal(values, expected[name])
    with pytest.raises(DataError, match="has no 'text'; add it"):
        onnx_feed(session, X.drop(columns="text"))
    with pytest.raises(DataError, match="fed from a data frame, got ndarray"):
        onnx_feed(session, np.zeros((3, 7)))


def test_what_is_no_file_of_ours_cannot_be_fed():
    class Foreign:
        """A session of a file that some other program wrote."""

        def get_inputs(self):
            return []

        def get_modelmeta(self):
            return type("Meta", (), {"custom_metadata_map": {}})

    frame = pd.DataFrame({"a": [1.0]})
    with pytest.raises(DataError, match=r"session must be an onnxruntime.InferenceSession, got str; open the file"):
        onnx_feed("model.onnx", frame)
    with pytest.raises(DataError, match="must be one of export_onnx, this one says nothing of its columns"):
        onnx_feed(Foreign(), frame)
