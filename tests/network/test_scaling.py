"""Fixed scaling at the ends of a network: what it computes, what it survives, and that folding changes nothing."""

import copy
import io
import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import knotwork as kw
from knotwork import Hinge, Linear, Scaling, Spline
from knotwork.errors import NetworkError
from knotwork.network.chain import read_chain
from tests.network.compile.test_convert import DOUBLE, cases, run, run_raw, x_centre

SPLINE = Spline((Hinge(0, 10.0, 1), Hinge(0, 20.0, -1), Linear(1)), [2.0], [[3.0], [1.0], [0.5]], ("x", "z"))
ROWS = np.random.default_rng(0).normal(size=(50, 2)) * [10.0, 1.0] + [15.0, 0.0]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def buffers(net):
    return [b for m in net if isinstance(m, Scaling) for b in (m.centre, m.scale)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", DTYPES)
def test_the_centre_is_taken_off_in_double_precision(dtype, rows):
    layer = Scaling([1e8, 0.0], [2.0, 0.25]).to(dtype)
    x = torch.tensor([[1e8 + 6, 1.0]], dtype=torch.float64).to(rows)
    exact = (x.double() - torch.tensor([1e8, 0.0], dtype=torch.float64)) / torch.tensor([2.0, 0.25])
    out = layer(x)
    assert out.dtype == dtype
    assert torch.equal(out, exact.to(dtype))


def test_numbers_are_copied():
    centre, scale = np.array([1.0]), torch.tensor([2.0], dtype=torch.float64)
    layer = Scaling(centre, scale)
    centre[:] = scale[:] = 9.0
    assert layer(torch.tensor([[5.0]])).tolist() == [[2.0]]
    assert repr(layer) == "Scaling(features=1)"


@pytest.mark.parametrize(
    "convert",
    [
        nn.Module.float, nn.Module.double, nn.Module.half, nn.Module.bfloat16, nn.Module.cpu, copy.deepcopy,
        lambda net: net.to(torch.float16).to(torch.float64), lambda net: net.to("cpu", torch.float32),
        lambda net: pickle.loads(pickle.dumps(net)), lambda net: net.half().train().eval(), nn.Module.share_memory,
        lambda net: copy.deepcopy(net.half()).float(),
    ],
)  # fmt: skip
def test_its_numbers_stay_in_double_precision_whatever_the_network_becomes(convert):
    far = Spline((Hinge(0, 1e8 + 0.1, 1), Hinge(0, 1e8 + 0.7, 1)), [1e5], [[1.0], [2.0]], ("x",))
    net = kw.to_network(far)
    before = [b.clone() for b in buffers(net)]
    dtype = {
        nn.Module.double: torch.float64, nn.Module.half: torch.float16, nn.Module.bfloat16: torch.bfloat16
    }.get(convert)  # fmt: skip
    net = convert(net)
    assert {b.dtype for b in buffers(net)} == {torch.float64}
    assert all(torch.equal(a, b) for a, b in zip(before, buffers(net), strict=True))
    kept = next(net.parameters()).dtype
    assert dtype in (None, kept)
    # Responses are given in single precision at least.
    out = torch.promote_types(kept, torch.float32)
    assert net(torch.full((3, 1), 1e8 + 0.5, dtype=torch.float64)).dtype == out


def test_there_is_nothing_to_train():
    net = kw.to_network(SPLINE)
    assert not list(net[0].parameters()) + list(net[-1].parameters())
    assert len(list(net.parameters())) == 4
    before = [b.clone() for b in buffers(net)]
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    rows = torch.tensor(ROWS, requires_grad=True)
    net(rows).square().sum().backward()
    optimiser.step()
    assert rows.grad is not None
    assert (rows.grad != 0).any(dim=0).all()
    assert all(torch.equal(a, b) for a, b in zip(before, buffers(net), strict=True))


def test_state_dicts_hold_the_scaling_and_bring_it_back():
    net = kw.to_network(SPLINE)
    state = net.state_dict()
    assert {f"{k}.{name}" for k in (0, 4) for name in ("centre", "scale")} <= state.keys()
    assert len(state) == 8
    other = kw.to_network(Spline(SPLINE.terms, [0.0], [[1.0], [1.0], [1.0]], ("x", "z")))
    with torch.no_grad():
        other[0].centre += 1.0
    assert not torch.equal(other(torch.tensor(ROWS)), net(torch.tensor(ROWS)))
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(torch.tensor(ROWS)), net(torch.tensor(ROWS)))
    assert {b.dtype for b in buffers(other)} == {torch.float64}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_compute_the_same_and_are_on_their_own(copied):
    net = kw.to_network(SPLINE)
    twin = copied(net)
    assert torch.equal(twin(torch.tensor(ROWS)), net(torch.tensor(ROWS)))
    assert twin.conversion == net.conversion
    with torch.no_grad():
        twin[0].centre += 1.0
    assert not torch.equal(twin(torch.tensor(ROWS)), net(torch.tensor(ROWS)))


