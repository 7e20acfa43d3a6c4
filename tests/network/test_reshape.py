import copy
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import knotwork as kw
from knotwork import Hinge, Linear, Spline, deepen, reshape, widen
from knotwork.errors import NetworkError
from knotwork.network.chain import read_chain
from tests.network.compile.test_convert import DOUBLE, SINGLE, cases, run

# Layers are found by their places in a folded network; tests of the scaling say fold=False.
to_network = partial(kw.to_network, fold=True)

CARRYING = ["relu", "leaky_relu", nn.LeakyReLU(-0.4), nn.LeakyReLU(2.0), "prelu", "silu", "gelu", "softplus"]
STUCK = [("elu", None), ("relu6", (-10, 10)), ("hardtanh", (-10, 10))]
SOFTPLUS_LINE = np.exp(-20.0)


def size_of_parts(net, X):
    """Size of what a network with one hidden layer adds up: |out|·(|weight|·|x| + |bias|) + |output bias|.

    With scaling, x has its centre taken off, and the centre of the responses comes on top.
    """
    x = torch.tensor(X, dtype=torch.float64)
    for layer in net:
        if isinstance(layer, kw.Scaling) and layer is net[0]:
            x = (x - layer.centre) / layer.scale
        elif isinstance(layer, kw.Scaling):
            x = (x + layer.centre.abs()) / layer.scale
        elif isinstance(layer, nn.Linear):
            x = x.abs() @ layer.weight.detach().double().abs().T + layer.bias.detach().double().abs()
    return x.numpy()


def states_equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


def hidden_layers(net):
    return [m for m in net if isinstance(m, nn.Linear)][:-1]


def scalings(net):
    return [m for m in net if isinstance(m, kw.Scaling)]


def simple():
    """A network of three units and one output."""
    return to_network(Spline((Hinge(0, 1.0, 1), Linear(1)), [2.0], [[3.0], [0.5]], ("x", "z")), dtype=torch.float64)


@st.composite
def growths(draw):
    """A network, wider and deeper shapes for it, how to fill them, and points."""
    case = draw(cases(terms=20, features=8, outputs=3))
    activation = draw(st.sampled_from(CARRYING))
    fold = draw(st.booleans())
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    net = to_network(case.spline, activation=activation, fold=fold, dtype=dtype)
    minimum = (hidden_layers(net)[-1].out_features, *(2 * case.spline.intercept.size,) * draw(st.integers(0, 3)))
    extra = st.one_of(st.just(0), st.integers(1, 40))
    widths = tuple(width + draw(extra) for width in minimum)
    fill = draw(st.sampled_from(["hinge", "random", "zero", None]))
    X = case.inside if fill == "hinge" or draw(st.booleans()) else None
    return case, net, widths, fill, X


@settings(max_examples=200)
@given(growths())
def test_growth_leaves_the_function_the_dtype_and_the_old_network_alone(growth):
    case, net, widths, fill, X = growth
    before = copy.deepcopy(net.state_dict())
    grown = reshape(net, widths, fill=fill, X=X, random_state=0)
    assert states_equal(net.state_dict(), before)
    linears = [m for m in grown if isinstance(m, nn.Linear)]
    assert [m.out_features for m in linears] == [*widths, case.spline.intercept.size]
    assert all(p.requires_grad for p in grown.parameters())
    for new, old in zip(scalings(grown), scalings(net), strict=True):
        np.testing.assert_allclose(new.centre, old.centre, rtol=1e-15)
        np.testing.assert_allclose(new.scale, old.scale, rtol=1e-15)
    assert {p.dtype for p in grown.parameters()} == {p.dtype for p in net.parameters()}
    assert {type(m) for m in grown} == {type(m) for m in net}

    added = len(widths) - 1
    curve = any(isinstance(m, nn.Softplus) for m in net)
    scale = read_chain(net).coordinates.y_scale
    line = curve * added * SOFTPLUS_LINE * scale
    assert grown.conversion.bound == pytest.approx(net.conversion.bound + line.max(), rel=1e-12)
    precision = DOUBLE if next(net.parameters()).dtype == torch.float64 else 4 * SINGLE
    points = case.X if precision == DOUBLE else case.X.astype(np.float32).astype(np.float64)
    # Softplus carries a value as the difference of two numbers that are not small.
    rounding = precision * (size_of_parts(net, points) + curve * added * scale)
    error = np.abs(run(grown, points) - run(net, points))
    assert (error <= line + rounding).all()


