import copy
import itertools
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional

import knotwork as kw
from knotwork import init_
from knotwork.errors import NetworkError


def data(rows=300, features=4, outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, features))
    y = np.stack([np.abs(X[:, 0] - 0.3 * k) + X[:, 1] + 5 * k for k in range(outputs)], axis=1)
    return X, y + 0.1 * rng.normal(size=y.shape)


def chain(*widths, activation=nn.ReLU, dtype=None):
    modules = [nn.Linear(widths[0], widths[1], dtype=dtype)]
    for before, after in itertools.pairwise(widths[1:]):
        modules += [activation(), nn.Linear(before, after, dtype=dtype)]
    return nn.Sequential(*modules)


def run(net, X):
    training = net.training
    net.eval()
    with torch.no_grad():
        out = net(torch.as_tensor(X).to(next(net.parameters()).dtype)).double().numpy()
    net.train(training)
    return out


class Functional(nn.Module):
    """Calls its activation, and whatever else, in forward."""

    def __init__(self, *widths, act=functional.relu, last=lambda out: out):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.temperature = nn.Parameter(torch.tensor(3.0))
        self.register_buffer("seen", torch.tensor(7))
        self.act, self.last = act, last

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = self.act(layer(x))
        return self.last(self.layers[-1](x))


class Shared(nn.Module):
    """Defines its one activation last and calls it twice."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 20), nn.Linear(20, 8), nn.Linear(8, 1)
        self.act = nn.LeakyReLU(0.1)

    def forward(self, x):
        return self.third(self.act(self.second(self.act(self.first(x)))))[:, 0]


def check(net, report, X, y, precision):
    """The network must be the report's spline on all rows, and the spline a fit of the data."""
    expected = report.spline(X).reshape(len(X), -1)
    difference = np.abs(run(net, X).reshape(len(X), -1) - expected)
    shown = difference[:1024]
    assert report.max_difference == pytest.approx(shown.max(), rel=1e-6, abs=1e-15)
    assert report.mean_difference == pytest.approx(shown.mean(), rel=1e-6, abs=1e-15)
    assert difference.max() <= precision * (1 + np.abs(y).max())
    residual = y.reshape(expected.shape) - expected
    assert 1 - residual.var() / y.var() > 0.5
    assert report.seconds > 0


@pytest.mark.parametrize(("dtype", "precision"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("widths", [(30,), (64, 64), (40, 20, 10, 6), (8, 8)])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.PReLU, lambda: nn.LeakyReLU(-0.3)])
def test_a_chain_becomes_the_spline(dtype, precision, outputs, widths, activation):
    X, y = data(outputs=outputs)
    net = chain(4, *widths, outputs, activation=activation).to(dtype)
    report = init_(net, X, y, random_state=0)
    check(net, report, X, y, precision)
    assert len(report.units) == len(widths)
    assert 2 <= report.units[0] <= widths[0]
    assert report.units[1:] == (2 * outputs,) * (len(widths) - 1)
    assert {p.dtype for p in net.parameters()} == {dtype}


@pytest.mark.parametrize("activation", [nn.SiLU, nn.GELU, nn.Softplus])
def test_smooth_activations_come_close(activation):
    X, y = data()
    net = chain(4, 40, 10, 1, activation=activation, dtype=torch.float64)
    report = init_(net, X, y, random_state=0)
    assert 0 < report.max_difference < 0.05
    assert np.abs(run(net, X)[:, 0] - report.spline(X)).max() == report.max_difference


@pytest.mark.parametrize("activation", [nn.ReLU6, nn.Hardtanh, nn.ELU])
def test_activations_that_cannot_carry_do_for_one_layer(activation):
    X, y = data()
    net = chain(4, 40, 1, activation=activation, dtype=torch.float64)
    report = init_(net, X, y, random_state=0)
    assert report.max_difference < (0.05 if activation is nn.ELU else 1e-12)
    deep = chain(4, 40, 10, 1, activation=activation)
    refuse(deep, X, y, "cannot carry a value")


