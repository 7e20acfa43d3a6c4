"""export_onnx on splines, estimators and networks; onnxruntime is the judge."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import TransformedTargetRegressor
from torch import nn

import knotwork as kw
from knotwork import Hinge, Linear, Spline
from knotwork.errors import DataError, NetworkError, ScaleWarning
from knotwork.export import export_torch, torch_file
from knotwork.export.nodes import Nodes
from knotwork.network.activations import NAMES


def run(path, rows):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"features": rows})[0]


def metadata(path):
    return {p.key.removeprefix("knotwork."): p.value for p in onnx.load(path).metadata_props}


TERMS = st.lists(
    st.one_of(
        st.builds(Linear, st.integers(0, 2)),
        st.builds(Hinge, st.integers(0, 2), st.floats(-1e3, 1e3), st.sampled_from([1, -1])),
    ),
    max_size=6,
)


@pytest.mark.filterwarnings("ignore:rows of float64 round column")  # knots may lie close together, far from zero
@given(terms=TERMS, outputs=st.integers(1, 3), seed=st.integers(0, 2**32 - 1))
def test_splines_in_float64(tmp_path_factory, terms, outputs, seed):
    rng = np.random.default_rng(seed)
    coef = rng.normal(size=(len(terms), outputs)) * 10.0 ** rng.integers(-3, 4, (len(terms), 1))
    spline = Spline(tuple(terms), rng.normal(size=outputs), coef, ("a", "b", "c"))
    path = tmp_path_factory.getbasetemp() / "spline.onnx"
    found = kw.export_onnx(spline, path, dtype="float64")
    assert (found.inputs, found.outputs) == (3, outputs)
    rows = rng.normal(size=(50, 3)) * 1e3
    parts = np.abs(spline.intercept).max() + np.abs(spline.basis(rows)) @ np.abs(coef) if terms else 1.0
    assert (np.abs(run(path, rows) - spline(rows).reshape(50, -1)) <= 1e-12 * (parts + 1e3 * np.abs(coef).sum())).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [*NAMES, "gelu_tanh", "softplus_sharp", "prelu_steep"])
def test_every_activation(tmp_path, name, dtype):
    modules = {
        "gelu_tanh": nn.GELU(approximate="tanh"), "softplus_sharp": nn.Softplus(beta=3.0, threshold=5.0),
        "prelu_steep": nn.PReLU(init=0.7),
    }  # fmt: skip
    torch.manual_seed(0)
    act = modules.get(name) or NAMES[name]()
    net = nn.Sequential(nn.Linear(4, 16), act, nn.Dropout(0.5), nn.Linear(16, 8, bias=False), act, nn.Linear(8, 2))
    path = tmp_path / "net.onnx"
    if name == "gelu" and dtype == "float64":
        with pytest.raises(NetworkError, match="export it with dtype='float32'"):
            kw.export_onnx(net, path, dtype=dtype)
        assert not path.exists()
        return
    kw.export_onnx(net, path, dtype=dtype)
    rows = 5 * torch.randn(200, 4, dtype=torch.float64)
    expected = net.eval().double()(rows.to(getattr(torch, dtype)).double()).detach()
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(run(path, rows.numpy().astype(dtype)), expected, rtol=tolerance, atol=tolerance)


def test_the_file_says_how_a_table_becomes_its_input(tmp_path):
    X, y = kw.datasets.load_abalone()
    model = kw.MarsRegressor().fit(X, y)
    kw.export_onnx(model, tmp_path / "m.onnx", dtype="float64", inputs="features")
    about = metadata(tmp_path / "m.onnx")
    assert about["model"] == "MarsRegressor"
    assert json.loads(about["feature_names"]) == list(model.spline_.feature_names)
    columns = json.loads(about["columns"])
    assert columns[:2] == [{"name": "Sex", "categories": ["F", "I", "M"]}, {"name": "Length"}]
    # By these words alone:
    features = [
        (X[c["name"]] == value).astype(float) for c in columns for value in c.get("categories", [])
    ] + [X[c["name"]] for c in columns if "categories" not in c]  # fmt: skip
    rows = np.column_stack(features)
    np.testing.assert_allclose(run(tmp_path / "m.onnx", rows)[:, 0], model.predict(X), rtol=1e-11)


def test_a_spline_and_its_file_agree_where_units_differ_by_orders(tmp_path):
    spline = Spline((Hinge(0, 1e6, 1), Hinge(1, 1e-6, -1)), [1e3], [[2.0], [1e8]], ("big", "small"))
    found = kw.export_onnx(spline, tmp_path / "s.onnx", dtype="float64")
    assert found.largest_difference < 1e-5
    rows = np.array([[1e6 + 5, 0.0], [0.0, 1e-6]])
    np.testing.assert_allclose(run(tmp_path / "s.onnx", rows)[:, 0], spline(rows), rtol=1e-12)


def test_a_file_that_disagrees_is_never_handed_over(tmp_path, monkeypatch):
    """Break the graph on purpose: the file from before stays and the message says by how much."""
    spline = Spline((Hinge(0, 1.0, 1),), [2.0], [[3.0]], ("x",))
    kw.export_onnx(spline, tmp_path / "s.onnx")
    before = (tmp_path / "s.onnx").read_bytes()
    affine = Nodes.affine
    monkeypatch.setattr(Nodes, "affine", lambda self, x, w, b: affine(self, x, w, b + 1e-3))
    with pytest.raises(NetworkError, match=r"must give our prediction, s.onnx was off by .* and was not written"):
        kw.export_onnx(spline, tmp_path / "s.onnx")
    assert (tmp_path / "s.onnx").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_program_that_disagrees_is_never_handed_over(tmp_path, monkeypatch):
    spline = Spline((Hinge(0, 1.0, 1),), [2.0], [[3.0]], ("x",))

    def other(chain, dtype):
        net = nn.Sequential(nn.Linear(1, 1))
        net.conversion = None
        return net

    monkeypatch.setattr(torch_file, "build", other)
    with pytest.raises(NetworkError, match="must give our prediction"):
        export_torch(spline, tmp_path / "s.pt2")
    assert list(tmp_path.iterdir()) == []


def test_what_is_beyond_float32_is_refused_with_advice(tmp_path):
    spline = Spline((Linear(0),), [0.0], [[1e300]], ("x",))
    with pytest.raises(NetworkError, match="try float64"):
        kw.export_onnx(spline, tmp_path / "s.onnx")
    kw.export_onnx(spline, tmp_path / "s.onnx", dtype="float64")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 1), "must be an nn.Sequential.*got Linear"),
        (nn.Sequential(nn.Linear(2, 2), nn.Mish(), nn.Linear(2, 1)), "Mish"),
        (nn.Sequential(nn.ReLU()), "Linear.*got ReLU"),
        ("a string", "only a Spline or an estimator"),
        (kw.MarsRegressor(), "fit it first"),
    ],
)
def test_what_cannot_be_exported(tmp_path, model, message):
    with pytest.raises(NetworkError, match=message):
        kw.export_onnx(model, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["model", "model.json", "model.textproto", "model.ort"])
def test_the_ending_of_a_path_changes_nothing_of_the_file(tmp_path, name):
    spline = Spline((Hinge(0, 0.5, 1),), [1.0], [[2.0]], ("a",))
    kw.export_onnx(spline, tmp_path / "model.onnx")
    kw.export_onnx(spline, tmp_path / name)
    assert (tmp_path / name).read_bytes() == (tmp_path / "model.onnx").read_bytes()


def test_an_unknown_dtype_or_folder(tmp_path):
    spline = Spline((Linear(0),), [0.0], [[1.0]], ("x",))
    with pytest.raises(NetworkError, match="'float32' or 'float64', got 'float16'"):
        kw.export_onnx(spline, tmp_path / "s.onnx", dtype="float16")
    with pytest.raises(DataError, match="must exist"):
        kw.export_onnx(spline, tmp_path / "none" / "s.onnx")


def test_columns_that_the_precision_of_the_file_cannot_tell_apart_are_named(tmp_path):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=300), 1.7e9 + 3600 * rng.uniform(size=300)])
    model = kw.MarsRegressor().fit(X, np.abs(X[:, 1] - 1.7e9 - 1800))
    for export in (kw.export_onnx, export_torch):
        with pytest.warns(ScaleWarning, match=r"float32 round column 'x1'.*dtype='float64'"):
            export(model, tmp_path / "single", dtype="float32")
        export(model, tmp_path / "double")  # by itself
    double, single = (onnxruntime.InferenceSession(made(m, tmp_path), providers=["CPUExecutionProvider"]) for m in
                      (model, kw.MarsRegressor().fit(X - [0, 1.7e9], X[:, 0])))  # fmt: skip
    assert [s.get_inputs()[0].type for s in (double, single)] == ["tensor(double)", "tensor(float)"]


def made(model, folder):
    kw.export_onnx(model, folder / "m.onnx")
    return (folder / "m.onnx").read_bytes()


def test_functions_that_are_evaluated_far_from_zero(tmp_path):
    """Our own evaluation rounds there: the check allows for it, or it would refuse a right file."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=300), 1.7e9 + 3600 * rng.uniform(size=300)])
    model = kw.HingingHyperplanesRegressor(n_hinges=3, random_state=0).fit(X, np.abs(X[:, 0]) + X[:, 1] / 1000)
    found = kw.export_onnx(model, tmp_path / "m.onnx")
    assert found.largest_difference < 1e-6


@pytest.mark.parametrize("link", ["identity", "log", "log1p", "expm1", "sqrt", "square", "exp", "classes"])
def test_a_file_holds_nothing_that_nobody_uses(tmp_path, link):
    X = np.random.default_rng(0).normal(size=(60, 2))
    functions = {"log1p": (np.log1p, np.expm1), "expm1": (np.expm1, np.log1p), "sqrt": (np.sqrt, np.square),
                 "square": (np.square, np.sqrt), "exp": (np.exp, np.log)}  # fmt: skip
    model = kw.MarsRegressor(loss="poisson") if link == "log" else kw.MarsRegressor()
    if link == "classes":
        model = kw.MarsClassifier()
    elif link in functions:
        model = TransformedTargetRegressor(model, func=functions[link][0], inverse_func=functions[link][1])
    y = X[:, 0] > 0 if link == "classes" else 1 + np.abs(X[:, 0])
    kw.export_onnx(model.fit(X, y), tmp_path / "a.onnx", dtype="float64")
    graph = onnx.load(tmp_path / "a.onnx").graph
    read = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    made = {tensor.name for tensor in graph.initializer} | {name for node in graph.node for name in node.output}
    assert made <= read
