"""Predictions held at the responses' range, widened by half: no finite row leaves it, in any form of a model."""

import ctypes
import pickle
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import knotwork as kw
from knotwork.data.limits import response_limits
from knotwork.data.split import held_out

ROWS = 400
rng = np.random.default_rng(0)
first = rng.normal(size=ROWS)
# Two columns that go together, with effects that cancel: one far out without the other is near no training row.
X = np.column_stack([first, 100 * (first + 0.05 * rng.normal(size=ROWS)), rng.normal(size=ROWS)])
y = 30 * X[:, 0] - 0.29 * X[:, 1] + np.abs(X[:, 2]) + 50
both = np.column_stack([y, 1e6 - 9e3 * y])
LOW, HIGH = y.min() - np.ptp(y) / 2, y.max() + np.ptp(y) / 2
FAR = np.vstack([X[:20] * [1e3, 1, 1], X[:20] * [1, -1e3, 1], X[:20]])
NET = {"hidden": (16, 8), "epochs": 2, "random_state": 0}
MODELS = {
    "mars": (kw.MarsRegressor(), y),
    "mars, degree 2": (kw.MarsRegressor(max_degree=2), y),
    "mars, folds": (kw.MarsRegressor(cv=3), y),
    "mars, two responses": (kw.MarsRegressor(scale_responses=True), both),
    "mars, absolute errors": (kw.MarsRegressor(loss="absolute_error", cv=3), y),
    "net": (kw.SplineNetRegressor(n_members=1, **NET), y),
    "net, members": (kw.SplineNetRegressor(n_members=3, **NET), y),
    "net, leaky": (kw.SplineNetRegressor(n_members=1, activation="leaky_relu", **NET), y),
    "net, smooth": (kw.SplineNetRegressor(n_members=1, **{**NET, "hidden": (64, 64)}, activation="silu"), y),
    "net, huber": (kw.SplineNetRegressor(n_members=1, loss="huber", **{**NET, "epochs": 0}), y),
}
ALONE = [name for name, (estimator, _) in MODELS.items() if getattr(estimator, "n_members", 0) == 1]
_fitted = {}


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture
def model(name):
    return fitted(name)


def fitted(name):
    if name not in _fitted:
        estimator, response = MODELS[name]
        _fitted[name] = clone(estimator).fit(X, response)
    return _fitted[name]


def ends(name):
    """Return where predictions are held: one network knows no more than the rows that it is trained on."""
    response = MODELS[name][1].reshape(ROWS, -1)
    if name in ALONE:
        response = response[~held_out(X, 0.15, int(np.random.RandomState(0).randint(2**31 - 1)))]
    half = np.ptp(response, axis=0) / 2
    return response.min(axis=0) - half, response.max(axis=0) + half


def predictions(model, rows):
    return np.asarray(model.predict(rows)).reshape(len(rows), -1)


def run(net, rows):
    with torch.no_grad():
        return net(torch.from_numpy(rows)).double().numpy()


def held(found, name):
    """Say which predictions lie at an end of the range."""
    return np.any([np.isclose(found, end, rtol=0, atol=1e-9 * np.ptp(ends(name))) for end in ends(name)], axis=0)


numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(arrays(float, (8, 3), elements=st.one_of(numbers, st.floats(-1e4, 1e4), st.sampled_from(X[:20, 0].tolist()))))
def test_no_finite_row_leaves_the_range(rows):
    for name in MODELS:
        found, (low, high) = predictions(fitted(name), rows), ends(name)
        assert (found >= low).all()
        assert (found <= high).all()


def test_rows_far_out_are_held_and_others_are_not(model, name):
    found = predictions(model, FAR)
    free = replace(model.spline_, output_limits=None)
    assert held(found, name)[:40].mean() > 0.2
    assert not held(predictions(model, X), name).any()
    spline = model.spline_.output_limits
    np.testing.assert_array_equal([spline.lower, spline.upper], ends(name))
    np.testing.assert_array_equal(free(X), model.spline_(X))
    if name.startswith("mars"):
        np.testing.assert_array_equal(kw.as_pwl(model)(FAR), model.predict(FAR))
        assert all(own.spline is None or own.spline.output_limits == spline for own in model.path_)


