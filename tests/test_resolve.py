"""Whatever predicts something piecewise linear becomes a network that computes the same."""

import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    PolynomialFeatures,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)
from torch import nn

import knotwork as kw
from knotwork.data.links import LINKS
from knotwork.errors import DataError, NetworkError
from knotwork.export import export_torch
from knotwork.network.resolve import resolve

# Of the response's std, or of one logit.
CLOSE = 1e-9
SHIFTS = [0.0, 1e3, 1e6]
N = 400
NET = {"n_members": 1, "hidden": (16, 16), "epochs": 4, "random_state": 0}
NUMBERS = ["a", "b", "c"]


def table(shift):
    """A table of three numbers and two texts; the numbers lie ``shift`` stds from zero."""
    rng = np.random.default_rng(0)
    numbers = (rng.normal(size=(N, 3)) + shift) * [1.0, 40.0, 0.03]
    return pd.DataFrame(numbers, columns=NUMBERS).assign(
        kind=rng.choice(["x", "y", "z"], N), place=rng.choice(["in", "out"], N)
    )


def response(X):
    z = ((X[NUMBERS] - X[NUMBERS].mean()) / X[NUMBERS].std()).to_numpy()
    text = (X["kind"] == "y") * 1.5 - (X["place"] == "in") * (z[:, 1] > 0)
    noise = np.random.default_rng(1).normal(size=N)
    return np.abs(z[:, 0]) + z[:, 1] + np.minimum(np.maximum(z[:, 2], 0), np.maximum(z[:, 0], 0)) + text + 0.3 * noise


def one_hot(**options):
    return make_column_transformer(
        (StandardScaler(), NUMBERS), (OneHotEncoder(sparse_output=False, **options), ["kind", "place"])
    )


def nested():
    """Numbers through two scalers, one column twice, one not at all, texts through an encoder and a scaler."""
    return ColumnTransformer(
        [
            ("scaled", make_pipeline(MinMaxScaler((-1, 1)), "passthrough", RobustScaler()), ["c", "a"]),
            ("bare", "passthrough", ["a"]),
            (
                "text",
                make_pipeline(OneHotEncoder(drop="first", sparse_output=False), MaxAbsScaler()),
                ["place", "kind"],
            ),
        ]
    )


def logged(inner, **options):
    return TransformedTargetRegressor(inner, **options)