def test_a_narrow_first_layer_limits_the_spline():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 6))
    y = np.abs(X).sum(axis=1) + np.sin(3 * X).sum(axis=1)
    fits = []
    for width in (2, 3, 7, 12, 100):
        net = chain(6, width, 4, 1, dtype=torch.float64)
        report = init_(net, X, y, random_state=0)
        assert report.units[0] <= width
        fits.append(np.var(y - run(net, X)[:, 0]))
    assert fits == sorted(fits, reverse=True)
    assert fits[0] > 2 * fits[-1]


def test_layers_that_change_nothing_may_stand_anywhere():
    X, y = data(rows=200)
    images = torch.tensor(X, dtype=torch.float32).reshape(200, 2, 2)
    net = nn.Sequential(
        nn.Flatten(), nn.Identity(), nn.Linear(4, 20), nn.Dropout(0.9), nn.ReLU(), nn.Dropout1d(0.5),
        nn.Sequential(nn.Linear(20, 6), nn.ReLU()), nn.AlphaDropout(0.5), nn.Linear(6, 1), nn.Identity(),
    )  # fmt: skip
    report = init_(net, images, y[:, 0], random_state=0)
    assert report.max_difference < 1e-4
    np.testing.assert_allclose(run(net, images)[:, 0], report.spline(X), atol=1e-4)
    assert type(net) is nn.Sequential
    assert len(net) == 10


def test_activations_may_be_called_in_forward():
    X, y = data(outputs=2)
    net = Functional(4, 30, 10, 2)
    report = init_(net, X, y, random_state=0)
    check(net, report, X, y, 1e-5)
    assert net.temperature.item() == 3
    assert net.seen.item() == 7


def test_one_activation_may_be_called_several_times():
    X, y = data()
    net = Shared()
    check(net, init_(net, X, y, random_state=0), X, y, 1e-5)
    act = nn.ReLU()
    net = nn.Sequential(nn.Linear(4, 20), act, nn.Linear(20, 5), act, nn.Linear(5, 1))
    check(net, init_(net, X, y, random_state=0), X, y, 1e-5)


def test_tensors_frames_and_lists_are_read_alike():
    X, y = data()
    nets = []
    for rows, targets in ((X, y), (torch.tensor(X), torch.tensor(y[:, 0])), (X.tolist(), y[:, 0].tolist())):
        net = chain(4, 20, 1, dtype=torch.float64)
        init_(net, rows, targets, random_state=0)
        nets.append(net)
    for net in nets[1:]:
        assert all(map(torch.equal, net.parameters(), nets[0].parameters()))


def test_everything_else_about_the_module_stays():
    X, y = data()
    net = nn.Sequential(nn.Linear(4, 20), nn.PReLU(), nn.Dropout(0.5), nn.Linear(20, 1))
    net[2].eval()
    net[1].weight.requires_grad_(False)
    parameters = [(p, p.requires_grad) for p in net.parameters()]
    slope = net[1].weight.clone()
    before = torch.get_rng_state()
    init_(net, X, y, random_state=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert [m.training for m in net] == [True, True, False, True]
    assert net.training
    assert torch.equal(net[1].weight, slope)
    for (old, trains), new in zip(parameters, net.parameters(), strict=True):
        assert old is new
        assert new.requires_grad == trains
        assert new.grad is None
    net.eval()
    init_(net, X, y, random_state=0)
    assert not any(m.training for m in net.modules())


def test_a_seed_makes_it_reproducible():
    X, y = data()
    states = []
    for seed in (0, 0, 1):
        net = chain(4, 40, 20, 1)
        init_(net, X, y, random_state=seed)
        states.append(net.state_dict())
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])
    assert not all(torch.equal(states[0][k], states[2][k]) for k in states[0])


def test_units_that_the_spline_leaves_over_are_live_or_zero_as_asked():
    X, y = data()
    for fill, live in (("hinge", True), ("random", True), ("zero", False)):
        net = chain(4, 60, 30, 1)
        report = init_(net, X, y, fill=fill, random_state=0)
        rows = torch.tensor(X, dtype=torch.float32)
        for layer, units in zip((net[:2], net[:4]), report.units, strict=True):
            assert (layer(rows)[:, units:] > 0).any(dim=0).all() == live