@pytest.mark.parametrize("activation", CARRYING)
@pytest.mark.parametrize("widths", [(256, 128, 64), (64, 2), (64, 32, 16, 8), (20, 40, 80)])
def test_a_network_may_narrow_and_still_be_the_spline(activation, widths):
    X, y = kw.datasets.load_wine_quality("red")
    matrix = np.asarray(X, dtype=np.float64)
    model = kw.MarsRegressor(max_terms=10, extrapolate="linear").fit(matrix, y)
    net = to_network(model, activation=activation, tolerance=1e-4, dtype=torch.float64)
    grown = reshape(net, widths, X=matrix, random_state=0)
    assert tuple(layer.out_features for layer in hidden_layers(grown)) == widths
    size = np.abs(model.spline_.intercept) + np.abs(model.spline_.basis(matrix)) @ np.abs(model.spline_.coef)
    error = np.abs(run(grown, matrix)[:, 0] - model.predict(matrix))
    assert (error <= grown.conversion.bound + 100 * DOUBLE * size[:, 0]).all()


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("fill", ["hinge", "random"])
def test_many_outputs_go_through_narrow_layers_as_relu_units(layers, fill):
    rng = np.random.default_rng(0)
    terms = [Hinge(f, float(t), s) for f, t in enumerate(rng.normal(size=4)) for s in (-1, 1)]
    spline = Spline(tuple(terms), rng.normal(size=30), rng.normal(size=(8, 30)), tuple("abcd"))
    X = rng.normal(size=(200, 4)) * 3
    widths = (10, *(12,) * layers)  # thirty outputs would take sixty units
    net = reshape(to_network(spline, dtype=torch.float64), widths, fill=fill, X=X, random_state=0)
    assert [layer.out_features for layer in hidden_layers(net)] == list(widths)
    np.testing.assert_allclose(run(net, X), spline(X), rtol=1e-12, atol=1e-12)
    with pytest.raises(NetworkError, match="hidden layer 1 needs a width of at least 8 "):
        reshape(to_network(spline), (10, 7))
    with pytest.raises(NetworkError, match="hidden layer 1 needs a width of at least 60"):
        reshape(to_network(spline, activation="leaky_relu"), (16, 16))


def test_widen_takes_one_width_or_one_for_each_layer():
    net = reshape(simple(), (5, 4), random_state=0)
    x = np.random.default_rng(0).normal(size=(50, 2)) * 3
    for width, widths in ((9, (9, 9)), (np.int64(9), (9, 9)), ((5, 7), (5, 7)), ([8, 4], (8, 4))):
        wider = widen(net, width, random_state=1)
        assert tuple(layer.out_features for layer in hidden_layers(wider)) == widths
        np.testing.assert_allclose(run(wider, x), run(net, x), rtol=1e-13)
    with pytest.raises(NetworkError, match=r"one per hidden layer, here 2, got 3; reshape changes the depth"):
        widen(net, (9, 9, 9))


def test_deepen_adds_layers_as_wide_as_the_last():
    x = np.random.default_rng(0).normal(size=(50, 2)) * 3
    for layers in (1, 3):
        deeper = deepen(simple(), layers, random_state=0)
        assert [layer.out_features for layer in hidden_layers(deeper)] == [3] * (layers + 1)
        np.testing.assert_allclose(run(deeper, x), run(simple(), x), rtol=1e-13)
    narrow = to_network(Spline((Hinge(0, 1.0, 1),), [2.0, 1.0], [[3.0, 1.0]], ("x",)))
    assert [layer.out_features for layer in hidden_layers(deepen(narrow, 1))] == [1, 4]
    with pytest.raises(NetworkError, match="at least one layer, got 0"):
        deepen(simple(), 0)