# Name → (model, which columns: "numbers" as an array, "frame" of numbers, "texts" with the texts, which response)
REGRESSORS = {
    "mars": (lambda: kw.MarsRegressor(), "numbers"),
    "mars, several outputs": (lambda: kw.MarsRegressor(max_degree=2), "numbers", "two"),
    "mars, degree 2": (lambda: kw.MarsRegressor(max_degree=2), "frame"),
    "mars, texts": (lambda: kw.MarsRegressor(max_degree=2), "texts"),
    "net": (lambda: kw.SplineNetRegressor(**NET), "numbers"),
    "net, random start": (lambda: kw.SplineNetRegressor(start="random", **NET), "numbers"),
    "net, several outputs": (lambda: kw.SplineNetRegressor(**NET), "frame", "two"),
    "net, texts": (lambda: kw.SplineNetRegressor(**NET), "texts"),
    "net, leaky": (lambda: kw.SplineNetRegressor(activation="leaky_relu", **NET), "numbers"),
    "net, prelu, random start": (lambda: kw.SplineNetRegressor(activation="prelu", start="random", **NET), "numbers"),
    "max-affine": (lambda: kw.MaxAffineRegressor(n_pieces=4, random_state=0), "numbers"),
    "max-affine, concave, texts": (lambda: kw.MaxAffineRegressor(shape="concave", n_pieces=3, random_state=0), "texts"),
    "max-affine, several outputs": (lambda: kw.MaxAffineRegressor(n_pieces=3, random_state=0), "numbers", "two"),
    "difference": (lambda: kw.DCMaxAffineRegressor(n_pieces=3, random_state=0), "numbers"),
    "hinging": (lambda: kw.HingingHyperplanesRegressor(n_hinges=3, random_state=0), "frame"),
    "scaler, mars": (lambda: make_pipeline(StandardScaler(), kw.MarsRegressor(max_degree=2)), "numbers"),
    "scalers, mars": (
        lambda: make_pipeline(MinMaxScaler(), RobustScaler(), MaxAbsScaler(), kw.MarsRegressor()), "frame"
    ),
    "scaler, net": (lambda: make_pipeline(StandardScaler(), kw.SplineNetRegressor(**NET)), "numbers"),
    "scaler, net, random start": (
        lambda: make_pipeline(MinMaxScaler(), kw.SplineNetRegressor(start="random", **NET)), "frame"
    ),
    "scaler, max-affine": (lambda: make_pipeline(StandardScaler(), REGRESSORS["max-affine"][0]()), "numbers"),
    "scaler, difference": (lambda: make_pipeline(RobustScaler(), REGRESSORS["difference"][0]()), "numbers"),
    "one-hot, mars": (lambda: make_pipeline(one_hot(), kw.MarsRegressor(max_degree=2)), "texts"),
    "one-hot, mars, pandas inside": (
        lambda: make_pipeline(
            make_column_transformer((StandardScaler(), NUMBERS), remainder="passthrough"), kw.MarsRegressor()
        ).set_output(transform="pandas"),
        "texts",
    ),
    "one-hot, net": (lambda: make_pipeline(one_hot(), kw.SplineNetRegressor(**NET)), "texts"),
    "one-hot, hinging": (lambda: make_pipeline(one_hot(), REGRESSORS["hinging"][0]()), "texts"),
    "nested, mars": (lambda: make_pipeline(nested(), StandardScaler(), kw.MarsRegressor()), "texts"),
    "nested, net, two outputs": (lambda: make_pipeline(nested(), kw.SplineNetRegressor(**NET)), "texts", "two"),
    "log": (lambda: logged(kw.MarsRegressor(), func=np.log, inverse_func=np.exp), "numbers", "positive"),
    "log1p, net": (
        lambda: logged(kw.SplineNetRegressor(**NET), func=np.log1p, inverse_func=np.expm1), "frame", "positive"
    ),
    "sqrt, pipeline": (
        lambda: logged(make_pipeline(one_hot(), kw.MarsRegressor()), func=np.sqrt, inverse_func=np.square),
        "texts", "positive",
    ),
    "square": (lambda: logged(kw.MarsRegressor(), func=np.square, inverse_func=np.sqrt), "numbers", "large"),
    "log as a transformer": (
        lambda: logged(kw.MarsRegressor(), transformer=FunctionTransformer(np.log, np.exp)), "numbers", "positive"
    ),
    "scaled response": (lambda: logged(kw.MarsRegressor(), transformer=StandardScaler()), "numbers", "large"),
    "scaled response, net": (lambda: logged(kw.SplineNetRegressor(**NET), transformer=MinMaxScaler()), "frame"),
    "scaled responses, max-affine": (
        lambda: logged(kw.MaxAffineRegressor(n_pieces=3, random_state=0), transformer=RobustScaler()), "numbers", "two"
    ),
    "scaled response, difference": (
        lambda: logged(kw.DCMaxAffineRegressor(n_pieces=2, random_state=0), transformer=RobustScaler()), "numbers"
    ),
    "log, then scaled, inside a pipeline": (
        lambda: make_pipeline(
            one_hot(),
            logged(
                kw.MarsRegressor(),
                transformer=make_pipeline(FunctionTransformer(np.log, np.exp), StandardScaler()),
            ),
        ),
        "texts", "positive",
    ),
}  # fmt: skip
CLASSIFIERS = {
    "mars, two classes": (lambda: kw.MarsClassifier(), "numbers", "class2"),
    "mars, many classes": (lambda: kw.MarsClassifier(), "texts", "class4"),
    "net, two classes": (lambda: kw.SplineNetClassifier(**NET), "numbers", "class2"),
    "net, many classes": (lambda: kw.SplineNetClassifier(**NET), "texts", "class4"),
    "net, two classes, random start": (
        lambda: kw.SplineNetClassifier(start="random", **NET),
        "numbers",
        "class2",
    ),
    "scaler, mars, two classes": (lambda: make_pipeline(StandardScaler(), kw.MarsClassifier()), "numbers", "class2"),
    "one-hot, net, many classes": (
        lambda: make_pipeline(one_hot(), kw.SplineNetClassifier(**NET)),
        "texts",
        "class4",
    ),
}
LINK = {
    "log": "log", "log1p, net": "log1p", "sqrt, pipeline": "sqrt", "square": "square", "log as a transformer": "log",
    "log, then scaled, inside a pipeline": "log",
}  # fmt: skip