@pytest.mark.parametrize("classes", [False, True])
def test_units_left_over_are_hinges_of_single_features_unless_others_are_asked_for(classes):
    X, y = data()
    y = y[:, 0] > 1 if classes else y
    features = {}
    for fill in (None, "hinge", "random"):
        net = chain(4, 60, 30, 1)
        report = init_(net, X, y, random_state=0, **({} if fill is None else {"fill": fill}))
        features[fill] = np.count_nonzero(net[0].weight.detach()[report.units[0] :], axis=1)
    assert features[None].size > 20
    assert (features[None] == 1).all()
    assert (features["hinge"] == 1).all()
    assert (features["random"] == 4).all()


def test_weights_count_like_rows():
    X, y = data(rows=100)
    counts = np.random.default_rng(0).integers(1, 4, 100)
    nets = [chain(4, 20, 1, dtype=torch.float64) for _ in range(2)]
    weighted = init_(nets[0], X, y, sample_weight=counts, random_state=0)
    repeated = init_(nets[1], np.repeat(X, counts, axis=0), np.repeat(y, counts, axis=0), random_state=0)
    np.testing.assert_allclose(weighted.spline(X), repeated.spline(X), rtol=1e-8)


def test_max_terms_and_penalty_shape_the_spline():
    X, y = data()
    assert len(init_(chain(4, 50, 1), X, y, max_terms=3).spline.terms) <= 2
    assert len(init_(chain(4, 50, 1), X, y, penalty=1e6).spline.terms) == 0


def test_the_ridge_is_a_thousandth_for_numbers_and_one_for_classes_unless_told():
    X, y = data()
    for target, ridge in ((y, 1e-3), (y[:, 0] > 1, 1.0)):
        default, same, other = (
            init_(chain(4, 50, 1), X, target, ridge=value).spline for value in (None, ridge, 3 * ridge)
        )
        assert default == same
        assert default != other


def test_a_constant_response_makes_a_constant_network():
    X, _ = data()
    net = chain(4, 10, 3, 1, dtype=torch.float64)
    report = init_(net, X, np.full(300, 5.0), random_state=0)
    assert report.units == (0, 2)
    np.testing.assert_allclose(run(net, X), 5.0, rtol=1e-14)


def test_wine_in_two_lines():
    X, y = kw.datasets.load_wine_quality("red")
    X = (X - X.mean()) / X.std()
    net = chain(11, 64, 32, 1)
    report = init_(net, X, y, random_state=0)
    values = run(net, X.to_numpy())[:, 0]
    assert 1 - np.var(y - values) / np.var(y) > 0.35
    assert np.abs(values - report.spline(X.to_numpy())).max() < 1e-4


WILD = {
    "a wide feature": (
        lambda X, y: (X * [1, 1, 20, 1], y),
        "'x2' with mean -?[0-9.]+ and std 19",
        "kw.Scaling.of(X), module",
    ),
    "a feature far from zero": (
        lambda X, y: (np.add(X, [0, 6, 0, 0]), y),
        "'x1' with mean 5.9",
        "kw.Scaling.of(X), module",
    ),
    "a large response": (lambda X, y: (X, 1e5 * y), "a response with mean", "module, kw.Scaling.back_to(y)"),
    "a small response": (lambda X, y: (X, 0.05 * y), "a response with mean", "module, kw.Scaling.back_to(y)"),
    "a response far from zero": (
        lambda X, y: (X, y + 1e6),
        "a response with mean 1e.06",
        "module, kw.Scaling.back_to(y)",
    ),
    "both": (
        lambda X, y: (1e3 * X, 1e3 * y),
        "'x.' with .* and a response",
        "kw.Scaling.of(X), module, kw.Scaling.back_to(y)",
    ),
}