def test_networks_that_were_grown_or_trained_grow_again():
    net = reshape(simple(), (6, 5), random_state=0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    x = np.random.default_rng(0).normal(size=(50, 2)) * 3
    grown = reshape(net, (10, 12, 7), X=x, random_state=1)
    np.testing.assert_allclose(run(grown, x), run(net, x), rtol=1e-12)
    dropping = nn.Sequential(net[0], net[1], nn.Dropout(), net[2], net[3], nn.Identity(), net[4])
    np.testing.assert_allclose(run(reshape(dropping, (10, 12)), x), run(net, x), rtol=1e-12)


def test_slopes_that_differ_between_layers_are_kept():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 5), nn.PReLU(init=0.3), nn.Linear(5, 4), nn.PReLU(init=-0.2), nn.Linear(4, 2))
    net = net.double()
    x = np.random.default_rng(0).normal(size=(50, 2))
    grown = reshape(net, (7, 6, 5), random_state=0)
    assert [round(m.weight.item(), 6) for m in grown if isinstance(m, nn.PReLU)] == [0.3, -0.2, -0.2]
    assert len({id(m.weight) for m in (*net, *grown) if isinstance(m, nn.PReLU)}) == 5
    np.testing.assert_allclose(run(grown, x), run(net, x), rtol=1e-12, atol=1e-15)


def test_the_scaling_stays_as_it_was_and_a_frozen_layer_joins_the_next():
    spline = Spline((Hinge(0, 10.0, 1), Hinge(0, 20.0, -1)), [2.0], [[3.0], [1.0]], ("x",))
    net = to_network(spline, fold=False)
    grown = reshape(net, (4, 4))
    assert [type(m) for m in grown[::6]] == [kw.Scaling, kw.Scaling]
    assert states_equal(grown[0].state_dict(), net[0].state_dict())
    assert [p.requires_grad for p in grown.parameters()] == [True] * 6
    front = nn.Linear(1, 1).requires_grad_(False)
    frozen = reshape(nn.Sequential(front, *to_network(spline)).double(), (4, 4))
    assert [p.requires_grad for p in frozen.parameters()] == [True] * 6
    assert [type(m) for m in frozen] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    x = np.linspace(-50, 50, 101)[:, None]
    with torch.no_grad():
        inner = front(torch.tensor(x)).numpy()
    np.testing.assert_allclose(run(frozen, x)[:, 0], spline(inner), rtol=1e-13, atol=1e-13)


def test_growth_is_reproducible_and_leaves_the_generators_of_torch_alone():
    X = np.random.default_rng(0).normal(size=(50, 2))
    before = torch.get_rng_state()
    for fill in ("hinge", "random"):
        states = [reshape(simple(), (9, 9), fill=fill, X=X, random_state=s).state_dict() for s in (0, 0, 1)]
        assert states_equal(states[0], states[1])
        assert not states_equal(states[0], states[2])
    assert torch.equal(torch.get_rng_state(), before)


def test_new_units_do_not_depend_on_the_order_or_the_copies_of_the_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 2))
    again = np.concatenate([X, X[:3000]])[rng.permutation(9000)]
    for fill in ("hinge", "random"):
        one, other = (reshape(simple(), (9, 9), fill=fill, X=rows, random_state=0) for rows in (X, again))
        assert states_equal(one.state_dict(), other.state_dict())