def data(columns, kind, shift):
    X = table(shift)
    y = response(X).to_numpy()
    if kind == "two":
        y = np.column_stack([y, 1000.0 * np.abs(y - 1)])
    elif kind == "positive":
        y = np.exp(y / 3) + 0.1
    elif kind == "large":
        y = 300.0 + 20 * y
    elif kind.startswith("class"):
        y = np.array(["w", "x", "y", "z"])[np.digitize(y, [1.0] if kind == "class2" else [0.0, 1.0, 2.0])]
    if columns == "numbers":
        return X[NUMBERS].to_numpy(), y
    return (X[NUMBERS] if columns == "frame" else X), y


@pytest.fixture(scope="module")
def fit():
    """Fit a case once."""
    fitted = {}

    def get(name, shift=0.0):
        if (name, shift) not in fitted:
            model, columns, *kind = {**REGRESSORS, **CLASSIFIERS}[name]
            X, y = data(columns, kind[0] if kind else "one", shift)
            fitted[name, shift] = model().fit(X, y), X, y
        return fitted[name, shift]

    return get


def run(net, rows):
    with torch.no_grad():
        return net(torch.from_numpy(np.array(rows, dtype=np.float64, order="C"))).numpy()


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", REGRESSORS)
def test_the_network_of_a_regressor_is_its_prediction(fit, name, shift):
    model, X, y = fit(name, shift)
    net = kw.to_network(model, dtype=torch.float64)
    assert net.conversion.link == LINK.get(name, "identity")
    inverse = LINKS[net.conversion.link][1]
    found = inverse(run(net, net.conversion.encoder.encode(X)))
    error = np.abs(found - model.predict(X).reshape(N, -1)) / y.reshape(N, -1).std(axis=0)
    assert error.max() <= CLOSE


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_network_of_a_classifier_is_its_decision(fit, name, shift):
    model, X, _ = fit(name, shift)
    net = kw.to_network(model, dtype=torch.float64)
    error = np.abs(run(net, net.conversion.encoder.encode(X)) - model.decision_function(X).reshape(N, -1))
    assert error.max() <= CLOSE


TRAINED = ["net", "net, random start", "net, leaky", "net, many classes", "scaler, net", "one-hot, net, many classes"]


@pytest.mark.parametrize("name", TRAINED)
def test_trained_networks_are_copied_with_their_scaling(fit, name):
    model, X, _ = fit(name)
    inner = model[-1] if isinstance(model, Pipeline) else model
    before = [p.clone() for p in inner.network_.parameters()]
    net = kw.to_network(model)
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    with torch.no_grad():
        for p in net.parameters():
            p.add_(1.0)
    assert all(torch.equal(a, b) for a, b in zip(before, inner.network_.parameters(), strict=True))
    bare = kw.to_network(model, fold=True, dtype=torch.float64)
    front = kw.to_network(model, dtype=torch.float64)
    logits = "classes" in name
    # A layer that holds the features at their limits, the network's own, and one that holds the response.
    inside = [type(m).__name__ for m in front[1 : 6 if logits else -1]]
    assert [type(m).__name__ for m in bare] == inside[:2] + inside + (not logits) * inside[-2:]
    holding = () if logits else (4,) if "leaky" in name else (2,)
    assert kw.network_size(model, fold=True).widths[1:] == (16, 16, *holding)
    assert isinstance(front[0], kw.Scaling)
    assert isinstance(front[-1], kw.Scaling) == (not logits)
    assert not any(isinstance(m, kw.Scaling) for m in bare)
    assert all(p.requires_grad for p in front.parameters())
    rows = front.conversion.encoder.encode(X)
    np.testing.assert_allclose(run(front, rows), run(bare, rows), atol=1e-10)
    scaled = front[0](torch.tensor(rows)).numpy()
    assert np.abs(scaled.mean(axis=0)).max() < 0.5
    assert (scaled.std(axis=0) < 2).all()
    assert kw.network_size(model).widths == (16, 16)