@pytest.mark.parametrize(("dtype", "double"), [(torch.float32, ""), (torch.float64, ".double()")])
def test_what_training_would_not_survive_is_refused_with_the_line_that_makes_it_so(dtype, double):
    for name, (change, got, line) in WILD.items():
        if dtype == torch.float64 and "far from zero" in name and "response" in name:
            continue  # double precision resolves it
        X, y = change(*data())
        module = chain(4, 20, 8, 1, dtype=dtype)
        line = f"module = nn.Sequential({line}){double}"
        refuse(module, X, y, f"got {got}.*; initialise {re.escape(line)}")
        scope = {"nn": nn, "kw": kw, "module": module, "X": X, "y": y}
        exec(line, scope)
        report = init_(scope["module"], X, y, random_state=0)
        assert report.max_difference < 1e-4 * y.std() + 1e-7 * np.abs(y).max(), name


def test_the_line_fits_modules_that_answer_without_columns():
    X, y = data()
    refuse(Shared(), X, 1e4 * y, re.escape("nn.Sequential(module, nn.Unflatten(0, (-1, 1)), kw.Scaling.back_to(y))"))
    net = nn.Sequential(Shared(), nn.Unflatten(0, (-1, 1)), kw.Scaling.back_to(1e4 * y))
    assert init_(net, X, 1e4 * y).max_difference < 1
    stale = nn.Sequential(kw.Scaling.of(X), chain(4, 20, 1))
    refuse(stale, 1e3 * X, y, "'x.' lies outside it in 100% of these; initialise it with Scalings of these data")
    stale = nn.Sequential(kw.Scaling.of(X, extrapolate="linear"), chain(4, 20, 1))
    refuse(stale, 1e3 * X, y, "initialise it with Scalings of these data at its ends")


def test_small_features_and_logits_of_any_response_are_fine():
    X, y = data()
    assert init_(chain(4, 20, 1), 1e-6 * X, y).max_difference < 1e-4
    labels = np.where(y[:, 0] > 0, 100_000, 100_001)
    assert init_(chain(4, 20, 2), X, labels).task == "classification"


def test_rounding_of_columns_far_from_zero_is_not_taken_for_another_function():
    X, y = data()
    X = 2e-4 * X + 1
    net = chain(4, 20, 8, 1)
    assert 1e-5 < init_(net, X, y, random_state=0).max_difference < 0.05
    refuse(Functional(4, 20, 8, 1, last=lambda out: out + 1), X, y, "must run its Linear layers")
    refuse(
        net,
        1e-5 * data()[0] + 1,
        y,
        r"'x.' with mean 1 and std .*e-0. .which float32 does not resolve.; initialise module = nn.Seq",
    )
    assert init_(chain(4, 20, 8, 1, dtype=torch.float64), 1e-5 * data()[0] + 1, y).max_difference < 1e-6


@pytest.mark.parametrize("far", ["raw", "scaled"])
def test_training_from_raw_rows_keeps_every_unit_alive_behind_the_line_it_asks_for(far):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 4)) * [1e3, 1e-6, 1.0, 50.0] + [1e4, 0.0, 0.0, 200.0]
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    y = 1e5 * (np.abs(z[:, 0]) + np.maximum(z[:, 1], 0) + 0.5 * z[:, 2] * z[:, 3])[:, None] + 1e6
    module = chain(4, 32, 16, 1)
    if far == "raw":
        refuse(module, X, y, "a start survives training where")
        return
    net = nn.Sequential(kw.Scaling.of(X), module, kw.Scaling.back_to(y))
    init_(net, X, y, random_state=0)
    rows, target = torch.tensor(X), torch.tensor(y).float()
    optimiser, errors = torch.optim.Adam(net.parameters(), lr=1e-3), []
    for _ in range(11):
        errors.append(functional.mse_loss(net(rows), target).item())
        for batch in torch.randperm(1000, generator=torch.Generator().manual_seed(0)).split(100):
            optimiser.zero_grad()
            functional.mse_loss(net(rows[batch]), target[batch]).backward()
            optimiser.step()
    assert max(errors[1:]) < errors[0]
    assert errors[-1] < 0.9 * errors[0]
    hidden = module[:2](net[0](rows))
    assert (hidden > 0).any(dim=0).all()
    assert (module[2:4](hidden) > 0).any(dim=0).all()


