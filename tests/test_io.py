import dataclasses
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
from knotwork.data.columns.levels import Levels
from knotwork.data.columns.number import Number
from knotwork.data.table import TableEncoder
from knotwork.errors import DataError, NetworkError
from knotwork.io import load, save
from knotwork.network.activations import NAMES
from knotwork.network.chain import Conversion
from knotwork.serial import reader, tables, writer
from knotwork.serial.tables import DOCUMENT
from tests.serial.edited import arrays_file


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
    save(model, folder, overwrite=True)
    assert sorted(os.listdir(folder)) == sorted([DOCUMENT, arrays_file(folder).name])
    return load(folder)


@pytest.fixture(scope="module")
def abalone():
    return kw.datasets.load_abalone()


@pytest.fixture(scope="module")
def mars(abalone):
    return kw.MarsRegressor(max_terms=15, penalty=3.0).fit(*abalone)


@pytest.fixture(scope="module")
def splinenet(abalone):
    return kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=2, random_state=0).fit(*abalone)


@pytest.fixture
def spline():
    return kw.Spline(
        (kw.Hinge(0, 0.1, 1), kw.Linear(1)), intercept=[1 / 3], coef=[[np.pi], [-0.0]], feature_names=("a", "b")
    )


# Splines

numbers = st.floats(allow_nan=False, allow_infinity=False)


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


def test_numpy_scalars(tmp_path):
    spline = kw.Spline((kw.Hinge(np.int64(0), np.float64(0.5), 1),), [1.0], [[2.0]], ("x",))
    again = there_and_back(spline, tmp_path)
    assert type(again.terms[0].feature) is int
    assert type(again.terms[0].knot) is float


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kw.Spline((), [np.inf], [], ("x",)), "Spline whose intercept is not finite"),
        (lambda: kw.Spline((kw.Linear(0),), [0.0], [[np.nan]], ("x",)), "Spline whose coef is not finite"),
        (lambda: nn.Sequential(set_(nn.Linear(1, 1), np.nan)), "weights of float32 that are not finite"),
    ],
)
def test_what_could_not_be_loaded_is_not_saved(make, message, tmp_path):
    with pytest.raises(DataError, match=f"must be able to predict, this one has .*{message}"):
        save(make(), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def set_(layer, value):
    nn.init.constant_(layer.weight, value)
    return layer


def test_the_layout_of_a_matrix_comes_back_and_with_it_the_last_bits(tmp_path):
    rng = np.random.default_rng(0)
    terms = tuple(kw.Hinge(f, k / 10, 1) for f in range(5) for k in range(-4, 4))
    spline = kw.Spline(terms, np.zeros(3), np.asfortranarray(rng.normal(size=(40, 3))), tuple("abcde"))
    X = rng.normal(size=(500, 5))
    assert_same(there_and_back(spline, tmp_path)(X), spline(X))


def test_equal_models_make_equal_files(spline, tmp_path):
    for name in "ab":
        save(spline, tmp_path / name)
    assert os.listdir(tmp_path / "a") == os.listdir(tmp_path / "b")
    for name in os.listdir(tmp_path / "a"):
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
    arrays = safetensors.numpy.load(arrays_file(tmp_path / "named").read_bytes())
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
    assert left <= {*tables.FITTED[type(model).__name__], *tables.OPTIONAL}


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
    make = (
        kw.MarsClassifier()
        if kind == "mars"
        else kw.SplineNetClassifier(n_members=1, hidden=(16,), epochs=1, random_state=0)
    )
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
        n_members=1, hidden=[8, 8], start="random", activation=nn.PReLU(init=0.1), epochs=1, device=torch.device("cpu")
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
    mixed = TableEncoder((Levels("a", (1, "1", True, 2.5)), Number("b")))
    assert_same(reader.Reader({}).value(writer.Writer().value(mixed, "")), mixed)


def test_a_parameter_that_json_cannot_hold_is_named(plain_data, tmp_path):
    X, Y = plain_data
    model = kw.SplineNetRegressor(n_members=1, hidden=(4,), epochs=0, random_state=np.random.RandomState(0)).fit(X, Y)
    with pytest.raises(DataError, match=r"'random_state' is RandomState; .* integer"):
        save(model, tmp_path)


def test_a_spline_model_needs_no_torch(tmp_path):
    code = f"""
        import sys
        import knotwork as kw
        from knotwork.io import load, save
        X, y = kw.datasets.load_wine_quality("red")
        save(kw.MarsRegressor(max_terms=5).fit(X, y), {str(tmp_path)!r})
        load({str(tmp_path)!r}).predict(X)
        save(load({str(tmp_path)!r}).spline_, {str(tmp_path)!r}, overwrite=True)
        load({str(tmp_path)!r})
        assert "torch" not in sys.modules
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_dictionary_of_numbers_comes_back(plain_data, tmp_path):
    X = plain_data[0]
    weights = {0: 1.0, 1: 2.5}
    model = kw.MarsClassifier(class_weight=weights).fit(X, (X[:, 0] > 0).astype(int))
    assert there_and_back(model, tmp_path).class_weight == weights