def test_a_trained_network_far_from_zero_is_centred_first(fit):
    model, X, y = fit("net", 1e6)
    net = kw.to_network(model)
    assert [type(m).__name__ for m in net[:3]] == ["Scaling", "Linear", "ReLU"]
    assert np.abs(net[0](torch.tensor(X)).numpy()).max() < 10
    with torch.no_grad():  # single precision, on rows in double precision
        found = net(torch.tensor(X)).double().numpy()[:, 0]
    np.testing.assert_allclose(found, model.predict(X), atol=1e-5 * y.std())
    full = kw.to_network(model, fold=True, dtype=torch.float64)
    assert [type(m).__name__ for m in full[:2]] == ["Linear", "ReLU"]
    np.testing.assert_allclose(run(full, X)[:, 0], model.predict(X), atol=1e-7 * y.std())


def test_a_trained_network_keeps_its_activation(fit):
    model, _, _ = fit("net")
    assert len(kw.to_network(model, activation="relu")) == len(kw.to_network(model))
    for convert in (kw.to_network, kw.network_size):
        with pytest.raises(NetworkError, match=r"keeps its activation, ReLU\(\), got activation='silu'; leave it out"):
            convert(model, activation="silu")
    leaky, _, _ = fit("net, leaky")
    for fold in (True, False):
        assert isinstance(kw.to_network(leaky, fold=fold)[1 if fold else 2], torch.nn.LeakyReLU)
    kw.to_network(leaky, activation="leaky_relu")
    with pytest.raises(NetworkError, match=r"keeps its activation, LeakyReLU\(negative_slope=0.01\)"):
        kw.to_network(leaky, activation=torch.nn.LeakyReLU(0.5))
    for option in ({"tolerance": 1e-3}, {"box": (0, 1)}):
        with pytest.raises(NetworkError, match=f"{next(iter(option))} is for functions that are converted.*leave it"):
            kw.to_network(model, **option)


def test_the_start_and_the_spline_can_still_be_had(fit):
    model, X, _ = fit("net")
    spline = run(kw.to_network(model.spline_, dtype=torch.float64), X)[:, 0]
    np.testing.assert_allclose(spline, model.spline_(X), atol=1e-12)
    assert np.abs(spline - model.predict(X)).max() > 1e-3


def test_a_trained_network_is_no_single_record(fit):
    for name in ("net", "net, random start", "scaler, net"):
        with pytest.raises(DataError, match=r"a trained network is not one Spline.*use kw.to_network.*kw.from_network"):
            kw.as_pwl(fit(name)[0])
    with pytest.raises(DataError, match=r"a model of log\(y\) is piecewise linear on the scale of log only"):
        kw.as_pwl(fit("log")[0])
    X = fit("scaler, mars")[1]
    f = kw.as_pwl(fit("scaler, mars")[0])
    assert isinstance(f, kw.Spline)
    np.testing.assert_allclose(f(X), fit("scaler, mars")[0].predict(X), atol=1e-12)


def test_a_foreign_model_inside_a_transformed_target():
    X, y = data("numbers", "positive", 0.0)
    model = TransformedTargetRegressor(LinearRegression(), func=np.log, inverse_func=np.exp).fit(X, y)
    net = kw.to_network(model, dtype=torch.float64)
    np.testing.assert_allclose(np.exp(run(net, X))[:, 0], model.predict(X), rtol=1e-12)