def refuse(net, X, y, message, **options):
    """Check the error, and that it leaves every bit, flag and module as it was."""
    before = copy.deepcopy(net.state_dict())
    flags = [(m, m.training) for m in net.modules()], [(p, p.requires_grad) for p in net.parameters()]
    with pytest.raises(NetworkError, match=message):
        init_(net, X, y, **options)
    after = net.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert flags == ([(m, m.training) for m in net.modules()], [(p, p.requires_grad) for p in net.parameters()])


def frozen(which):
    net = chain(4, 20, 1)
    getattr(net[2], which).requires_grad_(False)
    return net


def parametrised(norm):
    net = chain(4, 20, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one of the norms is an old one
        norm(net[2])
    return net


def between(*modules):
    return nn.Sequential(nn.Linear(4, 9), *modules, nn.Linear(9, 1))


class WideAndDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.deep = nn.Linear(4, 1), chain(4, 9, 1)

    def forward(self, x):
        return self.wide(x) + self.deep(x)


MODULES = {
    "no layers": (lambda: nn.ReLU(), "at least two Linear layers .* got 0 in ReLU"),
    "one Linear": (lambda: nn.Linear(4, 1), "at least two Linear layers .* got 1 in Linear"),
    "one Linear in a chain": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 1)), "at least two Linear .* got 1"),
    "batch norm without statistics": (lambda: between(nn.BatchNorm1d(9, track_running_stats=False), nn.ReLU()),
                                      "must keep running statistics, '1' does not; .* track_running_stats=True"),
    "batch norm without weights": (lambda: between(nn.BatchNorm1d(9, affine=False), nn.ReLU()),
                                   "'1' must have a weight and a bias; make it with affine=True"),
    "frozen batch norm": (lambda: between(nn.BatchNorm1d(9).requires_grad_(False), nn.ReLU()), "'1' is frozen"),
    "layer norm": (lambda: between(nn.LayerNorm(9), nn.ReLU()), "got LayerNorm at '1'; kw.with_spline"),
    "instance norm": (lambda: between(nn.ReLU(), nn.InstanceNorm1d(9)), "InstanceNorm1d at '2'; kw.with_spline"),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), *between(nn.ReLU())),
                    "passes through Linear layers, activations, .* got Conv2d at '0'; kw.with_spline"),
    "embedding": (lambda: nn.Sequential(nn.Embedding(3, 4), *between(nn.ReLU())), "got Embedding at '0'"),
    "tanh": (lambda: between(nn.Tanh()), "cannot be held by Tanh; activations that can: relu.*; kw.with_spline"),
    "slope of one": (lambda: between(nn.LeakyReLU(1.0)), "must not be ±1"),
    "wrong input width": (lambda: chain(5, 9, 1), r"first Linear takes 5 features, got X of shape \(300, 4\)"),
    "two dtypes": (lambda: nn.Sequential(kw.Scaling([0.0] * 4, [1.0] * 4), chain(4, 9, 1).double()),
                   r"of one dtype, got torch.float32 and torch.float64; call module.double\(\)"),
    "wide and deep": (lambda: WideAndDeep(), "at least two Linear .* got 1 in WideAndDeep along the skip.*with_spline"),
    "frozen weight": (lambda: frozen("weight"), "'2' is frozen"),
    "frozen bias": (lambda: frozen("bias"), "'2' is frozen"),
    "no bias": (lambda: nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 1, bias=False)), "'2' must have a bias"),
    "weight norm": (lambda: parametrised(nn.utils.parametrizations.weight_norm), "'2' is parametrised"),
    "spectral norm": (lambda: parametrised(nn.utils.parametrizations.spectral_norm), "'2' is parametrised"),
    "old weight norm": (lambda: parametrised(nn.utils.weight_norm), "'2' is parametrised"),
    "gap": (lambda: between(nn.ReLU(), nn.Linear(8, 9), nn.ReLU()), "'2' takes 8 features and .* before it makes 9"),
    "activation at the end": (lambda: nn.Sequential(*chain(4, 9, 1), nn.ReLU()), "end with a Linear"),
    "activation twice": (lambda: between(nn.SiLU(), nn.SiLU()), "take turns"),
    "no activation in between": (lambda: between(nn.Linear(9, 9), nn.ReLU()), "take turns .* got Linear → Linear → R"),
    "mixed activations": (lambda: between(nn.ReLU(), nn.Linear(9, 9), nn.SiLU()),
                          r"must be alike, got ReLU\(\), SiLU\(\)"),
    "mixed slopes": (lambda: between(nn.LeakyReLU(0.1), nn.Linear(9, 9), nn.LeakyReLU(0.2)),
                     r"must be alike, got LeakyReLU\(negative_slope=0.1\), LeakyReLU\(negative_slope=0.2\)"),
    "mixed learned slopes": (lambda: between(nn.PReLU(), nn.Linear(9, 9), nn.PReLU(init=0.5)),
                             r"must be alike, got PReLU.* of slope 0.25, PReLU.* of slope 0.5"),
    "tanh in forward": (lambda: Functional(4, 20, 1, act=torch.tanh),
                        "take turns .* got Linear → Linear and tanh in its forward; kw.with_spline"),
    "nothing in forward": (lambda: Functional(4, 20, 1, act=lambda x: x),
                           "take turns .* got Linear → Linear; kw.with_spline"),
    "something added": (lambda: Functional(4, 20, 8, 1, last=lambda out: out + 1),
                        "must run its Linear layers .* off by 1 on the data; pass the part of it"),
    "something small added": (lambda: Functional(4, 20, 8, 1, last=lambda out: out + 0.05), "off by 0.05"),
    "a tuple": (lambda: Functional(4, 20, 1, last=lambda out: (out, out)), r"shape \(300, 1\) .* got tuple"),
    "a wider output": (lambda: Functional(4, 20, 1, last=lambda out: out.expand(-1, 2)), r"got shape \(300, 2\)"),
    "one number": (lambda: Functional(4, 20, 1, last=torch.mean), r"got shape \(\)"),
    "narrow second layer": (lambda: chain(4, 20, 1, 1), "hidden layer 1 needs a width of at least 2 .* got 1"),
    "narrow third layer": (lambda: chain(4, 20, 20, 1, 1), "hidden layer 2 needs a width of at least 2 .* got 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("training", [True, False])
def test_modules_that_cannot_be_set_are_refused_and_left_alone(name, training):
    make, message = MODULES[name]
    refuse(make().train(training), *data(), message)


def test_a_module_that_fails_to_run_is_left_alone():
    X, y = data()
    net = Functional(4, 20, 1, last=lambda out: out @ torch.ones(7))
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(NetworkError, match="it failed with RuntimeError"):
        init_(net, X, y)
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert net.training


def spoilt(values, value):
    values = values.copy()
    values[3, 0] = value
    return values


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda X, y: (X, y[:-1]), {}, r"y must have .* here \(300, 1\), got \(299, 1\)"),
        (lambda X, y: (X, np.hstack([y, y])), {}, r"here \(300, 1\), got \(300, 2\)"),
        (lambda X, y: (X, y[:, :, None]), {}, r"here \(300, 1\), got \(300, 1, 1\)"),
        (lambda X, y: (X, 3.0), {}, r"here \(300, 1\), got \(\)"),
        (lambda X, y: (X[:, 0], y), {}, r"got X of shape \(300,\)"),
        (lambda X, y: (X[:1], y[:1]), {}, "at least 2 rows, got 1"),
        (lambda X, y: (X[:0], y[:0]), {}, "at least 2 rows, got 0"),
        (lambda X, y: (spoilt(X, np.nan), y), {}, "X must be finite"),
        (lambda X, y: (spoilt(X, np.inf), y), {}, "X must be finite"),
        (lambda X, y: (X, spoilt(y, np.nan)), {}, "y must be finite"),
        (
            lambda X, y: (X, y),
            {"task": "ranking"},
            "task must be one of 'auto', 'regression', 'classification', got 'ranking'",
        ),
        (lambda X, y: (X, y), {"fill": "ones"}, "fill must be one of hinge, random, zero, got 'ones'"),
        (lambda X, y: (X, y), {"max_terms": 1}, "max_terms must be at least 2, got 1"),
        (lambda X, y: (X, y), {"ridge": -1.0}, "ridge must be 0 or positive, got -1.0"),
        (lambda X, y: (X, y), {"threshold": 1.0}, "threshold must be .* less than 1, got 1.0"),
        (lambda X, y: (X, y), {"penalty": -2}, "penalty must be at least -1, got -2"),
        (lambda X, y: (X, y), {"sample_weight": np.ones(299)}, r"positive, one per row \(300\), got shape \(299,\)"),
        (lambda X, y: (X, y), {"sample_weight": np.zeros(300)}, "sample_weight must be positive"),
        (lambda X, y: (X, y), {"sample_weight": np.full(300, np.nan)}, "sample_weight must be positive"),
    ],
)
def test_data_and_options_that_make_no_sense_are_refused(change, options, message):
    refuse(chain(4, 20, 6, 1), *change(*data()), message, **options)