@pytest.mark.parametrize(("activation", "box"), STUCK)
def test_activations_that_cannot_carry_are_widened_but_not_deepened(activation, box):
    spline = Spline((Hinge(0, 1.0, 1), Linear(1)), [2.0], [[3.0], [0.5]], ("x", "z"))
    net = to_network(spline, activation=activation, box=box, tolerance=1e-3, dtype=torch.float64)
    X = np.random.default_rng(0).uniform(-10, 10, size=(100, 2))
    for fill in ("hinge", "random", "zero"):
        wider = widen(net, 20, fill=fill, X=X, random_state=0)
        np.testing.assert_allclose(run(wider, X), run(net, X), rtol=1e-13)
        assert wider.conversion.bound == net.conversion.bound
        assert wider.conversion.box is net.conversion.box
    name = type(net[1]).__name__
    for grow in (lambda: deepen(net, 1), lambda: reshape(net, (20, 20))):
        with pytest.raises(NetworkError, match=rf"{name} cannot carry a value.*keep the depth, or use relu"):
            grow()


@pytest.mark.parametrize(
    ("grow", "message"),
    [
        (lambda: reshape(simple(), (2,)), "hidden layer 0 needs a width of at least 3 to hold the function, got 2"),
        (lambda: reshape(simple(), (8, 1)), "hidden layer 1 needs a width of at least 2 .* got 1"),
        (lambda: reshape(simple(), (8, 8, 1)), "hidden layer 2 needs a width of at least 2 .* got 1"),
        (lambda: reshape(reshape(simple(), (8, 8)), (8, 7)), "hidden layer 1 needs a width of at least 8 .* got 7"),
        (lambda: widen(simple(), 2), "hidden layer 0 needs a width of at least 3"),
        (lambda: reshape(simple(), ()), "the network has 1 hidden layers, got 0 widths"),
        (lambda: reshape(reshape(simple(), (8, 8)), (8,)), "the network has 2 hidden layers, got 1 widths"),
        (lambda: reshape(simple(), (8,), fill="ones"), "fill must be one of hinge, random, zero, got 'ones'"),
        (lambda: reshape(simple(), (8,), fill="hinge"), "takes its knots from data; pass X"),
        (lambda: reshape(simple(), (8,), X=np.zeros((5, 3))), r"shape \(N, 2\), got \(5, 3\)"),
        (lambda: reshape(simple(), (8,), X=np.zeros(5)), r"shape \(N, 2\), got \(5,\)"),
        (lambda: reshape(simple(), (8,), X=np.zeros((0, 2))), r"shape \(N, 2\), got \(0, 2\)"),
        (lambda: reshape(simple(), (8,), X=[[1.0, np.nan]]), "X must be finite"),
        (lambda: reshape(simple(), (8,), X=[[1.0, np.inf]]), "X must be finite"),
        (lambda: reshape(nn.Linear(2, 1), (8,)), "must be an nn.Sequential of Linear and activation, got Linear"),
        (lambda: reshape(kw.MarsRegressor(), (8,)), r"got MarsRegressor; kw.to_network\(model\) makes one"),
        (lambda: reshape(nn.Sequential(nn.ReLU(), nn.Linear(2, 1)), (8,)), "must alternate Linear and activation"),
        (lambda: reshape(nn.Sequential(), (8,)), "end with a Linear, got no layers"),
        (lambda: reshape(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), (8,)), "end with a Linear, got Linear → ReLU"),
        (lambda: reshape(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), (8, 8)), "be held by Tanh"),
    ],
)
def test_says_what_is_wrong(grow, message):
    with pytest.raises(NetworkError, match=message):
        grow()


def test_widths_must_be_whole():
    with pytest.raises(TypeError):
        reshape(simple(), (8.5,))