def test_every_network_is_the_model(model, name):
    found, scale = predictions(model, FAR), np.ptp(ends(name))
    double = kw.to_network(model, dtype=torch.float64)
    bare = kw.to_network(model, fold=True, dtype=torch.float64)
    np.testing.assert_allclose(run(double, FAR), found, atol=1e-12 * scale)
    nets = [bare, kw.fold(double)]
    assert [layer for net in nets for layer in net if isinstance(layer, kw.Scaling)] == []
    if "smooth" not in name:
        nets += [kw.reshape(net, (64,) * 5, X=X, random_state=0) for net in (double, bare)]
        assert (
            kw.network_size(model, fold=True).widths == tuple(n.out_features for n in bare if hasattr(n, "weight"))[:-1]
        )
    for net in nets:
        np.testing.assert_allclose(run(net, FAR), found, atol=1e-9 * scale)
    single = kw.to_network(model)
    np.testing.assert_allclose(run(single, FAR.astype(np.float32)), found, atol=2e-3 * scale)


def test_copies_and_files_hold_too(model, name, tmp_path):
    kw.save(model, tmp_path / "model")
    kw.save(kw.to_network(model, dtype=torch.float64), tmp_path / "net")
    found = model.predict(FAR)
    for again in (kw.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict(FAR), found)
        assert again.spline_ == model.spline_
        assert hash(again.spline_) == hash(model.spline_)
    again = run(kw.load(tmp_path / "net"), FAR)
    np.testing.assert_array_equal(again, run(kw.to_network(model, dtype=torch.float64), FAR))
    assert kw.Spline.from_dict(model.spline_.to_dict()) == model.spline_


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_exported_model_holds_too(model, name, tmp_path, dtype):
    onnxruntime = pytest.importorskip("onnxruntime")
    kw.export_onnx(model, tmp_path / "model.onnx", dtype=dtype)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    rows = FAR.astype(dtype)
    found = predictions(model, rows.astype(np.float64))
    scale = np.abs(ends(name)).max()
    np.testing.assert_allclose(
        session.run(None, {"features": rows})[-1], found, atol=(1e-4 if dtype == "float32" else 1e-9) * scale
    )


@pytest.mark.parametrize("name", ["mars", "mars, two responses"])
def test_formulas_hold_too(name, tmp_path):
    model = fitted(name)
    found, spline, outputs = predictions(model, FAR), model.spline_, model.spline_.intercept.size
    space = {}
    exec(spline.to_python("f"), {"__builtins__": {"float": float}}, space)
    written = np.array([space["f"](row) for row in FAR.tolist()]).reshape(found.shape)
    np.testing.assert_allclose(written, found, rtol=1e-9)
    text, page, formula = str(spline), spline._repr_html_(), spline._repr_latex_()
    for shown in (text, page, formula):
        assert shown.count("clipped to the range") == 1
    low, high = (f"{end[0]:.6g}" for end in ends(name))
    assert f"the result is clipped to the range {low} to {high}" in text
    for k in range(outputs):
        cell = spline.to_excel_formula(output=k)
        low, high = (repr(float(end[k])) for end in (spline.output_limits.lower, spline.output_limits.upper))
        assert cell.startswith("=MIN(MAX(")
        assert cell.endswith(f",{low}),{high})")
    if shutil.which("gcc") is None:
        return
    (tmp_path / "f.c").write_text(spline.to_c("f"))
    flags = ["-std=c89", "-pedantic", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", tmp_path / "f.so", tmp_path / "f.c"], check=True)
    function, out = ctypes.CDLL(str(tmp_path / "f.so")).f, np.empty(found.shape)
    function.restype = ctypes.c_double if outputs == 1 else None
    pointer = ctypes.POINTER(ctypes.c_double)
    for k, row in enumerate(FAR):
        at = row.ctypes.data_as(pointer)
        if outputs == 1:
            out[k] = function(at)
        else:
            function(at, out[k].ctypes.data_as(pointer))
    np.testing.assert_allclose(out, found, rtol=1e-9)


def test_an_explanation_says_what_was_held(model, name):
    parts = kw.explain(model, X, MODELS[name][1]).contributions(FAR)
    found = predictions(model, FAR)
    total = parts.base + parts.values.sum(axis=1) + sum(parts.interactions.values())
    np.testing.assert_allclose(total, found, atol=1e-9 * np.ptp(ends(name)))
    if name.startswith("mars"):
        taken = parts.interactions["clipped to the limit"]
        np.testing.assert_array_equal(taken != 0, held(found, name))
    assert "clipped to the limit" not in kw.explain(model, X, MODELS[name][1]).contributions(X).interactions


def test_what_surrounds_a_model_moves_the_range():
    inner = make_pipeline(StandardScaler(), kw.MarsRegressor())
    model = TransformedTargetRegressor(inner, transformer=StandardScaler()).fit(X, y)
    found = model.predict(FAR)
    np.testing.assert_allclose([found.min(), found.max()], [LOW, HIGH], rtol=1e-9)
    for fold in (False, True):
        net = kw.to_network(model, fold=fold, dtype=torch.float64)
        np.testing.assert_allclose(run(net, FAR)[:, 0], found, atol=1e-7)
    np.testing.assert_allclose(kw.as_pwl(model)(FAR), found, rtol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        kw.MarsRegressor(extrapolate="linear"),
        kw.MarsRegressor(compat="earth"),
        kw.MarsRegressor(loss="gamma"),
        kw.SplineNetRegressor(n_members=1, **NET, extrapolate="linear"),
        kw.SplineNetRegressor(n_members=1, **NET, loss="poisson"),
    ],
    ids=["linear", "earth", "log link", "net, linear", "net, log link"],
)
def test_who_goes_on_is_not_held(model):
    model.fit(X, np.exp((y - 50) / 10))
    assert model.spline_.output_limits is None
    assert all(getattr(layer, "back", False) is False or layer.limits is None for layer in kw.to_network(model))
    assert "clipped to the range" not in str(model.spline_)