def test_a_first_layer_that_cannot_hold_a_line_is_refused():
    X, _ = data()
    refuse(chain(4, 1, 2, 1), X, 3 * X[:, 0], "hidden layers of \\(1, 2\\) units cannot hold any term")


@pytest.mark.parametrize("far", [0.0, 1e8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_network_with_scaling_is_set_between_its_ends(far, dtype, task):
    rng = np.random.default_rng(0)
    X = (far + rng.normal(size=(400, 3))) * [1.0, 1e4, 1e-4]
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    y = 1e3 * (np.abs(z[:, 0]) + np.maximum(z[:, 1], 0)) + 5e3
    labels = (y > np.median(y)).astype(int)
    model = kw.MarsRegressor(max_terms=5).fit(X, y) if task == "regression" else kw.MarsClassifier().fit(X, labels)
    net = kw.reshape(kw.to_network(model, dtype=dtype), (32, 16), X=X, random_state=0)
    before = {name: value.clone() for name, value in net.state_dict().items() if name.endswith(("centre", "scale"))}
    assert len(before) == (4 if task == "regression" else 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what the layers see is scaled
        report = kw.init_(net, X, y if task == "regression" else labels, task=task, random_state=1)
    assert all(torch.equal(net.state_dict()[name], value) for name, value in before.items())
    with torch.no_grad():
        out = net(torch.tensor(X)).double().numpy()[:, 0]
    size = 1e4 if task == "regression" else np.abs(report.spline(X)).max()
    # The spline takes raw rows: its lines and its intercept cancel, and round by as many stds as they lie away.
    limit = max(1e-9 if dtype == torch.float64 else 1e-5, 1e-15 * far)
    assert np.abs(out - report.spline(X)).max() <= limit * size


def test_a_scaling_inside_is_refused():
    X = np.random.default_rng(0).normal(size=(50, 2))
    middle = nn.Sequential(nn.Linear(2, 4), kw.Scaling(np.zeros(4), np.ones(4)), nn.ReLU(), nn.Linear(4, 1))
    with pytest.raises(NetworkError, match=r"a Scaling must stand at the ends.*got one at '1'; leave it out"):
        kw.init_(middle, X, X[:, 0])


def test_a_head_with_scaling_is_refused_with_what_to_do():
    X = np.random.default_rng(0).normal(size=(50, 2))
    head = kw.to_network(kw.MarsRegressor().fit(X, np.abs(X[:, 0])))
    with pytest.raises(NetworkError, match=r"a head must have no Scaling at its ends.*fold it first, kw.fold"):
        kw.init_head_(nn.Sequential(head), "0", (X, X[:, 0]))
    kw.init_head_(nn.Sequential(kw.fold(head)), "0", (X.astype(np.float32), X[:, 0]))


@pytest.mark.parametrize("widths", [(15, 15), (40, 15)])
def test_layers_too_narrow_for_two_units_an_output_hold_a_spline_everywhere_alike(widths):
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = X / 16
    rows, labels = torch.tensor(X).float(), torch.tensor(y)
    module, model = chain(64, *widths, 10), nn.Sequential(nn.Identity(), nn.Linear(64, 10))
    assert init_(module, rows, labels, random_state=0).max_difference < 1e-3
    assert kw.init_head_(model, "1", (rows, labels), hidden=widths, random_state=0).max_difference < 1e-3
    estimator = kw.SplineNetClassifier(n_members=1, hidden=widths, epochs=0, random_state=0).fit(X, y)
    shares = [(net(rows).argmax(dim=1) == labels).float().mean() for net in (module, model, estimator.network_)]
    assert min(shares) > 0.8


class Joined(nn.Module):
    """Hands the rows on beside what the first layer makes of them."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 8), nn.Linear(12, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.third(torch.relu(self.second(torch.cat([x, torch.relu(self.first(x))], dim=1))))


def test_a_forward_that_joins_ways_is_refused_by_what_joins_them():
    refuse(Joined(), *data(), r"one way through the module.* got cat\(\) of several in its forward; kw.with_spline")


class Wrong(nn.Module):
    """Adds a thousandth of the first output's size to the second, which is that small."""

    def __init__(self):
        super().__init__()
        self.inner = chain(4, 40, 2)

    def forward(self, x):
        if bool(x.isnan().any()):  # torch.fx cannot read this
            return x
        return self.inner(x) + torch.tensor([0.0, 5.0])


def test_each_output_is_checked_by_its_own_size():
    X, y = data()
    y = np.column_stack([y[:, 0] + 1e4, y[:, 0]])
    net = Wrong().double()
    with pytest.raises(NetworkError, match="change nothing else, got values off by 5"):
        init_(net, X, y, random_state=0)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = chain(4, 40, 1)

    def forward(self, x, mask):
        return self.inner(x) * mask


def test_a_forward_that_fails_on_rows_is_refused():
    refuse(TwoInputs(), *data(), r"must take rows of shape \(300, 4\) in one tensor; it failed with TypeError: .*mask")


def test_dropout_asks_for_a_larger_ridge():
    X, y = data()
    nets = [nn.Sequential(*chain(4, 40), nn.ReLU(), nn.Dropout(p), nn.Linear(40, 1)) for p in (0.0, 0.1, 0.1)]
    splines = [
        init_(net, X, y, ridge=ridge, random_state=0).spline
        for net, ridge in zip(nets, (1e-2, None, 1e-3), strict=True)
    ]
    np.testing.assert_array_equal(splines[0].coef, splines[1].coef)
    assert not np.array_equal(splines[1].coef, splines[2].coef)


def test_the_line_to_add_works_for_columns_of_many_categories():
    rng = np.random.default_rng(0)
    city = rng.integers(0, 60, 1200)
    X = pd.DataFrame({"x": 1e6 + 1e5 * rng.normal(size=1200), "city": [f"c{k:02d}" for k in city]})
    y = X["x"].to_numpy() / 1e5 + city / 10 + rng.normal(size=1200) / 10
    module = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
    with pytest.raises(NetworkError, match=r"nn\.Sequential\(kw\.Scaling\.of\(X, y\), module\)"):
        kw.init_(module, X, y)
    module = nn.Sequential(kw.Scaling.of(X, y), module)
    report = kw.init_(module, X, y, random_state=0)
    assert report.mean_difference < 1e-4


@pytest.mark.parametrize("y", [np.float16(0.5), np.ones(5)], ids=["a number", "too few"])
def test_responses_of_a_frame_that_do_not_fit_are_refused(y):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(12, 3)), columns=list("abc"))
    with pytest.raises(NetworkError, match="y must have one row per row of X"):
        init_(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)), X, y)