def test_a_search_is_its_best_estimator():
    X, y = data("numbers", "one", 0.0)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), kw.MarsRegressor()), {"marsregressor__max_terms": [3, 9]}, cv=2
    )
    model = make_pipeline(MinMaxScaler(), search).fit(X, y)
    np.testing.assert_allclose(run(kw.to_network(model, dtype=torch.float64), X)[:, 0], model.predict(X), atol=1e-12)


def fitted(model, kind="one"):
    X, y = data("numbers", kind, 0.0)
    return model.fit(X, y)


def with_text(step):
    X, y = data("texts", "one", 0.0)
    return make_pipeline(step, kw.MarsRegressor()).fit(X, y)


def lowered(y):
    return y - 1


def raised(y):
    return y + 1


REFUSED = [
    (lambda: make_pipeline(StandardScaler(), kw.MarsRegressor()), "this MarsRegressor is not fitted; fit it first"),
    (lambda: make_pipeline(StandardScaler(), fitted(kw.MarsRegressor())), "this StandardScaler is not fitted; fit it"),
    (lambda: logged(kw.MarsRegressor()), "this TransformedTargetRegressor is not fitted; fit it first"),
    (lambda: kw.SplineNetRegressor(n_members=1), "this SplineNetRegressor is not fitted; fit it first"),
    (lambda: fitted(make_pipeline(PCA(2), kw.MarsRegressor())),
     "must scale single columns .* got the step 'pca', a PCA; apply it to the table first, or convert the last step"),
    (lambda: fitted(make_pipeline(PolynomialFeatures(2), kw.MarsRegressor())), "a PolynomialFeatures; apply it"),
    (lambda: fitted(make_pipeline(SimpleImputer(), kw.MarsRegressor())), "a SimpleImputer; apply it"),
    (lambda: fitted(make_pipeline(MinMaxScaler(clip=True), kw.MarsRegressor())), "a MinMaxScaler with clip=True;"),
    (lambda: fitted(make_pipeline(FunctionTransformer(np.sin), kw.MarsRegressor())), "Transformer with func=sin;"),
    (lambda: with_text(one_hot(min_frequency=5)), "'onehotencoder', a OneHotEncoder with min_frequency=5;"),
    (lambda: with_text(one_hot(max_categories=2)), "a OneHotEncoder with max_categories=2;"),
    (lambda: with_text(ColumnTransformer([("s", StandardScaler(), NUMBERS)], transformer_weights={"s": 2.0})),
     "a ColumnTransformer with transformer_weights;"),
    (lambda: with_text(make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["a"]), ("passthrough", NUMBERS))),
     "must enter as a number or by its categories, column 'a' enters as both"),
    (lambda: fitted(logged(kw.MarsRegressor(), func=lowered, inverse_func=raised)),
     "must be one of np.log with np.exp, .* got lowered with raised; apply it to y first"),
    (lambda: fitted(logged(kw.MarsRegressor(), transformer=PowerTransformer()), "positive"),
     "may be transformed by a scaler or by one of log, .* got PowerTransformer; apply it to y first"),
    (lambda: fitted(logged(kw.MarsRegressor(), transformer=make_pipeline(
        MinMaxScaler((1, 2)), FunctionTransformer(np.log, np.exp))), "positive"),
     "must be scaled after its link and not before, got log behind MinMaxScaler; leave out the scaler"),
    (lambda: fitted(logged(logged(kw.MarsRegressor(), func=np.sqrt, inverse_func=np.square),
                           func=np.log1p, inverse_func=np.expm1), "positive"),
     r"may have one link, got sqrt of log1p\(y\); keep one"),
    (lambda: fitted(make_pipeline(StandardScaler(), kw.MarsRegressor(max_degree=2, interaction="product"))),
     "product"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "sentence"), REFUSED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_refusals_are_one_true_sentence(tmp_path, make, sentence):
    model = make()
    with pytest.raises(NetworkError, match=sentence) as refusal:
        kw.to_network(model)
    assert "\n" not in str(refusal.value)
    with pytest.raises(NetworkError, match=sentence):
        kw.export_onnx(model, tmp_path / "model.onnx")
    if sentence != "product":  # these can be explained, if not converted
        with pytest.raises(DataError, match=sentence):
            kw.explain(model)