def test_classes_are_not_held():
    model = kw.MarsClassifier().fit(X, y > 50)
    assert model.spline_.output_limits is None


def test_batches_and_parts_have_the_range_of_all_rows(tmp_path):
    whole = fitted("mars").spline_.output_limits
    order = np.argsort(y)  # no batch has both ends
    parts = np.array_split(order, 3)
    stream = kw.MarsRegressor()
    for part in parts:
        stream.partial_fit(X[part], y[part])
    read = kw.MarsRegressor().fit([(X[part], y[part]) for part in parts])
    net = kw.SplineNetRegressor(n_members=1, **NET).fit([(X[part], y[part]) for part in parts])
    assert net.spline_.output_limits == fitted("net").spline_.output_limits  # of the rows that it is trained on
    for model in (stream, read, net):
        assert model is net or model.spline_.output_limits == whole
        assert ((model.predict(FAR) >= LOW - 1e-9) & (model.predict(FAR) <= HIGH + 1e-9)).all()
    stream.forget(X[parts[0]], y[parts[0]])
    assert stream.spline_.output_limits == whole


def test_rows_of_weight_zero_do_not_widen_it():
    weight = np.ones(ROWS)
    weight[3] = 0.0
    wild = y.copy()
    wild[3] = 1e9
    model = kw.MarsRegressor().fit(X, wild, sample_weight=weight)
    rest = np.delete(y, 3)
    assert model.spline_.output_limits == response_limits(rest.min(keepdims=True), rest.max(keepdims=True))


def test_intervals_hold_the_prediction():
    model = fitted("mars, folds")
    for options in ({}, {"method": "plus"}):
        low, high = model.predict_interval(FAR, **options).T
        assert ((low <= model.predict(FAR)) & (model.predict(FAR) <= high)).all()
    assert all(spline.output_limits == model.spline_.output_limits for spline in model.fold_splines_)


