import builtins
import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import knotwork as kw
from knotwork import io, serial
from knotwork.data.table import Column, TableEncoder
from knotwork.errors import DataError, NetworkError
from knotwork.io import load, save
from knotwork.network.activations import NAMES
from knotwork.network.chain import Conversion


def assert_same(a, b):
    """Equal in type, value, dtype, layout and every bit, all the way down."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert (a.dtype, a.shape, a.flags.c_contiguous) == (b.dtype, b.shape, b.flags.c_contiguous)
        assert a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()
    elif isinstance(a, torch.Tensor):
        assert a.requires_grad == b.requires_grad
        assert_same(a.detach().numpy(), b.detach().numpy())
    elif isinstance(a, nn.Module):
        assert (repr(a), a.training) == (repr(b), b.training)
        assert_same(getattr(a, "conversion", None), getattr(b, "conversion", None))
        assert list(a._modules) == list(b._modules)
        assert set(a._parameters) == set(b._parameters)
        assert list(a._buffers) == list(b._buffers)
        for name in (*a._modules, *a._parameters, *a._buffers):
            assert_same(getattr(a, name), getattr(b, name))
    elif dataclasses.is_dataclass(a):
        for field in dataclasses.fields(a):
            assert_same(getattr(a, field.name), getattr(b, field.name))
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert repr(a) == repr(b)


def assert_same_state(a, b):
    assert set(vars(a)) == set(vars(b))
    for name in vars(a):
        if name != "history_":  # its numpy floats come back as Python's
            assert_same(getattr(a, name), getattr(b, name))


def there_and_back(model, folder):
    save(model, folder)
    assert sorted(os.listdir(folder)) == [io.DOCUMENT, io.ARRAYS]
    return load(folder)


def edit(folder, change):
    """Change the document of a saved model."""
    document = json.loads((folder / io.DOCUMENT).read_text())
    change(document)
    (folder / io.DOCUMENT).write_text(json.dumps(document))


def replace_arrays(folder, data):
    """Put other arrays in the place of the saved ones, as if they belonged there."""
    (folder / io.ARRAYS).write_bytes(data)
    edit(folder, lambda document: document.update(digest=hashlib.sha256(data).hexdigest()))


@pytest.fixture(scope="module")
def abalone():
    return kw.datasets.load_abalone()


@pytest.fixture(scope="module")
def mars(abalone):
    return kw.MarsRegressor(max_terms=15, penalty=3.0).fit(*abalone)


@pytest.fixture(scope="module")
def splinenet(abalone):
    return kw.SplineNetRegressor(hidden=(16,), epochs=2, random_state=0).fit(*abalone)


@pytest.fixture
def spline():
    return kw.Spline(
        (kw.Hinge(0, 0.1, 1), kw.Linear(1)), intercept=[1 / 3], coef=[[np.pi], [-0.0]], feature_names=("a", "b")
    )


@pytest.fixture
def saved(spline, tmp_path):
    save(spline, tmp_path)
    return tmp_path


# Splines

numbers = st.floats(allow_nan=False)


@st.composite
def splines(draw):
    names = draw(st.lists(st.text(max_size=5), min_size=1, max_size=3))
    feature = st.integers(0, len(names) - 1)
    term = st.builds(kw.Linear, feature) | st.builds(kw.Hinge, feature, numbers, st.sampled_from([1, -1]))
    terms = draw(st.lists(term, max_size=4))
    outputs = draw(st.integers(1, 3))
    coef = np.array(draw(st.lists(numbers, min_size=len(terms) * outputs, max_size=len(terms) * outputs)))
    coef = coef.reshape(len(terms), outputs)
    if draw(st.booleans()):
        coef = np.asfortranarray(coef)
    return kw.Spline(tuple(terms), draw(st.lists(numbers, min_size=outputs, max_size=outputs)), coef, tuple(names))


@given(splines())
@settings(max_examples=40)
def test_a_spline_comes_back_bit_for_bit(tmp_path_factory, spline):
    again = there_and_back(spline, tmp_path_factory.mktemp("spline"))
    assert again == spline
    assert_same(again, spline)


def test_nan_and_numpy_scalars(tmp_path):
    spline = kw.Spline((kw.Hinge(np.int64(0), np.float64("nan"), 1),), [np.inf], [[np.nan]], ("x",))
    again = there_and_back(spline, tmp_path)
    assert np.isnan(again.terms[0].knot)
    assert type(again.terms[0].feature) is int
    assert_same(again.coef, spline.coef)


def test_the_layout_of_a_matrix_comes_back_and_with_it_the_last_bits(tmp_path):
    rng = np.random.default_rng(0)
    terms = tuple(kw.Hinge(f, k / 10, 1) for f in range(5) for k in range(-4, 4))
    spline = kw.Spline(terms, np.zeros(3), np.asfortranarray(rng.normal(size=(40, 3))), tuple("abcde"))
    X = rng.normal(size=(500, 5))
    assert_same(there_and_back(spline, tmp_path)(X), spline(X))


def test_equal_models_make_equal_files(spline, tmp_path):
    for name in "ab":
        save(spline, tmp_path / name)
    for name in (io.DOCUMENT, io.ARRAYS):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


# Networks

ACTIVATIONS = [
    *(cls() for cls in NAMES.values()),
    nn.LeakyReLU(0.3, inplace=True),
    nn.PReLU(6, init=0.1),
    nn.Softplus(beta=3.0, threshold=7.5),
    nn.GELU(approximate="tanh"),
    nn.ELU(alpha=0.5),
    nn.Hardtanh(-2.0, 3.0),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
def test_a_network_comes_back_bit_for_bit(activation, dtype, tmp_path):
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(4, 6), activation, nn.Dropout(0.25), nn.Identity(), nn.Linear(6, 2, bias=False)
    ).to(dtype)
    again = there_and_back(net, tmp_path)
    assert_same(again, net)
    rows = torch.randn(20, 2, 2, dtype=dtype)
    assert_same(again.eval()(rows).detach(), net.eval()(rows).detach())


def test_half_precision_names_nesting_modes_and_an_empty_network(tmp_path):
    inner = nn.Sequential(nn.Linear(2, 2, dtype=torch.float16), nn.ReLU()).eval()
    net = nn.Sequential()
    net.add_module("trunk", inner)
    net.add_module("head", nn.Linear(2, 1).requires_grad_(False))
    assert_same(there_and_back(net, tmp_path / "named"), net)
    arrays = safetensors.numpy.load((tmp_path / "named" / io.ARRAYS).read_bytes())
    assert set(arrays) == set(net.state_dict())
    assert_same(there_and_back(nn.Sequential(nn.ReLU()), tmp_path / "bare"), nn.Sequential(nn.ReLU()))


@pytest.mark.parametrize("activation", ["relu", "gelu", "relu6"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_converted_spline_keeps_its_scaling_and_its_record(mars, activation, dtype, tmp_path):
    d = len(mars.spline_.feature_names)
    box = (np.zeros(d), np.full(d, 3.0)) if activation == "relu6" else None
    net = kw.to_network(mars, activation=activation, fold=False, box=box).to(dtype)
    assert [type(m) for m in (net[0], net[-1])] == [kw.Scaling, kw.Scaling]
    again = there_and_back(net, tmp_path)
    assert_same(again, net)
    assert {b.dtype for m in (again[0], again[-1]) for b in (m.centre, m.scale)} == {torch.float64}
    rows = torch.rand(20, d, dtype=torch.float64)
    assert again(rows).dtype == dtype
    assert torch.equal(again(rows), net(rows))
    assert isinstance(again.conversion, Conversion)


def test_loading_a_network_draws_no_random_numbers(tmp_path):
    save(nn.Sequential(nn.Linear(3, 2), nn.PReLU()), tmp_path)
    before = torch.get_rng_state()
    load(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def hooked():
    net = nn.Sequential(nn.Linear(1, 1))
    net[0].register_forward_hook(print)
    return net


def tied():
    layer = nn.Linear(2, 2)
    return nn.Sequential(layer, nn.ReLU(), layer)


class OwnLinear(nn.Linear):
    pass


class OwnSequential(nn.Sequential):
    pass


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Sequential(nn.Conv1d(1, 1, 1)), "Linear layers and activations .* got Conv1d at '0'"),
        (lambda: nn.Sequential(OwnLinear(1, 1)), "got OwnLinear at '0'"),
        (lambda: OwnSequential(nn.Linear(1, 1)), "MarsRegressor.*, Sequential, Spline, SplineNetClassifier"),
        (lambda: nn.Sequential(nn.Linear(1, 1, dtype=torch.bfloat16)), "'0.weight' is .* of torch.bfloat16"),
        (lambda: nn.Sequential(nn.Linear(1, 1, device="meta")), "on the meta device"),
        (hooked, "no hooks"),
        (tied, "'2.weight' is '0.weight' as well"),
        (lambda: {"a": 1}, "got dict"),
        (kw.MarsRegressor, "this MarsRegressor has no fit_; call fit"),
        (kw.SplineNetRegressor, "this SplineNetRegressor has no network_; call fit"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_anything_is_written(make, message, tmp_path):
    with pytest.raises((DataError, NetworkError), match=message):
        save(make(), tmp_path / "model")
    assert os.listdir(tmp_path) == []


# Estimators


def test_mars_comes_back_whole(mars, abalone, tmp_path):
    X, _ = abalone
    again = there_and_back(mars, tmp_path)
    assert again.get_params() == mars.get_params()
    assert_same_state(again, mars)
    assert_same(again.predict(X), mars.predict(X))
    assert_same(again.transform(X), mars.transform(X))
    assert_same(again.feature_importances_, mars.feature_importances_)
    assert_same(again.knots_, mars.knots_)
    assert again.summary() == mars.summary()


def test_splinenet_comes_back_whole(splinenet, abalone, tmp_path):
    X, _ = abalone
    again = there_and_back(splinenet, tmp_path)
    assert again.get_params() == splinenet.get_params()
    assert_same_state(again, splinenet)
    assert again.history_ == splinenet.history_
    assert again.history_.to_frame().equals(splinenet.history_.to_frame())
    assert_same(again.predict(X), splinenet.predict(X))


@pytest.mark.parametrize("name", ["mars", "splinenet"])
def test_all_that_a_fit_leaves_behind_is_in_the_tables(name, request):
    model = request.getfixturevalue(name)
    left = set(vars(model)) - set(model.get_params())
    assert left <= {*serial.FITTED[type(model).__name__], *serial.OPTIONAL}


@pytest.fixture(scope="module")
def plain_data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 3))
    return X, np.stack([np.abs(X[:, 0]), X[:, 1] - X[:, 2]], axis=1)


def test_several_outputs_weights_and_no_names(plain_data, tmp_path):
    X, Y = plain_data
    weights = np.arange(200) % 4.0
    model = kw.MarsRegressor(max_knots=None, n_jobs=np.int64(1)).fit(X, Y, weights)
    again = there_and_back(model, tmp_path)
    assert not hasattr(again, "feature_names_in_")
    assert_same(again.fit_, model.fit_)
    assert_same(again.predict(X), model.predict(X))
    assert again.summary() == model.summary()


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "perhaps", "yes"]),
        np.array(["no", "perhaps", "yes"], dtype=object),
        np.array([3, 5, 9], dtype=np.int32),
        np.array([False, True, True]),
    ],
    ids=["text", "objects", "numbers", "booleans"],
)
@pytest.mark.parametrize("kind", ["mars", "splinenet"])
def test_classifiers_come_back_bit_for_bit(plain_data, kind, labels, tmp_path):
    X = plain_data[0]
    y = labels[np.digitize(X[:, 0], [-0.5, 0.5])]
    make = kw.MarsClassifier() if kind == "mars" else kw.SplineNetClassifier(hidden=(16,), epochs=1, random_state=0)
    model = make.fit(X, y)
    kw.save(model, tmp_path)
    again = kw.load(tmp_path)
    assert type(again) is type(model)
    assert again.classes_.dtype == model.classes_.dtype
    assert np.array_equal(again.classes_, model.classes_)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.get_params() == model.get_params()
    if kind == "mars":
        assert again.summary() == model.summary()
        assert np.array_equal(again.feature_importances_, model.feature_importances_)
    else:
        assert again.history_ == model.history_


@pytest.mark.parametrize("shape", [(200,), (200, 1)])
def test_the_shape_of_the_response_comes_back(plain_data, shape, tmp_path):
    X, Y = plain_data
    again = there_and_back(kw.MarsRegressor().fit(X, Y[:, 0].reshape(shape)), tmp_path)
    assert again.predict(X).shape == shape


def test_a_random_start_with_a_module_and_a_device(plain_data, tmp_path):
    X, Y = plain_data
    model = kw.SplineNetRegressor(
        hidden=[8, 8], start="random", activation=nn.PReLU(init=0.1), epochs=1, device=torch.device("cpu")
    ).fit(X, Y)
    again = there_and_back(model, tmp_path)
    assert again.spline_ is None
    assert (again.hidden, again.device) == ([8, 8], torch.device("cpu"))
    assert_same(again.activation, model.activation)
    assert_same(again.network_, model.network_)
    assert_same(again.predict(X), model.predict(X))
    again.fit(X, Y)


def test_categories_keep_their_kind_and_set_output_its_choice(mars, abalone, tmp_path):
    X = pd.DataFrame({"a": pd.Categorical([3, 1, 2] * 10), "b": pd.Categorical([True, False] * 15), "c": range(30)})
    model = kw.MarsRegressor().fit(X, np.arange(30.0)).set_output(transform="pandas")
    again = there_and_back(model, tmp_path)
    assert again.encoder_ == model.encoder_
    assert_same(again.predict(X), model.predict(X))
    assert isinstance(again.transform(X), pd.DataFrame)
    mixed = TableEncoder((Column("a", (1, "1", True, 2.5)), Column("b")))
    assert_same(serial.Reader({}).value(serial.Writer().value(mixed, "")), mixed)


def test_a_parameter_that_json_cannot_hold_is_named(plain_data, tmp_path):
    X, Y = plain_data
    model = kw.SplineNetRegressor(hidden=(4,), epochs=0, random_state=np.random.RandomState(0)).fit(X, Y)
    with pytest.raises(DataError, match=r"'random_state' is RandomState; .* integer"):
        save(model, tmp_path)


# Files that are not ours


class Fatal(Exception):
    pass


@pytest.mark.parametrize("name", ["os.system", "system", "eval", "builtins.eval", "__import__", "Popen", "Exception"])
@pytest.mark.parametrize(
    "forge",
    [
        lambda name: {"kind": name},
        lambda name: {"model": {"record": name, "fields": {"command": "exit 1"}}},
        lambda name: {"model": {"layer": name, "options": {}, "parameters": {}, "training": True}},
        lambda name: {"model": {"estimator": name, "parameters": {"a": "exit 1"}, "state": {}}},
        lambda name: {"model": {name: "exit 1"}},
    ],
)
def test_no_name_in_a_file_is_ever_called_or_imported(saved, monkeypatch, name, forge):
    def fail(*_, **__):
        raise Fatal

    edit(saved, lambda document: document.update(forge(name)))
    for module, function in (
        (os, "system"),
        (subprocess, "Popen"),
        (builtins, "eval"),
        (serial.importlib, "import_module"),
    ):
        monkeypatch.setattr(module, function, fail)
    with pytest.raises(DataError, match="got"):
        load(saved)


def one_sentence(error):
    text = str(error.value)
    return "\n" not in text and "; " in text and len(text) < 500


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), "must be a model of knotwork"),
        (lambda d: d.update(schema=3, version="9.0"), "up to schema 2, got schema 3, written by version 9.0; upgrade"),
        (lambda d: d.update(schema="1"), "schema '1'"),
        (lambda d: d.update(kind=["Spline"]), "may name one of"),
        (lambda d: d.update(kind="MarsRegressor"), "kind MarsRegressor and Spline inside"),
        (lambda d: d.pop("model"), "a part that does not fit"),
        (lambda d: d.update(model=7), "int inside"),
        (lambda d: d["model"]["fields"].pop("coef"), "Spline with coef missing or unknown"),
        (lambda d: d["model"]["fields"]["coef"].update(array="other"), "'other' is missing"),
        (lambda d: d["model"]["fields"]["coef"].update(shape=[3, 1]), r"shape \[3, 1\], got float64 of shape \[2, 1\]"),
        (lambda d: d["model"]["fields"]["coef"].update(dtype="int64"), "must be int64 .* got float64"),
        (lambda d: d["model"]["fields"]["coef"].update(array=[]), "a part that does not fit"),
        (lambda d: d["model"]["fields"].update(coef=d["model"]["fields"]["intercept"]), "one row per term"),
        (lambda d: d["model"]["fields"].update(terms="ab"), "a part that does not fit"),
        (lambda d: d["model"]["fields"].update(feature_names={"list": []}), "an object with the keys list"),
    ],
)
def test_a_changed_document_is_refused_in_one_sentence(saved, change, message):
    edit(saved, change)
    with pytest.raises(DataError, match=message) as error:
        load(saved)
    assert one_sentence(error)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda layer: layer["options"].update(in_features=10**12),
            r"must have shape \(2, 1000000000000\), got \(2, 3\)",
        ),
        (lambda layer: layer["options"].update(in_features="x"), "a part that does not fit"),
        (lambda layer: layer["options"].update(evil=1), "Linear with evil missing or unknown"),
        (lambda layer: layer["parameters"].pop("weight"), "Linear with weight missing or unknown"),
        (lambda layer: layer["parameters"]["bias"]["tensor"].update(array="0.weight", shape=[2, 3]), r"got \(2, 3\)"),
    ],
)
def test_a_changed_layer_is_refused(tmp_path, change, message):
    save(nn.Sequential(nn.Linear(3, 2)), tmp_path)
    edit(tmp_path, lambda document: change(document["model"]["network"][0][1]))
    with pytest.raises(DataError, match=message):
        load(tmp_path)


@pytest.mark.parametrize("name", ["predict", "__class__"])
def test_an_attribute_of_another_name_is_refused(mars, tmp_path, name):
    save(mars, tmp_path)
    edit(tmp_path, lambda document: document["model"]["state"].update({name: 1}))
    with pytest.raises(DataError, match=f"MarsRegressor with {name} missing or unknown"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[1" + b"0" * 5000 + b"]"])
def test_a_document_that_is_not_json(saved, content):
    (saved / io.DOCUMENT).write_bytes(content)
    with pytest.raises(DataError, match="not JSON") as error:
        load(saved)
    assert one_sentence(error)


@pytest.mark.parametrize("content", [b"[]", b"null", b'{"kind": "Spline"}'])
def test_json_of_somebody_else(saved, content):
    (saved / io.DOCUMENT).write_bytes(content)
    with pytest.raises(DataError, match="must be a model of knotwork"):
        load(saved)


def test_paths_without_a_model(saved, tmp_path):
    for path in (tmp_path / "nothing", saved / io.DOCUMENT):
        with pytest.raises(DataError, match=r"folder with model\.json"):
            load(path)
    with pytest.raises(DataError, match="is or lies in a file"):
        save(load(saved), saved / io.DOCUMENT)
    with pytest.raises(DataError, match="is or lies in a file"):
        save(load(saved), saved / io.DOCUMENT / "below")
    (saved / io.ARRAYS).unlink()
    with pytest.raises(DataError, match=r"has model\.safetensors next to"):
        load(saved)


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-1], lambda b: b[:-1] + bytes([b[-1] ^ 1])])
def test_arrays_that_are_damaged(saved, damage):
    (saved / io.ARRAYS).write_bytes(damage((saved / io.ARRAYS).read_bytes()))
    with pytest.raises(DataError, match="cut short or changed") as error:
        load(saved)
    assert one_sentence(error)


BFLOAT = b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'


@pytest.mark.parametrize(
    "content", [b"", b"no tensor in sight", b"\xff" * 100, len(BFLOAT).to_bytes(8, "little") + BFLOAT + b"\0\0"]
)
def test_arrays_that_are_no_safetensors(saved, content):
    replace_arrays(saved, content)
    with pytest.raises(DataError) as error:
        load(saved)
    assert one_sentence(error)


def test_arrays_of_another_model(saved):
    replace_arrays(saved, safetensors.numpy.save({"coef": np.zeros((2, 1))}))
    with pytest.raises(DataError, match="'intercept' is missing"):
        load(saved)


# Writing


def test_parents_are_made_and_a_model_is_replaced(mars, spline, tmp_path):
    folder = tmp_path / "a" / "b"
    save(mars, str(folder))
    (folder / "notes.txt").write_text("mine")
    save(spline, folder)
    assert load(str(folder)) == spline
    assert sorted(os.listdir(folder)) == [io.DOCUMENT, io.ARRAYS, "notes.txt"]


def failing(function, after, forever):
    """A function that fails once it was called ``after`` times; for ever is what a killed process looks like."""
    calls = 0

    def fails(*arguments):
        nonlocal calls
        calls += 1
        if calls == after + 1 or (forever and calls > after):
            raise OSError("no space left")
        return function(*arguments)

    return fails


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize(
    ("name", "after"), [("fsync", 0), ("fsync", 1), ("replace", 0), ("replace", 1), ("replace", 2)]
)
def test_a_save_that_fails_leaves_the_model_from_before(spline, saved, monkeypatch, name, after, forever):
    other = kw.Spline((), [5.0], [], ("z",))
    with monkeypatch.context() as patch:
        patch.setattr(io.os, name, failing(getattr(os, name), after, forever))
        with pytest.raises(OSError, match="no space left"):
            save(other, saved)
    assert load(saved) == spline
    if not forever:
        assert sorted(os.listdir(saved)) == [io.DOCUMENT, io.ARRAYS]
    assert there_and_back(other, saved) == other


@pytest.mark.parametrize(("name", "after"), [("fsync", 0), ("fsync", 1), ("replace", 0), ("replace", 1)])
def test_a_first_save_that_fails_leaves_nothing(spline, tmp_path, monkeypatch, name, after):
    monkeypatch.setattr(io.os, name, failing(getattr(os, name), after, False))
    with pytest.raises(OSError, match="no space left"):
        save(spline, tmp_path)
    assert os.listdir(tmp_path) == []


def test_an_interrupt_behind_the_last_rename_keeps_the_new_model(saved, monkeypatch):
    other = kw.Spline((), [5.0], [], ("z",))

    def replace(source, target):
        rename(source, target)
        if target.name == io.DOCUMENT:
            raise KeyboardInterrupt

    rename = os.replace
    monkeypatch.setattr(io.os, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        save(other, saved)
    assert load(saved) == other


def test_a_spline_model_needs_no_torch(tmp_path):
    code = f"""
        import sys
        import knotwork as kw
        from knotwork.io import load, save
        X, y = kw.datasets.load_wine_quality("red")
        save(kw.MarsRegressor(max_terms=5).fit(X, y), {str(tmp_path)!r})
        load({str(tmp_path)!r}).predict(X)
        save(load({str(tmp_path)!r}).spline_, {str(tmp_path)!r})
        load({str(tmp_path)!r})
        assert "torch" not in sys.modules
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