def test_a_network_on_the_meta_device_can_be_given_memory():
    net = kw.to_network(SPLINE)
    state = copy.deepcopy(net.state_dict())
    expected = net(torch.tensor(ROWS))
    empty = net.to("meta").to_empty(device="cpu")
    assert {b.dtype for b in buffers(empty)} == {torch.float64}
    empty.load_state_dict(state)
    assert torch.equal(empty(torch.tensor(ROWS)), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_export_keeps_double_precision_inside(dtype):
    net = kw.to_network(SPLINE, dtype=dtype).eval()
    rows = torch.tensor(ROWS)
    program = torch.export.export(net, (rows,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    assert torch.equal(program.module()(rows), net(rows))
    assert torch.equal(program.module()(rows[:7]), net(rows[:7]))


def test_torch_compile_traces_the_whole_network():
    net = kw.to_network(SPLINE).eval()
    # Without a C++ compiler on the machine: tracing is what a layer of our own could break.
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    rows = torch.tensor(ROWS)
    with torch.no_grad():
        assert torch.equal(compiled(rows), net(rows))


@pytest.mark.parametrize("far", [0.0, 1e6, 1e8])
def test_columns_far_from_zero_are_right_in_single_precision(far):
    """A column of 1e8 ± 1: float32 alone cannot tell its rows apart."""
    knots = far + np.array([-0.5, 0.25, 1.0])
    terms = (*(Hinge(0, t, s) for t in knots for s in (-1, 1)), Linear(1))
    coef = np.array([[1.0], [-2.0], [0.5], [3.0], [-1.0], [1.5], [0.25]])
    spline = Spline(terms, [0.5 - 0.25 * far], coef, ("x", "z"))
    X = far + np.random.default_rng(0).normal(size=(300, 2))
    # Nobody knows where z lies: a line has no knots. An estimator knows.
    model = kw.MarsRegressor().fit(X, spline(X))
    size = np.ptp(spline(X))
    error = np.abs(run_raw(kw.to_network(model), X)[:, 0] - model.predict(X)).max()
    assert error <= 1e-6 * size * len(model.spline_.terms)
    folded = np.abs(run(kw.fold(kw.to_network(model)), X)[:, 0] - model.predict(X)).max()
    assert (folded > 1e-3 * size) == (far > 1e5)  # what the scaling is for
    exact = np.abs(run(kw.to_network(model, dtype=torch.float64), X)[:, 0] - model.predict(X)).max()
    assert exact <= 1e-12 * max(far, 1.0) * np.abs(model.spline_.coef).sum() + 1e-12 * size


@given(cases(terms=20, features=10, outputs=3), st.sampled_from(["relu", "leaky_relu", "silu", "relu6"]))
def test_folding_changes_nothing_but_the_form(case, activation):
    box = np.quantile(case.inside, [0.0, 1.0], axis=0) if activation == "relu6" else None
    net = kw.to_network(case.spline, activation=activation, box=box, dtype=torch.float64)
    bare = kw.fold(net)
    assert [type(m) for m in bare] == [nn.Linear, type(net[2]), nn.Linear]
    X = case.inside if box is not None else case.X
    size = case.far_parts(np.abs(case.X).max(axis=0)[None] if box is not None else X, x_centre(net))
    if activation == "silu":  # a smooth unit is steep where it stands for a hinge; its weights add up as lines do
        size = size + net.conversion.bound / 1e-3
    assert (np.abs(run(bare, X) - run(net, X)) <= 10 * DOUBLE * size).all()
    assert bare.conversion.bound == pytest.approx(net.conversion.bound, rel=1e-12)
    assert (bare.conversion.box is None) == (net.conversion.box is None)
    if box is not None:
        np.testing.assert_array_equal(bare.conversion.box, box)
    again = kw.fold(bare)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), bare.parameters(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("training", [True, False])
def test_folding_makes_a_network_of_its_own_of_the_same_kind(dtype, training):
    net = kw.to_network(SPLINE, dtype=dtype).train(training)
    before = copy.deepcopy(net.state_dict())
    bare = kw.fold(net)
    assert {m.training for m in bare.modules()} == {training}
    assert {p.dtype for p in bare.parameters()} == {dtype}
    assert all(p.requires_grad for p in bare.parameters())
    with torch.no_grad():
        for p in bare.parameters():
            p.add_(1.0)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_folding_what_was_trained_grown_or_is_of_somebody_else():
    X, y = kw.datasets.load_wine_quality("red")
    rows, target = X.to_numpy(), y.to_numpy()
    model = kw.MarsRegressor().fit(X, y)
    net = kw.reshape(kw.to_network(model, dtype=torch.float64), (48, 24), X=X, random_state=0)
    kw.train(net, rows, target, epochs=2, random_state=0)
    bare = kw.fold(net)
    assert not any(isinstance(m, Scaling) for m in bare)
    np.testing.assert_allclose(run(bare, rows), run(net, rows), atol=1e-11)
    assert bare.conversion.encoder == net.conversion.encoder
    foreign = nn.Sequential(nn.Linear(11, 4), nn.Dropout(), nn.ReLU(), nn.Linear(4, 1)).double().eval()
    np.testing.assert_allclose(run(kw.fold(foreign), rows), run(foreign, rows), rtol=1e-12)


def test_logits_are_not_scaled():
    X, y = kw.datasets.load_wine_quality("red")
    classifier = kw.MarsClassifier(max_terms=9).fit(X, y.to_numpy() > 5)
    net = kw.to_network(classifier, dtype=torch.float64)
    assert [type(m) for m in net] == [Scaling, nn.Linear, nn.ReLU, nn.Linear]
    np.testing.assert_allclose(run(net, X.to_numpy())[:, 0], classifier.decision_function(X), atol=1e-11)


@given(cases(terms=20, features=8, outputs=4))
def test_what_is_read_back_is_what_was_built(case):
    net = kw.to_network(case.spline, dtype=torch.float64)
    c = read_chain(net).coordinates
    np.testing.assert_array_equal(c.x_centre, net[0].centre)
    np.testing.assert_array_equal(c.x_scale, net[0].scale)
    np.testing.assert_allclose(c.y_scale, 1 / net[-1].scale, rtol=1e-15)
    np.testing.assert_allclose(c.y_centre, -net[-1].centre.numpy() * c.y_scale, rtol=1e-15)


def test_functions_that_take_networks_take_them_with_scaling():
    rows = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    wide = rows * [5.0, 1.0] + [15.0, 0.0]
    net = kw.to_network(SPLINE, dtype=torch.float64)
    expected = SPLINE(wide)
    for made in (kw.widen(net, 9, random_state=0), kw.deepen(net, 1, random_state=0), kw.reshape(net, (8, 6, 4))):
        assert [type(m) for m in (made[0], made[-1])] == [Scaling, Scaling]
        np.testing.assert_allclose(run(made, wide)[:, 0], expected, rtol=1e-12)
    pieces = kw.from_network(net, ([10.0, -1.0], [20.0, 1.0]))
    np.testing.assert_allclose(pieces(wide).reshape(-1), expected, rtol=1e-9)
    smooth = kw.to_network(SPLINE, activation="silu", tolerance=0.5, dtype=torch.float64)
    report = kw.to_relu(smooth, ([10.0, -1.0], [20.0, 1.0]), 0.01, random_state=0)
    assert report.observed <= report.bound <= 0.01
    assert np.abs(run(report.network, wide) - run(smooth, wide)).max() <= report.bound
    assert report.network.conversion.box.tolist() == [[10.0, -1.0], [20.0, 1.0]]
    assert report.network.conversion.bound == report.bound
    assert [type(m) for m in (report.network[0], report.network[-1])] == [Scaling, Scaling]


@pytest.mark.parametrize(
    ("knots", "coef"),
    [
        ([1e-320, 2e-320], 1.0),
        ([1e200, 2e200], 1.0),
        ([1e-300, 3e-300], 1e300),
        ([1.0, 2.0], 1e-310),
        ([1.0, 2.0], 0.0),
        ([0.0, 0.0], 1.0),
        ([5.0, 5.0], 1.0),
        ([1e8, 1e8 + 1e-7], 1e7),
    ],
)
def test_scales_of_any_size(knots, coef):
    spline = Spline(tuple(Hinge(0, t, 1) for t in knots), [2.0], [[coef], [coef]], ("x",))
    spread = max(abs(knots[1] - knots[0]), 1e-300)
    X = np.concatenate([np.array(knots), knots[0] + spread * np.array([-1.0, 0.5, 3.0]), [-1.0, 0.0, 1.0]])[:, None]
    net = kw.to_network(spline, dtype=torch.float64)
    assert all(bool(b.isfinite().all()) for b in net.state_dict().values())
    size = 2 + coef * sum(np.abs(X[:, 0]) + t for t in knots)
    assert (np.abs(run(net, X)[:, 0] - spline(X)) <= DOUBLE * size).all()


@pytest.mark.parametrize(("centre", "scale"), [
    ([0.0, 1.0], [1.0]), (0.0, 1.0), ([[0.0]], [[1.0]]), ([0.0], [0.0]), ([0.0], [-1.0]), ([np.nan], [1.0]),
])  # fmt: skip
def test_numbers_that_cannot_scale_are_refused(centre, scale):
    with pytest.raises(NetworkError, match="centre and scale must be"):
        kw.Scaling(centre, scale)


def test_rows_of_another_width_are_refused_and_not_broadcast():
    with pytest.raises(ValueError, match="a Scaling of 2 features got rows of shape"):
        kw.Scaling([0.0, 1.0], [1.0, 2.0])(torch.zeros(4, 1))


def test_torch_can_script_it():
    net = nn.Sequential(kw.Scaling([1.0, 2.0], [3.0, 4.0]), nn.Linear(2, 1))
    rows = torch.randn(5, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch is leaving it behind, people have not yet
        scripted = torch.jit.script(net)
    assert torch.equal(scripted(rows), net(rows))


@pytest.mark.parametrize(("X", "message"), [
    ([[1.0, float("nan")]], "X must be finite, got NaN or inf"),
    ([1.0, 2.0], r"X must have shape \(N, columns\) with at least one row, got \(2,\)"),
    (np.zeros((0, 2)), r"got \(0, 2\)"),
])  # fmt: skip
def test_rows_that_cannot_be_measured_are_refused(X, message):
    with pytest.raises(NetworkError, match=message):
        kw.Scaling.of(X)


def test_a_frame_is_to_be_encoded_first():
    X, y = kw.datasets.load_abalone()
    net = kw.to_network(kw.MarsRegressor().fit(X, y))
    with pytest.raises(TypeError, match=r"got DataFrame; torch.as_tensor\(encoder.encode\(X\)\) makes one"):
        net(X)
    assert net(torch.as_tensor(net.conversion.encoder.encode(X))).shape == (4177, 1)
    with pytest.raises(TypeError, match=r"got list; torch.as_tensor makes one"):
        net([[1.0] * 10])


def test_rows_of_the_meta_device_need_a_layer_there():
    with pytest.raises(ValueError, match="rows on the meta device hold no numbers to scale"):
        Scaling([1.0], [2.0])(torch.empty(3, 1, device="meta"))
    assert Scaling([1.0], [2.0]).to("meta")(torch.empty(3, 1, device="meta")).shape == (3, 1)


def test_the_layer_of_rows_holds_features_like_the_estimators():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    X[7, 0] = 5e6  # held, so that it decides no scale either
    layer, free = Scaling.of(X), Scaling.of(X, extrapolate="linear")
    assert layer.limits == kw.MarsRegressor().fit(X, X[:, 1]).limits_
    assert layer.scale[0] < 2 < 1e5 < free.scale[0]
    assert free.limits is None
    top = layer.limits.upper
    rows = torch.tensor([[1e9, 0.0], [top[0], 0.0]])
    assert layer(rows)[0].tolist() == layer(rows)[1].tolist()
    net = nn.Sequential(layer, nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    spline = kw.init_(net, X, np.abs(X[:, 1]), random_state=0).spline
    far = np.array([[1e9, 50.0], [0.0, -3.0]])
    assert net(torch.from_numpy(far)).detach().numpy()[:, 0] == pytest.approx(spline(far), abs=1e-5)
    with pytest.raises(NetworkError, match="extrapolate must be 'clip' or 'linear', got 'flat'"):
        Scaling.of(X, extrapolate="flat")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_networks_of_half_precision_give_prices_in_single_precision(dtype, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = 2e5 * (np.abs(X[:, 0]) + X[:, 1]) + 1e6  # beyond float16, as is its std
    model = kw.MarsRegressor().fit(X, y)
    own = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    nets = [kw.to_network(model).to(dtype), kw.with_spline(own, model).to(dtype)]
    if dtype is torch.float16:
        kw.save(nets[0], tmp_path / "half")
        nets.append(kw.load(tmp_path / "half"))
    for net in nets:
        for rows in (torch.from_numpy(X), torch.from_numpy(X).to(dtype)):  # raw rows of either kind
            out = net(rows)
            assert out.dtype == torch.float32
            assert np.abs(out.detach().numpy()[:, 0] - model.predict(X)).max() < 0.1 * y.std()


@pytest.mark.parametrize(
    "y",
    [np.zeros((0, 3)), torch.empty(12, 3, device="meta"), torch.tensor(3.0), 2**63, [[1], [2, 3]], np.ones((2, 3, 4)),
     np.full((12, 2), "u"), np.ones(12, dtype=[("a", int)])],
)  # fmt: skip
def test_responses_that_no_column_is_encoded_by_are_refused(y):
    with pytest.raises(NetworkError, match=r"^(y|labels) must"):
        Scaling.of(np.eye(12), y)


def test_responses_of_half_precision_are_read():
    X = np.random.default_rng(0).normal(size=(12, 3))
    same = [Scaling.of(X, torch.ones(12, dtype=dtype)).scale for dtype in (torch.float32, torch.bfloat16)]
    assert torch.equal(*same)


def test_infinite_responses_are_held_with_gradients_and_without():
    layer = Scaling([0.0], [1.0], [-1.0], [1.0]).turned_back()
    rows = torch.tensor([[np.inf], [-np.inf], [np.nan], [3.0], [0.5]])
    with_gradients = layer(rows.clone().requires_grad_())
    torch.testing.assert_close(with_gradients.detach(), layer(rows), equal_nan=True)
    assert with_gradients[:2].ravel().tolist() == [1.0, -1.0]


def test_what_is_no_limits_is_refused():
    with pytest.raises(NetworkError, match=r"limits must be kw\.Limits or None, got"):
        Scaling.within((0.0, 1.0), [0.0], [1.0])