def test_the_range_moves_when_training_goes_on():
    other = 3 * (y - 50) + 60  # some of it beyond the range
    net = kw.reshape(kw.to_network(fitted("mars")), (64, 64), X=X, random_state=0)
    before = run(net, X.astype(np.float32))[:, 0]
    assert other.max() > HIGH
    history = kw.train(net, X, other, epochs=30, random_state=0)
    after = run(net, X.astype(np.float32))[:, 0]
    assert np.std(after - other) < 0.2 * np.std(other) < np.std(before - other)
    # What the history has is what the network computes.
    assert min(history.validation_loss) < 0.1 * history.validation_loss[0]
    low, high = net[-1](torch.tensor([[-1e9], [1e9]])).ravel().tolist()
    assert low == pytest.approx(other.min() - np.ptp(other) / 2, rel=1e-5)
    assert high == pytest.approx(other.max() + np.ptp(other) / 2, rel=1e-5)
    # Behind a link, or with a loss of one's own, nobody knows the range.
    free = kw.to_network(fitted("mars"))
    kw.train(free, X, np.exp((y - 50) / 10), loss="poisson", epochs=1, random_state=0)
    assert np.isinf([free[-1].limits.lower, free[-1].limits.upper]).all()


class Wrapped(torch.nn.Module):
    """A network inside a module of one's own."""

    def __init__(self, spline):
        super().__init__()
        self.spline = spline

    def forward(self, x):
        return self.spline(x)


@pytest.mark.parametrize(
    "around", [Wrapped, lambda net: kw.with_spline(torch.nn.Linear(3, 1), net)], ids=["own", "with_spline"]
)
def test_the_range_moves_inside_other_modules(around):
    net = around(kw.to_network(fitted("mars")))
    kw.train(net, X, 9 * y, epochs=1, random_state=0)
    assert net.spline[-1].limits.upper[0] == response_limits(9 * y.min(keepdims=True), 9 * y.max(keepdims=True)).upper
    kw.train(net, X, np.exp((y - 50) / 10), loss="poisson", epochs=1, random_state=0)
    assert np.isinf(net.spline[-1].limits.upper)


def test_a_frozen_spline_keeps_its_range():
    net = kw.with_spline(torch.nn.Linear(3, 1), fitted("mars"), freeze=True)
    before = net.spline[-1].limits
    kw.train(net, X, 9 * y, epochs=1, random_state=0)
    assert net.spline[-1].limits == before


def test_a_failure_leaves_the_range(monkeypatch):
    net = kw.to_network(fitted("mars"))
    limits = net[-1].limits

    def stop(epoch):
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError, match="stopped"):
        kw.train(net, X, 100 * y, epochs=1, random_state=0, callbacks=[stop])
    assert net[-1].limits == limits


def test_a_loop_of_ones_own_brings_rows_back():
    torch.manual_seed(0)
    net = kw.to_network(fitted("mars"), dtype=torch.float64)
    with torch.no_grad():
        net[-2].bias += 20  # every row is far beyond the range
    rows, goal = torch.from_numpy(X), torch.from_numpy(y)[:, None]
    assert torch.unique(net(rows)).numel() == 1
    optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(1500):
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(net(rows), goal).backward()
        optimiser.step()
    assert torch.unique(net(rows)).numel() > 300
    assert float((net(rows) - goal).detach().abs().mean()) < 2 * y.std()


def test_init_lets_new_responses_through():
    net = kw.to_network(kw.MarsRegressor().fit(X, y), dtype=torch.float64)
    net = kw.reshape(net, (64, 64), X=X, random_state=0)
    other = 5 * (y - 50) + 50
    assert other.max() > HIGH
    report = kw.init_(net, X, other, random_state=0)
    assert report.max_difference < 1e-9
    np.testing.assert_allclose(run(net, FAR)[:, 0], report.spline(FAR), rtol=1e-9)
    assert run(net, X).max() > HIGH


def test_what_holds_nothing_is_not_there(tmp_path):
    net = kw.reshape(kw.to_network(fitted("mars"), dtype=torch.float64), (64, 64), X=X, random_state=0)
    report = kw.init_(net, X, y > 50, random_state=0)
    assert report.spline.output_limits is None
    assert [layer.out_features for layer in kw.fold(net) if isinstance(layer, torch.nn.Linear)][-2:] == [64, 1]
    kw.save(net, tmp_path / "net")
    np.testing.assert_array_equal(run(kw.load(tmp_path / "net"), X), run(net, X))
    spline = replace(report.spline, output_limits=kw.Limits([-np.inf], [np.inf]))
    assert "clipped to" not in str(spline)
    assert spline.to_python() == report.spline.to_python()
    assert spline.to_c() == report.spline.to_c()