def test_wrappers_are_not_saved_but_their_networks_are(fit, tmp_path):
    for name in ("one-hot, net", "sqrt, pipeline"):
        model, X, _ = fit(name)
        kind = type(model).__name__
        with pytest.raises(DataError, match=rf"a {kind} of scikit-learn is not one; save kw.to_network\(model\), or"):
            kw.save(model, tmp_path / "no")
        net = kw.to_network(model, dtype=torch.float64)
        kw.save(net, tmp_path / kind)
        again = kw.load(tmp_path / kind)
        assert again.conversion == net.conversion
        rows = again.conversion.encoder.encode(X)
        np.testing.assert_array_equal(run(again, rows), run(net, rows))


def onnx_run(path, rows):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape[1] == rows.shape[1]
    return session.get_outputs()[0].name, session.run(None, {"features": rows})[0]


@pytest.mark.parametrize("name", ["one-hot, net", "nested, mars", "one-hot, hinging", "sqrt, pipeline", "net"])
def test_files_of_pipelines_give_their_prediction(fit, tmp_path, name):
    model, X, y = fit(name)
    kw.export_onnx(model, tmp_path / "model.onnx", dtype="float64", inputs="features")
    about = {p.key: p.value for p in onnx.load(tmp_path / "model.onnx").metadata_props}
    link = about["knotwork.link"]
    assert link == LINK.get(name, "identity")
    if isinstance(X, pd.DataFrame):  # by the words of the file alone
        columns = json.loads(about["knotwork.columns"])
        assert [c["name"] for c in columns] == list(X.columns)
        rows = np.column_stack([
            (X[c["name"]] == v).astype(float) if v is not None else X[c["name"]]
            for c in columns for v in c.get("categories", [None])
        ])  # fmt: skip
    else:
        rows = X.copy()
    output, values = onnx_run(tmp_path / "model.onnx", rows)
    assert output == ("prediction" if link == "identity" else f"{link}_prediction")
    np.testing.assert_allclose(LINKS[link][1](values[:, 0]), model.predict(X), atol=1e-9 * y.std())
    export_torch(model, tmp_path / "model.pt2", dtype="float64")
    found = torch.export.load(tmp_path / "model.pt2").module()(torch.from_numpy(rows)).detach().numpy()
    np.testing.assert_allclose(found, values, atol=1e-9)


@pytest.mark.parametrize("name", ["one-hot, net", "one-hot, mars", "nested, mars", "one-hot, hinging"])
def test_pipelines_are_explained_in_their_own_columns(fit, tmp_path, name):
    model, X, y = fit(name)
    explanation = kw.explain(model, X, y)
    used = [c for c in X.columns if c != "b"] if name == "nested, mars" else list(X.columns)
    assert set(explanation.importances.index) == set(used)
    assert list(explanation.effects["kind"].categories) == ["x", "y", "z"]
    parts = explanation.contributions(X)
    np.testing.assert_allclose(parts.prediction[:, 0], model.predict(X), atol=1e-9)
    np.testing.assert_allclose(parts.to_frame().drop(columns="prediction").sum(axis=1), model.predict(X), atol=1e-9)
    rmse = np.sqrt(np.mean((model.predict(X) - y) ** 2))
    assert explanation.quality["RMSE"].iloc[-2] == pytest.approx(rmse)
    explanation.to_html(tmp_path / "page.html")
    if name == "one-hot, mars":
        numbers = explanation.knots[explanation.knots["feature"].isin(NUMBERS)]
        assert len(numbers)
        assert (numbers["count"] >= 1).all()  # knots are data values, here too
        assert kw.explain(model).importances.index[0] in X.columns
    if name == "one-hot, net":
        assert list(explanation.drift.inputs.index) == list(resolve(model).encoder.feature_names)
        pruned = explanation.prune(0.05)
        assert pruned.model is None
        assert pruned.weights[1] < pruned.weights[0]