@pytest.fixture(scope="module")
def abalone():
    """Encoded rows, standardised rows, standardised ages."""
    table, y = kw.datasets.load_abalone()
    encoded = np.asarray(kw.MarsRegressor(max_terms=2).fit(table, y).encoder_.encode(table), dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    return encoded, (encoded - encoded.mean(axis=0)) / encoded.std(axis=0), (y - y.mean()) / y.std()


def train(net, X, y, steps=200):
    """Run plain AdamW; return which entries of the parameters ever had a gradient."""
    x, target = (torch.tensor(v, dtype=next(net.parameters()).dtype) for v in (X, y))
    trained = {name: p for name, p in net.named_parameters() if p.requires_grad}
    optimiser = torch.optim.AdamW(trained.values(), lr=1e-3, weight_decay=0.0)
    generator = torch.Generator().manual_seed(0)
    reached = {name: torch.zeros_like(p, dtype=torch.bool) for name, p in trained.items()}
    for _ in range(steps):
        batch = torch.randint(len(x), (256,), generator=generator)
        optimiser.zero_grad()
        (net(x[batch])[:, 0] - target[batch]).square().mean().backward()
        for name, p in trained.items():
            reached[name] |= p.grad != 0
        optimiser.step()
    return reached


def added_units(net, grown, values):
    """For each hidden layer: the values (by name of parameter) into its added units, and out of them."""
    names = [name for name, m in grown.named_children() if isinstance(m, nn.Linear)]
    old = [layer.out_features for layer in hidden_layers(net)]
    outputs = [m for m in net if isinstance(m, nn.Linear)][-1].out_features
    old += [2 * outputs] * (len(names) - 1 - len(old))
    for first, second, unit in zip(names, names[1:], old, strict=False):
        into = torch.cat([values[f"{first}.weight"], values[f"{first}.bias"][:, None]], dim=1)
        yield into[unit:], values[f"{second}.weight"].T[unit:]


@pytest.mark.parametrize(("fill", "with_rows"), [("random", False), ("random", True), ("hinge", True)])
@pytest.mark.parametrize(
    ("widths", "fold"), [((64, 8), True), ((128, 64, 32), True), ((64,), False), ((48, 24), False)]
)
def test_every_added_unit_trains(abalone, widths, fold, fill, with_rows):
    _, X, y = abalone
    net = to_network(kw.MarsRegressor().fit(X, y), fold=fold)
    grown = reshape(net, widths, fill=fill, X=X if with_rows else None, random_state=0)
    start = copy.deepcopy(grown.state_dict())
    reached = train(grown, X, y)
    moved = {name: value != start[name] for name, value in grown.state_dict().items()}
    for changed in (reached, moved):
        for into, out in added_units(net, grown, changed):
            assert len(into) > 0
            assert into.any(dim=1).all()
            assert out.any(dim=1).all()


def test_units_filled_with_zeros_never_train(abalone):
    _, X, y = abalone
    net = to_network(kw.MarsRegressor().fit(X, y))
    grown = reshape(net, (64, 32, 16), fill="zero")
    start = copy.deepcopy(grown.state_dict())
    reached = train(grown, X, y)
    assert not states_equal(grown.state_dict(), start)
    for values in (reached, grown.state_dict()):
        for into, out in added_units(net, grown, values):
            assert not into.any()
            assert not out.any()


def activity(net, X, layer=0):
    """Return the share of the rows on which each unit of a hidden layer is active."""
    with torch.no_grad():
        x = torch.tensor(X, dtype=next(net.parameters()).dtype)
        return (net[: 2 * layer + 2](x) > 0).double().mean(dim=0).numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("fill", ["hinge", "random"])
def test_units_added_on_raw_features_bend_inside_the_data(abalone, fill, dtype):
    X, _, y = abalone
    X = X * 10.0 ** np.arange(-4, len(X.T) - 4)
    net = to_network(kw.MarsRegressor().fit(X, y), dtype=dtype)
    for seed in range(3):
        grown = reshape(net, (256, 64), fill=fill, X=X, random_state=seed)
        for layer, old in enumerate((net[0].out_features, 2)):
            share = activity(grown, X, layer)[old:]
            assert ((share > 0) & (share < 1)).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.sampled_from(["hinge", "random"]))