def test_earlier_models_are_not_held():
    old = kw.load("tests/saved/0.2.0-schema-7/mars_min")
    assert old.spline_.output_limits is None
    assert np.isfinite(old.spline_(np.full((1, len(old.spline_.feature_names)), 1e3))).all()


@pytest.mark.parametrize("name", ["mars", "mars, two responses"])
def test_the_summary_says_between_which_values_predictions_are_clipped(name):
    ranges = [f"{low:.6g} to {high:.6g}" for low, high in zip(*ends(name), strict=True)]
    said = ranges[0] if len(ranges) == 1 else ", ".join(f"y{k} {text}" for k, text in enumerate(ranges))
    lines = fitted(name).summary().splitlines()
    (place,) = (k for k, line in enumerate(lines) if line.startswith("Values beyond these limits"))
    # A line of two responses is wrapped, as all lines of a summary are.
    assert " ".join(lines[place + 1 :]).startswith(f"Predictions are clipped to these limits: {said}. ")


def test_the_summary_of_a_model_without_such_limits_says_nothing_of_them():
    for model in (kw.MarsRegressor(extrapolate="linear"), kw.MarsRegressor(loss="poisson")):
        assert "clipped" not in model.fit(X, np.abs(X[:, 2])).summary()
    assert "clipped" not in kw.MarsClassifier().fit(X, X[:, 0] > 0).summary()
    assert "clipped" not in kw.load("tests/saved/0.2.0-schema-7/mars_min").summary()


def test_a_constant_response():
    model = kw.MarsRegressor().fit(X, np.full(ROWS, 0.1))
    np.testing.assert_array_equal(model.predict(FAR), 0.1)
    assert kw.to_network(model)(torch.from_numpy(FAR).float()).shape == (len(FAR), 1)


def test_responses_whose_range_is_no_float():
    limits = response_limits(np.array([-1.7e308]), np.array([1.7e308]))
    assert (limits.lower[0], limits.upper[0]) == (-np.inf, np.inf)


@pytest.mark.parametrize("limits", [(0.0, 1.0), kw.Limits([0.0, 0.0], [1.0, 1.0])])
def test_limits_of_other_outputs_are_refused(limits):
    with pytest.raises(ValueError, match="output_limits must be Limits of the 1 outputs"):
        kw.Spline((), [0.0], [], ("x",), output_limits=limits)


def test_a_simpler_spline_is_held_too():
    spline = fitted("mars").spline_
    free = replace(spline, output_limits=None)
    assert spline.simplify(0.05, X) == replace(free.simplify(0.05, X), output_limits=spline.output_limits)


def test_the_history_counts_what_held_predictions_cost():
    source = np.random.default_rng(21)
    rows = source.standard_t(2, size=(25, 2))
    wild = rows[:, 0] ** 3 + source.normal(size=25)
    model = kw.SplineNetRegressor(n_members=1, hidden=(8,), epochs=5, validation_fraction=0.2, random_state=21)
    model.fit(rows, wild)
    unseen = model.members_[0].held_out
    found, history = model.predict(rows[unseen]), model.history_
    assert np.isin(found, model.spline_.output_limits.sides()).any()
    reached = np.mean((found - wild[unseen]) ** 2)
    np.testing.assert_allclose(history.validation_loss[history.best_epoch], reached, rtol=1e-5)


@pytest.mark.parametrize("loss", [None, "absolute_error"])
def test_training_compares_epochs_by_held_predictions(loss):
    rows, goal = np.linspace(-1, 1, 40)[:, None], np.linspace(-1, 1, 40)
    net = kw.to_network(kw.MarsRegressor().fit(rows, goal), dtype=torch.float64)
    with torch.no_grad():
        net[-2].weight *= 1e3
    far, ends = np.array([[-0.9], [0.9]]), np.array([-1.0, 1.0])
    before = run(net, far)[:, 0]
    history = kw.train(net, rows, goal, validation=(far, ends), loss=loss, epochs=20, random_state=0)
    np.testing.assert_array_equal(np.abs(before), 2.0)
    assert np.abs(run(net, far)[:, 0] - ends).mean() <= np.abs(before - ends).mean()
    assert history.validation_loss[0] == pytest.approx(1.0)