def test_a_link_is_the_scale_of_the_explanation(fit):
    model, X, y = fit("sqrt, pipeline")
    explanation = kw.explain(model, X, pd.Series(y, name="price"))
    assert explanation.subject.output_names == ("sqrt(y)",)
    assert explanation.rows.response == "sqrt(price)"
    rmse = np.sqrt(np.mean((np.sqrt(model.predict(X)) - np.sqrt(y)) ** 2))
    assert explanation.quality.loc["spline", "RMSE"] == pytest.approx(rmse)
    with pytest.raises(DataError, match=r"must have a finite sqrt, .* got -1 in row 3; leave such rows out"):
        kw.explain(model, X, np.where(np.arange(N) == 3, -1.0, y))


def test_a_scaled_response_is_explained_as_it_was_given(fit):
    for name in ("scaled response", "scaled response, net"):
        model, X, y = fit(name)
        explanation = kw.explain(model, X, y)
        assert explanation.subject.output_names == ("y",)
        table = explanation.quality
        assert table.iloc[-2]["RMSE"] == pytest.approx(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
        if "validation RMSE" in table:
            assert 0.2 < table.iloc[-2]["validation RMSE"] / table.iloc[-2]["RMSE"] < 5


def test_tables_are_read_by_name_and_arrays_by_place(fit):
    model, X, _ = fit("one-hot, mars")
    encoder = kw.to_network(model).conversion.encoder
    rows = encoder.encode(X)
    np.testing.assert_array_equal(encoder.encode(X[X.columns[::-1]].assign(more=1)), rows)
    np.testing.assert_array_equal(encoder.encode(X.to_numpy()), rows)
    with pytest.raises(DataError, match=r"a table must have the columns .* got 4 columns without 'a'; add them"):
        encoder.encode(X.drop(columns="a"))
    array = X.assign(kind=X["kind"].map({"x": 0, "y": 1, "z": 2}), place=0).to_numpy(dtype=float)
    text = ColumnTransformer([("n", StandardScaler(), [0, 1, 2]), ("t", OneHotEncoder(sparse_output=False), [3])])
    other = make_pipeline(text, kw.MarsRegressor()).fit(array, response(X))
    net = kw.to_network(other, dtype=torch.float64)
    np.testing.assert_allclose(run(net, net.conversion.encoder.encode(array))[:, 0], other.predict(array), atol=1e-12)
    np.testing.assert_allclose(kw.explain(other, array).contributions(array).prediction[:, 0], other.predict(array))


def test_taking_a_spline_apart_loads_no_torch():
    code = """
import sys, numpy as np, knotwork as kw
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
X = np.arange(40.0)[:, None]
model = make_pipeline(StandardScaler(), kw.MarsRegressor()).fit(X, np.abs(X[:, 0] - 8))
assert kw.as_pwl(model).terms and kw.explain(model, X).importances is not None
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_knots_and_losses_of_a_wrapped_model_are_in_the_units_of_the_table():
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(300, 2)) * [3.0, 50.0] + [10.0, -400.0], rng.normal(size=300)
    y = 1000 * np.abs(X[:, 0] - 11) + X[:, 1] + noise
    pipe = make_pipeline(StandardScaler(), kw.MarsRegressor()).fit(X, y)
    knots = kw.explain(pipe, X, y).knots
    for _, knot in knots.iterrows():
        column = X[:, int(str(knot["feature"]).removeprefix("x"))]
        assert np.abs(column - knot["knot"]).min() < 1e-9  # a value of the table
    inner = kw.SplineNetRegressor(hidden=(16,), epochs=2, random_state=0)
    wrapped = TransformedTargetRegressor(inner, transformer=StandardScaler()).fit(X, y)
    ratio = resolve(wrapped).history.validation_loss[0] / wrapped.regressor_.history_.validation_loss[0]
    assert ratio == pytest.approx(np.var(y), rel=1e-9)


def test_an_encoder_that_no_longer_fits_a_network_is_left_out():
    net = kw.to_network(kw.MarsRegressor().fit(np.arange(20.0)[:, None], np.arange(20.0)))
    other = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    other.conversion = net.conversion
    assert resolve(other).encoder is None