def test_units_bend_inside_data_of_few_values(seed, added, fill):
    rng = np.random.default_rng(seed)
    X = np.stack(
        [
            np.full(200, 0.1),
            0.1 * (rng.random(200) < rng.uniform(0.005, 0.995)) + 0.7,
            rng.integers(0, 3, 200) * 1e5 / 3,
            np.where(rng.random(200) < 0.97, 0.0, rng.normal(size=200)),
        ],
        axis=1,
    )[:, rng.permutation(4)[: rng.integers(2, 5)]]  # fmt: skip
    spline = Spline((Hinge(0, X[0, 0], 1),), [1.0], [[1.0]], tuple("abcd"[: X.shape[1]]))
    grown = reshape(to_network(spline, dtype=torch.float64), (1 + added,), fill=fill, X=X, random_state=seed)
    share = activity(grown, X)[1:]
    if (np.ptp(X, axis=0) > 0).any():
        assert ((share > 0) & (share < 1)).all()


@pytest.mark.parametrize("fill", ["hinge", "random"])
def test_units_behind_a_unit_that_is_mostly_zero_bend_inside_the_data(fill):
    X = np.linspace(-5, 5, 200)[:, None]
    for knot in (-4.5, 0.0, 4.5):
        net = to_network(Spline((Hinge(0, knot, 1),), [0.0], [[1.0]], ("x",)), dtype=torch.float64)
        share = activity(reshape(net, (1, 30), fill=fill, X=X, random_state=0), X, 1)[2:]
        assert ((share > 0) & (share < 1)).all()


@pytest.mark.parametrize("fill", ["hinge", "random"])
def test_features_that_vary_by_rounding_only_are_not_read(fill):
    rng = np.random.default_rng(0)
    X = np.stack([1 + 1e-15 * rng.normal(size=50), rng.normal(size=50)], axis=1)
    grown = reshape(simple(), (20,), fill=fill, X=X, random_state=0)
    assert (grown[0].weight[3:, 0] == 0).all()
    assert (grown[0].weight[3:, 1] != 0).all()


@pytest.mark.parametrize("fill", ["hinge", "random"])
def test_units_added_on_one_row_are_active_on_it(fill):
    X = np.array([[3.0, -200.0]])
    grown = reshape(simple(), (20, 10), fill=fill, X=X, random_state=0)
    assert (activity(grown, X)[3:] == 1).all()
    assert (activity(grown, X, 1)[2:] == 1).all()


def test_features_of_any_size_are_filled():
    X = np.random.default_rng(0).normal(size=(50, 2)) * [1e200, 1e-200]
    grown = reshape(simple(), (20,), X=X, random_state=0)
    share = activity(grown, X)[3:]
    assert ((share > 0) & (share < 1)).all()


@pytest.mark.parametrize("fill", ["hinge", "random"])
@pytest.mark.parametrize("widths", [(40, 30), (40, 30, 20)])
def test_new_units_behind_the_first_layer_read_new_units(abalone, fill, widths):
    _, X, y = abalone
    net = to_network(kw.MarsRegressor().fit(X, y), dtype=torch.float64)
    grown = reshape(net, widths, fill=fill, X=X, random_state=0)
    layers = [module for module in grown if isinstance(module, nn.Linear)]
    old = net[0].out_features
    for layer in layers[1:-1]:
        # The outputs so far are carried by two units; what was there before them is not read by new ones.
        assert not layer.weight[2:, :old].any()
        assert layer.weight[2:, old:].any(dim=1).all()
        old = 2


def test_new_units_read_all_where_few_are_new(abalone):
    _, X, y = abalone
    net = to_network(kw.MarsRegressor().fit(X, y), dtype=torch.float64)
    grown = reshape(net, (net[0].out_features + 3, 20), fill="random", X=X, random_state=0)
    assert grown[2].weight[2:, : net[0].out_features].any(dim=1).all()


