"""One reader: every public function that takes a network takes the same layers and refuses the others in one way."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import knotwork as kw
from knotwork.data.coordinates import Coordinates
from knotwork.errors import NetworkError
from knotwork.export import export_torch
from knotwork.network.chain import build, evaluate, read_chain
from knotwork.network.fold import folded
from knotwork.pwl.through import in_coordinates

ROWS = np.random.default_rng(0).normal(size=(40, 3))
y = ROWS[:, :1] ** 2


def saved(net, folder):
    kw.save(net, folder / "net")
    return kw.load(folder / "net")


def void(_):
    """Drop what is no network."""


# Each runs a function on a network and returns one that must compute the same, or None.
FUNCTIONS = {
    "widen": lambda net, folder: kw.widen(net, 9, X=ROWS, random_state=0),
    "reshape": lambda net, folder: kw.reshape(net, (9,) * len(read_chain(net).hidden), random_state=0),
    "from_network": lambda net, folder: void(kw.from_network(net, (-1, 1), samples=8)),
    "to_relu": lambda net, folder: void(kw.to_relu(net, (-1, 1), 0.5)),
    "explain": lambda net, folder: void(kw.explain(net, ROWS, y)),
    "save": saved,
    "export_onnx": lambda net, folder: void(kw.export_onnx(net, folder / "net.onnx")),
    "export_torch": lambda net, folder: void(export_torch(net, folder / "net.pt2")),
    "init_": lambda net, folder: void(kw.init_(net, ROWS, y, random_state=0)),
    "init_head_": lambda net, folder: void(kw.init_head_(nn.Sequential(net), "0", (ROWS, y))),
}
# Functions that put a network's layers behind each other only take chains as they are; these set modules in place.
IN_PLACE = {"init_", "init_head_"}
TRANSPARENT = {
    "nothing": [],
    "Dropout": [nn.Dropout(0.2)],
    "AlphaDropout": [nn.AlphaDropout(0.2)],
    "FeatureAlphaDropout": [nn.FeatureAlphaDropout(0.2)],
    "Dropout1d": [nn.Dropout1d(0.2)],
    "Identity": [nn.Identity()],
    "Flatten": [nn.Flatten()],
    "nested": [nn.Sequential(nn.Identity(), nn.Sequential(nn.Dropout(0.5)))],
}
# Activations that a function cannot do without losing what it promises, each with its own sentence.
REFUSED = {
    "from_network": {"Softplus", "SiLU", "GELU", "ELU", "Tanh", "Sigmoid"},
    "to_relu": {"LeakyReLU", "PReLU", "ELU", "ReLU6", "Hardtanh"},
    "init_": {"Tanh", "Sigmoid"},
    "init_head_": {"Tanh", "Sigmoid"},
}
ACTIVATIONS = [nn.ReLU(), nn.LeakyReLU(), nn.PReLU(), nn.Softplus(), nn.SiLU(), nn.GELU(), nn.ELU(), nn.ReLU6(),
               nn.Hardtanh(), nn.Tanh(), nn.Sigmoid()]  # fmt: skip
FOREIGN = [nn.BatchNorm1d(8), nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.Softmax(dim=1), nn.Mish(), nn.Hardswish(),
           nn.Bilinear(8, 8, 8), nn.Conv1d(8, 8, 1), nn.Embedding(8, 8), nn.MultiheadAttention(8, 2)]  # fmt: skip


def network(*between, activation=None):
    return nn.Sequential(nn.Linear(3, 8), *between, activation or nn.ReLU(), nn.Linear(8, 1)).double().eval()


def run(net):
    with torch.no_grad():
        return net(torch.from_numpy(ROWS)).numpy()


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("layers", TRANSPARENT)
def test_layers_that_do_nothing_in_use_pass_everywhere(function, layers, tmp_path):
    net = network(*copy.deepcopy(TRANSPARENT[layers]))
    before = run(net)
    made = FUNCTIONS[function](net, tmp_path)
    if made is not None:
        np.testing.assert_allclose(run(made.eval()), before, rtol=1e-12)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda m: type(m).__name__)
def test_activations_pass_everywhere_but_where_a_promise_would_break(function, activation, tmp_path):
    net = network(activation=copy.deepcopy(activation))
    if type(activation).__name__ in REFUSED.get(function, ()):
        before = copy.deepcopy(net.state_dict())
        with pytest.raises(NetworkError, match=type(activation).__name__):
            FUNCTIONS[function](net, tmp_path)
        assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    elif function == "export_onnx" and isinstance(activation, nn.GELU):
        kw.export_onnx(net.float(), tmp_path / "net.onnx")
    else:
        FUNCTIONS[function](net, tmp_path)


@pytest.mark.parametrize("layer", FOREIGN, ids=lambda m: type(m).__name__)
def test_other_layers_are_refused_everywhere_with_one_sentence(layer, tmp_path):
    sentences = set()
    for name, function in FUNCTIONS.items():
        net = network(copy.deepcopy(layer))
        if name == "init_":  # it takes more, and points to what takes anything
            if not isinstance(layer, nn.BatchNorm1d):
                with pytest.raises(NetworkError, match=f"got {type(layer).__name__} at '1'; kw.with_spline"):
                    function(net, tmp_path)
            continue
        with pytest.raises(NetworkError, match=f"Linear layers and activations.* got {type(layer).__name__} at") as e:
            function(net, tmp_path)
        sentences.add(str(e.value).replace("'0.1'", "'1'"))
        assert not list(tmp_path.iterdir()), name
    assert len(sentences) == 1


def test_a_flatten_that_mixes_rows_is_refused_everywhere(tmp_path):
    for function in FUNCTIONS.values():
        with pytest.raises(NetworkError, match="Flatten must keep the rows and flatten all else"):
            function(network(nn.Flatten(0)), tmp_path)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_slopes_of_single_units_pass_where_units_are_neither_added_nor_taken_apart(function, tmp_path):
    net = network(activation=nn.PReLU(8))
    if function in {"explain", "save", "export_onnx", "export_torch"}:
        FUNCTIONS[function](net, tmp_path)
        return
    with pytest.raises(NetworkError, match="PReLU"):
        FUNCTIONS[function](net, tmp_path)


@pytest.mark.parametrize("layers", [[nn.ReLU(), nn.Linear(3, 1)], [nn.Linear(3, 8), nn.ReLU()],
                                    [nn.Linear(3, 8), nn.ReLU(), nn.ReLU(), nn.Linear(8, 1)], []])  # fmt: skip
def test_layers_out_of_order_are_refused_with_one_sentence(layers, tmp_path):
    for name, function in FUNCTIONS.items():
        if name in IN_PLACE | {"save"}:  # a module's own forward decides there; saving needs no order
            continue
        with pytest.raises(NetworkError, match="must alternate Linear and activation and end with a Linear"):
            function(nn.Sequential(*copy.deepcopy(layers)).double(), tmp_path)


@pytest.mark.parametrize("frozen", [False, True])
def test_linear_layers_in_a_row_are_one(frozen):
    net = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2), nn.Linear(2, 1)).double()
    net[0].requires_grad_(not frozen)
    chain = read_chain(net)
    assert chain.widths == (4,)
    assert chain.scaling is None
    assert folded(chain) is chain
    np.testing.assert_allclose(evaluate(chain, ROWS), run(net), rtol=1e-12)
    np.testing.assert_allclose(run(build(chain, torch.float64)), run(net), rtol=1e-12)


def scaled(*ends, between=()):
    """A network with Scalings in front, before the activation and at the end."""
    first, last = ends
    torch.manual_seed(0)
    layers = [*first, nn.Linear(3, 4), *between, nn.ReLU(), nn.Linear(4, 2), *last]
    return nn.Sequential(*layers).double()


X_SCALING, H_SCALING = kw.Scaling([1.0, -2, 3], [2.0, 0.5, 4]), kw.Scaling([0.1, 0, 0, -1], [1, 2, 3, 4.0])
Y_SCALING, OWN_SCALES = kw.Scaling([-5.0, 7], [0.25, 0.25]), kw.Scaling([-5.0, 7], [0.25, 0.5])


@pytest.mark.parametrize(
    ("net", "x", "y"),
    [
        (scaled([], []), False, False),
        (scaled([X_SCALING], []), True, False),
        (scaled([], [Y_SCALING]), False, True),
        (scaled([X_SCALING], [Y_SCALING]), True, True),
        (scaled([X_SCALING], [Y_SCALING], between=[H_SCALING]), True, True),
        (scaled([X_SCALING, X_SCALING], [Y_SCALING, Y_SCALING]), True, True),
        (scaled([X_SCALING], [OWN_SCALES]), True, True),
        (scaled([nn.Identity(), X_SCALING], [nn.Dropout(), Y_SCALING]).eval(), True, True),
    ],
)
def test_a_scaling_at_either_end_is_the_chain_s_and_others_join_a_map(net, x, y):
    chain = read_chain(net)
    assert chain.widths == (4,)
    c = chain.coordinates
    assert (chain.scaling is not None) == (x or y)
    np.testing.assert_array_equal(c.x_centre, X_SCALING.centre if x else np.zeros(3))
    np.testing.assert_array_equal(c.x_scale, X_SCALING.scale if x else np.ones(3))
    if y:
        own = bool((net[-1].scale != 0.25).any())
        np.testing.assert_array_equal(c.y_centre, [20, -14 if own else -28])
        np.testing.assert_array_equal(c.y_scale, [4, 2 if own else 4])
    else:
        np.testing.assert_array_equal([c.y_centre, c.y_scale], [[0, 0], [1, 1]])
    bare = folded(chain)
    assert bare.scaling is None
    for made in (chain, bare, chain.in_coordinates(c).with_scaling(c)):
        np.testing.assert_allclose(evaluate(made, ROWS), run(net), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(run(build(made, torch.float64)), run(net), rtol=1e-12, atol=1e-12)
    inside = chain.in_coordinates(c)
    np.testing.assert_allclose(evaluate(inside, c.features(ROWS)), c.responses(run(net)), rtol=1e-12, atol=1e-12)


def test_a_layer_that_stands_in_two_places_counts_twice():
    act, middle = nn.Tanh(), nn.Linear(3, 3)
    net = nn.Sequential(middle, act, middle, act, nn.Linear(3, 1)).double()
    assert read_chain(net).widths == (3, 3)
    np.testing.assert_allclose(evaluate(read_chain(net), ROWS), run(net), rtol=1e-12)


def test_modules_with_a_forward_of_their_own_are_not_taken_apart():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.act = nn.Linear(8, 8), nn.ReLU()

        def forward(self, x):
            return x + self.act(self.layer(x))

    with pytest.raises(NetworkError, match="got Residual at '1'"):
        read_chain(network(Residual()))


def test_networks_built_from_one_chain_own_their_parameters():
    chain = read_chain(network(activation=nn.PReLU()))
    first, second = build(chain), build(chain)
    shared = {p.data_ptr() for p in first.parameters()} & {p.data_ptr() for p in second.parameters()}
    assert not shared
    with torch.no_grad():
        first[1].weight.fill_(0.9)
    assert float(second[1].weight.detach()) == 0.25
    assert float(chain.modules[0].weight.detach()) == 0.25


@pytest.mark.parametrize("hidden", [(), (6,), (6, 5)])
def test_unfolding_is_folding_with_the_inverse(hidden):
    torch.manual_seed(0)  # a mean of 1e7 times a weight rounds by 2e-9: the weights must not be another test's luck
    sizes = (3, *hidden, 2)
    modules = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
    net = nn.Sequential(*modules[:-1]).double()
    c = Coordinates.of(ROWS * [1e6, 1.0, 1e-6] + [1e7, 0.0, 5.0], np.hstack([y, 100 - y]))
    chain = read_chain(net)
    inner = chain.in_coordinates(c)
    np.testing.assert_allclose(evaluate(inner, c.features(ROWS)), c.responses(run(net)), rtol=1e-9, atol=1e-9)
    for a, b in zip(inner.in_coordinates(c.inverse).layers, chain.layers, strict=True):
        np.testing.assert_allclose(a.weight, b.weight, rtol=1e-12)
        np.testing.assert_allclose(a.bias, b.bias, rtol=1e-9, atol=1e-9)


def test_functions_of_every_kind_have_the_same_algebra():
    rng = np.random.default_rng(1)
    c = Coordinates(rng.normal(size=3), rng.uniform(0.5, 2, 3), np.array([1.0, -2.0]), 3.0)
    theta = rng.normal(size=(5, 4))
    terms = (kw.Hinge(0, 0.3, 1), kw.Linear(1), kw.Min((kw.Hinge(0, 0.3, 1), kw.Hinge(2, 0.1, -1)), (1.0, 2.0)))
    for f in (
        kw.Spline(terms, [0.5, 1.0], rng.normal(size=(3, 2)), ("a", "b", "c")),
        kw.LatticePWL(theta, [[(0, 1), (2, 3)], [(4,), (0, 2)]]),
        kw.MaxSum(theta, [(0, 1), (2, 3, 4)], rng.normal(size=(2, 2)), rng.normal(size=(2, 4))),
    ):
        g = in_coordinates(f, c)
        np.testing.assert_allclose(g(c.features(ROWS)), c.responses(f(ROWS)), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(in_coordinates(g, c.inverse)(ROWS), f(ROWS), rtol=1e-12, atol=1e-12)


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Bent(nn.ReLU):
    def forward(self, x):
        return super().forward(x) ** 2


class Skipped(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def hooked(place):
    net = network()
    (net if place is None else net[place]).register_forward_hook(lambda module, args, output: 2 * output)
    return net


def hooked_before():
    net = network()
    net[0].register_forward_pre_hook(lambda module, args: (2 * args[0],))
    return net


@pytest.mark.parametrize(("net", "message"), [
    (lambda: nn.Sequential(Doubled(3, 4), nn.ReLU(), nn.Linear(4, 1)), "got Doubled at '0'"),
    (lambda: nn.Sequential(nn.Linear(3, 4), Bent(), nn.Linear(4, 1)), "got Bent at '1'"),
    (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 1)), "one takes 5 values and .* makes 4"),
    (lambda: nn.Sequential(kw.Scaling([0.0], [1.0]), nn.Linear(3, 1)), "one takes 3 values and .* makes 1"),
    (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), Skipped(nn.Linear(4, 4)), nn.ReLU(), nn.Linear(4, 1)),
     "got Skipped at '2'"),
    (lambda: Skipped(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)), "got Skipped"),
    (lambda: hooked(1), "no forward hooks.* '1' has"),
    (lambda: hooked(None), "no forward hooks.* 'Sequential' has"),
    (hooked_before, "no forward hooks.* '0' has"),
])  # fmt: skip
def test_layers_that_compute_something_else_or_do_not_fit_are_refused(net, message, tmp_path):
    for name in ("widen", "from_network", "to_relu", "explain", "export_onnx"):
        with pytest.raises(NetworkError, match=message):
            FUNCTIONS[name](net().double(), tmp_path)
    with pytest.raises(NetworkError, match=message):
        kw.fold(net().double())


def test_parametrised_layers_are_read_with_the_weights_that_they_compute():
    net = network()
    torch.nn.utils.parametrizations.weight_norm(net[0])
    np.testing.assert_allclose(run(kw.widen(net, 9, X=ROWS, random_state=0)), run(net), rtol=1e-12)
