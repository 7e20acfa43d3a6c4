"""extrapolate= in all estimators: flat beyond the limits, the same in every form of the model, robust to outliers."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import knotwork as kw
from knotwork.errors import CategoryWarning, DataError

ROWS = 400
rng = np.random.default_rng(0)
X = rng.normal(size=(ROWS, 3)) * [1.0, 100.0, 1e-3] + [0.0, 500.0, 0.0]
signal = np.abs(X[:, 0]) + 0.01 * X[:, 1] + np.maximum(X[:, 2], 0) * 1e3
y = signal + 0.1 * rng.normal(size=ROWS)
labels = np.where(signal > np.median(signal), "high", "low")
three = np.array(["a", "b", "c"])[np.digitize(signal, np.quantile(signal, [0.3, 0.6]))]
# Rows around the limits and far beyond them.
FAR = np.vstack([X[:20], X[:20] * 1e3, X[:20] * -1e3, X[:20] + np.array([0.0, 1e5, 0.0])])

NET = {"hidden": (16, 16), "epochs": 3, "random_state": 0}
MODELS = {
    "mars": lambda **o: kw.MarsRegressor(**o).fit(X, y),
    "mars, degree 2": lambda **o: kw.MarsRegressor(max_degree=2, **o).fit(X, y),
    "mars, two responses": lambda **o: kw.MarsRegressor(scale_responses=True, **o).fit(X, np.column_stack([y, 9 * y])),
    "mars, classes": lambda **o: kw.MarsClassifier(**o).fit(X, labels),
    "mars, three classes": lambda **o: kw.MarsClassifier(**o).fit(X, three),
    "net": lambda **o: kw.SplineNetRegressor(n_members=1, **NET, **o).fit(X, y),
    "net, random start": lambda **o: kw.SplineNetRegressor(n_members=1, **NET, start="random", **o).fit(X, y),
    "net, leaky": lambda **o: kw.SplineNetRegressor(n_members=1, **NET, activation="leaky_relu", **o).fit(X, y),
    "net, classes": lambda **o: kw.SplineNetClassifier(n_members=1, **NET, **o).fit(X, labels),
}
_fitted = {}


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture
def model(name):
    if name not in _fitted:
        _fitted[name] = MODELS[name]()
    return _fitted[name]


def outputs(model, rows):
    values = model.decision_function(rows) if hasattr(model, "classes_") else model.predict(rows)
    return np.asarray(values).reshape(len(rows), -1)


def run(net, rows):
    with torch.no_grad():
        return net(torch.from_numpy(rows)).double().numpy()


def test_it_is_flat_beyond_the_limits(model):
    held = model.limits_.hold(FAR)
    np.testing.assert_array_equal(outputs(model, FAR), outputs(model, held))
    np.testing.assert_array_equal(model.outside(FAR), (held != FAR).any(axis=1))
    assert not model.outside(X).any()  # nothing here lies far beyond the bulk
    np.testing.assert_array_equal(model.limits_.upper, X.max(axis=0))


def test_inside_nothing_changes_without_outliers(name):
    if name.startswith("net"):  # the clip costs a row nothing, but it may end in another place of memory
        return
    linear = MODELS[name](extrapolate="linear")
    clip = _fitted.setdefault(name, MODELS[name]())
    np.testing.assert_array_equal(outputs(clip, X), outputs(linear, X))
    assert (outputs(clip, FAR) != outputs(linear, FAR)).any()
    np.testing.assert_array_equal(clip.outside(FAR), linear.outside(FAR))


def test_every_network_is_the_model_far_outside(model, name):
    values = outputs(model, FAR)
    scale = np.abs(outputs(model, X)).max()
    double = kw.to_network(model, dtype=torch.float64)
    np.testing.assert_allclose(run(double, FAR), values, atol=1e-9 * scale)
    reach = np.abs((FAR - X.mean(axis=0)) / X.std(axis=0)).max(axis=1, keepdims=True)
    for bare in (kw.to_network(model, fold=True, dtype=torch.float64), kw.fold(double)):
        assert (np.abs(run(bare, FAR) - values) <= 1e-9 * scale * (1 + reach)).all()
    spline = model.spline_
    if spline is not None:
        assert spline.limits == model.limits_
        np.testing.assert_array_equal(spline(FAR), spline(model.limits_.hold(FAR)))


def test_a_saved_model_holds_too(model, tmp_path):
    kw.save(model, tmp_path)
    again = kw.load(tmp_path)
    np.testing.assert_array_equal(outputs(again, FAR), outputs(model, FAR))
    np.testing.assert_array_equal(again.outside(FAR), model.outside(FAR))
    assert again.limits_ == model.limits_


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_exported_model_holds_too(model, tmp_path, dtype):
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    kw.export_onnx(model, path, dtype=dtype)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rows = FAR.astype(dtype)
    *_, found = session.run(None, {"features": rows})  # of a classifier: the decision, behind label and probabilities
    values = outputs(model, rows.astype(np.float64))
    np.testing.assert_allclose(found, values, atol=(1e-4 if dtype == "float32" else 1e-9) * np.abs(values).max())


@pytest.mark.parametrize("kind", ["mars", "net"])
def test_a_pipeline_holds_the_columns_of_its_table(kind):
    inner = kw.MarsRegressor() if kind == "mars" else kw.SplineNetRegressor(n_members=1, **NET)
    pipeline = make_pipeline(StandardScaler(), inner).fit(X, y)
    values = pipeline.predict(FAR)[:, None]
    for fold in (False, True):
        net = kw.to_network(pipeline, fold=fold, dtype=torch.float64)
        np.testing.assert_allclose(run(net, FAR), values, atol=1e-6 if fold else 1e-9)
    explanation = kw.explain(pipeline, FAR, pipeline.predict(FAR))
    curve = explanation.effects["x0"].to_frame()
    end = X[:, 0].max()
    beyond = curve.loc[curve.index > end * (1 + 1e-9)]
    assert len(beyond) > 3
    np.testing.assert_allclose(beyond, np.broadcast_to(beyond.iloc[0], beyond.shape), atol=1e-9)


def test_an_explanation_is_flat_beyond_the_limits(model, name):
    if "classes" in name or "responses" in name:
        return
    explanation = kw.explain(model, FAR, outputs(model, FAR)[:, 0])
    parts = explanation.contributions(FAR)
    total = parts.base + parts.values.sum(axis=1) + sum(parts.interactions.values())
    np.testing.assert_allclose(total, outputs(model, FAR), atol=1e-9)
    curve = explanation.effects["x1"].to_frame()
    beyond = curve.loc[curve.index > X[:, 1].max()]
    np.testing.assert_allclose(beyond, np.broadcast_to(beyond.iloc[0], beyond.shape), atol=1e-9)


@pytest.mark.parametrize("kind", ["mars", "mars, classes", "net"])
def test_one_cell_does_not_decide(kind):
    spoilt = X.copy()
    k = int(np.abs(X[:, 0]).argmax())
    spoilt[k, 0] *= 1000
    make = {
        "mars": lambda: kw.MarsRegressor().fit(spoilt, y),
        "mars, classes": lambda: kw.MarsClassifier().fit(spoilt, labels),
        "net": lambda: kw.SplineNetRegressor(n_members=1, **NET).fit(spoilt, y),
    }
    found, usual = make[kind](), MODELS[kind]()
    assert found.outside(spoilt).tolist() == [row == k for row in range(ROWS)]
    others = np.arange(ROWS) != k
    errors = [np.sqrt(np.mean((outputs(m, X[others]) - outputs(usual, X[others])) ** 2)) for m in (found,)]
    assert errors[0] < 0.05 * outputs(usual, X).std()
    row = X[:1].copy()
    row[0, 0] *= 1e6
    low, high = outputs(usual, X).min(), outputs(usual, X).max()
    assert low - (high - low) / 2 <= outputs(found, row)[0, 0] <= high + (high - low) / 2


def test_weights_and_order_do_not_matter():
    spoilt = X.copy()
    spoilt[3, 0] = 1e6
    weights = rng.integers(1, 4, ROWS)
    weighted = kw.MarsRegressor().fit(spoilt, y, sample_weight=weights)
    repeated = kw.MarsRegressor().fit(np.repeat(spoilt, weights, axis=0), np.repeat(y, weights))
    assert weighted.limits_ == repeated.limits_
    order = rng.permutation(ROWS)
    shuffled = kw.MarsRegressor().fit(spoilt[order], y[order])
    np.testing.assert_allclose(shuffled.predict(FAR), kw.MarsRegressor().fit(spoilt, y).predict(FAR), atol=1e-8)


def test_a_table_with_text():
    table = pd.DataFrame({"place": np.where(rng.uniform(size=ROWS) < 0.01, "rare", "usual"), "x": X[:, 0]})
    model = kw.MarsRegressor().fit(table, y + 5 * (table["place"] == "rare"))
    assert not model.outside(table).any()
    assert model.outside(table.assign(x=99.0)).all()
    assert model.predict(table[table["place"] == "rare"]).mean() > y.mean() + 3


def test_text_of_many_levels_is_never_outside():
    numbers = rng.integers(0, 120, ROWS)
    table = pd.DataFrame({"level": [f"level {k}" for k in numbers], "x": X[:, 0]})
    model = kw.MarsRegressor().fit(table, y + 5 * rng.normal(size=120)[numbers])
    assert model.encoder_.feature_names[0] == "level: mean"  # a number learned from the response
    assert not model.outside(table).any()
    with pytest.warns(CategoryWarning):
        assert not model.outside(table.assign(level="new")).any()


def test_gaps_are_not_outside():
    gaps = X.copy()
    gaps[::7, 0] = np.nan
    model = kw.MarsRegressor().fit(gaps, y)
    assert not model.outside(gaps).any()
    assert model.outside(gaps * 1e3).sum() > 300


@pytest.mark.parametrize("kind", [kw.MaxAffineRegressor, kw.DCMaxAffineRegressor, kw.HingingHyperplanesRegressor])
def test_other_piecewise_models_mark_rows_and_go_on(kind, tmp_path):
    model = kind(random_state=0).fit(X[:100], y[:100])
    assert not model.outside(X[:100]).any()
    kw.save(model, tmp_path)
    assert kw.load(tmp_path).outside(X[:100] * 1e3).sum() > 90
    held = model.limits_.hold(X[:1] * 1e3)
    assert model.predict(X[:1] * 1e3) != model.predict(held)


def test_earth_goes_on():
    earth = kw.MarsRegressor(compat="earth").fit(X, y)
    assert earth.spline_.limits is None
    assert clone(earth).fit(X, y).spline_ == earth.spline_
    np.testing.assert_array_equal(earth.outside(FAR), kw.MarsRegressor().fit(X, y).outside(FAR))
    with pytest.raises(ValueError, match=r"compat='earth' goes on linearly .* got extrapolate='clip'"):
        kw.MarsRegressor(compat="earth", extrapolate="clip").fit(X, y)


def test_the_summary_names_the_limits_once():
    text = kw.MarsRegressor().fit(X, y).summary()
    assert text.count("Values beyond these limits count as the limits: x0 ") == 1
    assert "Held" not in kw.MarsRegressor(extrapolate="linear").fit(X, y).summary()


def test_an_earlier_model_says_that_it_does_not_know(tmp_path):
    old = kw.load("tests/saved/0.1.0-schema-3/mars_min")
    assert old.extrapolate == "linear"
    with pytest.raises(DataError, match="does not know: it was saved by an earlier version"):
        old.outside(np.zeros((1, 3)))