@pytest.mark.parametrize("layers", [
    [nn.Linear(2, 1)],
    [nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)],
    [nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3), nn.SiLU(), nn.Linear(3, 1)],
    [nn.Flatten(), nn.Linear(2, 3), nn.AlphaDropout(0.1), nn.Sequential(nn.Sigmoid(), nn.Identity()), nn.Linear(3, 1)],
    [nn.Linear(2, 4), nn.Linear(4, 3, bias=False), nn.PReLU(), nn.Linear(3, 2), nn.Dropout(), nn.Linear(2, 1)],
])  # fmt: skip
def test_any_network_of_known_layers_grows_wider(layers):
    net = nn.Sequential(*layers).double().eval()
    rows = np.random.default_rng(0).normal(size=(30, 2))
    hidden = sum(not isinstance(m, (nn.Linear, nn.Flatten, nn.Identity, nn.Dropout, nn.AlphaDropout, nn.Sequential))
                 for m in net.modules())  # fmt: skip
    grown = reshape(net, (9,) * max(hidden, 1), X=rows, random_state=0)
    np.testing.assert_allclose(run(grown, rows), run(net, rows), rtol=1e-12)
    assert [m.out_features for m in grown if isinstance(m, nn.Linear)] == [9] * max(hidden, 1) + [1]


def hinges_of(layer):
    """Read units of single features: the feature of each, its knot and its direction."""
    weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
    assert (np.count_nonzero(weight, axis=1) == 1).all()
    feature = np.argmax(weight != 0, axis=1)
    slope = weight[np.arange(len(weight)), feature]
    return feature, -bias / slope, np.sign(slope)


def test_hinges_are_of_single_features_in_turn_at_quantiles_in_both_directions():
    rng = np.random.default_rng(0)
    X = np.stack([rng.normal(size=100), 1e4 * rng.lognormal(size=100), rng.uniform(size=100) - 50], axis=1)
    net = to_network(Spline((Hinge(0, 1.0, 1),), [0.0], [[1.0]], tuple("abc")), dtype=torch.float64)
    for grown in (reshape(net, (25, 6), X=X, random_state=0), widen(net, 25, fill="hinge", X=X, random_state=1)):
        new = nn.Linear(3, 24).double()
        new.weight, new.bias = nn.Parameter(grown[0].weight[1:]), nn.Parameter(grown[0].bias[1:])
        feature, knot, direction = hinges_of(new)
        for f in range(3):
            own = np.flatnonzero(feature == f)
            assert own.size == 8
            assert abs(direction[own].sum()) <= 2
            # Of eight knots, one lies in each eighth of the rows.
            ranks = (X[:, f] < np.sort(knot[own])[:, None]).mean(axis=1)
            np.testing.assert_array_less(np.arange(8) / 8, ranks + 0.01)
            np.testing.assert_array_less(ranks, np.arange(1, 9) / 8 + 0.01)


def test_random_units_read_several_features():
    X = np.random.default_rng(0).normal(size=(100, 3))
    net = to_network(Spline((Hinge(0, 1.0, 1),), [0.0], [[1.0]], tuple("abc")))
    for grown in (reshape(net, (25,), fill="random", X=X, random_state=0), reshape(net, (25,), random_state=0)):
        assert (np.count_nonzero(grown[0].weight.detach()[1:], axis=1) == 3).all()


def test_rows_may_be_a_frame_with_text():
    X, y = kw.datasets.load_abalone()
    net = kw.to_network(kw.MarsRegressor().fit(X, y))
    encoder = net.conversion.encoder
    by_frame, by_array = (kw.reshape(net, (64, 16), X=rows, random_state=0) for rows in (X, encoder.encode(X)))
    assert states_equal(by_frame.state_dict(), by_array.state_dict())
    # Without a sex that the model knows: its encoder counts, not these rows.
    some = X[X["Sex"] != "I"]
    assert kw.reshape(net, (64, 16), X=some)[0].centre.shape == (10,)
    assert kw.widen(kw.fold(net), 64, X=some)(torch.from_numpy(encoder.encode(X)).float()).shape == (len(X), 1)
