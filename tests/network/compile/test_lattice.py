import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from benchmarks.published import published_chain
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import knotwork as kw
from knotwork import LatticePWL, MaxSum
from knotwork.errors import NetworkError
from knotwork.network.chain import evaluate
from knotwork.network.compile import lower
from knotwork.network.compile.size import published_widths
from tests.network.compile.test_convert import run_raw
from tests.pwl.cases import Case, cases

# Widths and layers are counted in a folded network; tests of the scaling say fold=False.
to_network = partial(kw.to_network, fold=True)
network_size = partial(kw.network_size, fold=True)

DOUBLE = 1e-12


def run(net, X):
    dtype = next(net.parameters()).dtype
    with torch.no_grad():
        return net(torch.tensor(X, dtype=dtype)).double().numpy()


def hidden(net):
    return [m.out_features for m in net if isinstance(m, nn.Linear)][:-1]


def bound(f):
    """The depth that was promised."""
    return max(
        1, math.ceil(math.log2(max(map(len, f.outputs)))) + math.ceil(math.log2(max(map(len, sum(f.outputs, ())))))
    )


@settings(max_examples=120, deadline=None)
@given(cases())
def test_the_network_is_the_lattice_within_the_depth(case):
    f = case.lattice
    net = to_network(f, dtype=torch.float64)
    assert (np.abs(run(net, case.X)[:, 0] - f(case.X)) <= DOUBLE * case.size).all()
    widths = hidden(net)
    assert len(widths) <= bound(f)
    size = network_size(f)
    assert (list(size.widths), size.units, size.layers, size.depth_bound) == (
        widths,
        sum(widths),
        len(widths),
        bound(f),
    )
    assert all(isinstance(m, (nn.Linear, nn.ReLU)) for m in net)
    assert net.conversion.bound == 0


@settings(max_examples=60, deadline=None)
@given(cases())
def test_three_units_a_pair_and_two_for_a_value_alone_are_enough(case):
    """Counted without sharing: what every set and output needs by itself."""
    f = case.lattice
    runs = [len(s) for s in f.sets], [len(f.sets)]
    maximum = 0
    for run_ in runs:
        while max(run_) > 1:
            maximum += sum(3 * (n // 2) + 2 * (n % 2) for n in run_)
            run_ = [-(-n // 2) for n in run_]
    assert network_size(f).units <= max(maximum, 2)
    assert sum(published_widths(f)) >= network_size(f).units


@settings(max_examples=60, deadline=None)
@given(cases(pieces=40, sets=20, features=10))
def test_the_published_identity_is_the_lattice_too(case):
    """max(x, y) = (x + y)/2 + R((x − y)/2) + R((y − x)/2), four units a pair."""
    f = case.lattice
    chain = published_chain(f)
    assert (np.abs(evaluate(chain, case.X)[:, 0] - f(case.X)) <= DOUBLE * case.size).all()
    assert chain.widths == published_widths(f) == network_size(f).published
    assert len(chain.widths) <= bound(f)


def test_unit_counts_by_hand():
    rng = np.random.default_rng(0)
    two = LatticePWL(rng.normal(size=(2, 4)), [(0, 1)])
    assert network_size(two).widths == (3,)  # R(y − x), R(x), R(−x)
    assert network_size(two).published == (4,)
    assert network_size(two, "leaky_relu").widths == (4,)
    # With a constant: one unit.
    assert network_size(LatticePWL([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]], [(0, 1)])).widths == (1,)
    # One feature, 64 pieces: a unit for each of the 32 pairs and two that carry the feature, against 128.
    assert network_size(LatticePWL(rng.normal(size=(64, 2)), [range(64)])).widths[:2] == (34, 34)
    assert network_size(LatticePWL(rng.normal(size=(64, 2)), [range(64)])).published[0] == 128
    # Many features: three a pair.
    assert network_size(LatticePWL(rng.normal(size=(4, 50)), [range(4)])).widths == (6, 3)
    # Sets that share pairs share units.
    shared = LatticePWL(rng.normal(size=(4, 50)), [(0, 1, 2), (0, 1, 3)])
    assert network_size(shared).widths[0] < 2 * 5
    assert network_size(LatticePWL([[1.0, 2.0]], [(0,)])).widths == (2,)
    assert network_size(LatticePWL([[1.0, 0.0]], [(0,)])).widths == (1,)


EXACT = [
    "leaky_relu", "prelu", nn.LeakyReLU(0.9), nn.LeakyReLU(3.0), nn.LeakyReLU(-0.5), nn.PReLU(init=-0.125),
    nn.ELU(alpha=0.0),
]  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(cases(pieces=30, sets=12, features=8, outputs=3), st.sampled_from(EXACT))
def test_other_exact_activations_and_several_outputs(case, activation):
    f = case.lattice
    net = to_network(f, activation=activation, dtype=torch.float64)
    slope = {"leaky_relu": 0.01, "prelu": 0.25}.get(activation) if isinstance(activation, str) else None
    if slope is None:
        slope = getattr(activation, "negative_slope", getattr(activation, "alpha", -0.125))
    # The two units of a hinge cancel, more so the nearer the slope is to one; every layer does it again.
    loss = ((1 + abs(slope)) * max(1, abs(slope)) / abs(1 - slope**2)) ** 2 * bound(f)
    error = np.abs(run(net, case.X).reshape(len(case.X), -1) - f(case.X).reshape(len(case.X), -1))
    assert (error <= DOUBLE * loss * case.size[:, None]).all()
    assert len(hidden(net)) <= bound(f)


@settings(max_examples=60, deadline=None)
@given(cases(pieces=20, sets=8, features=6), st.sampled_from(["softplus", "silu", "gelu", "elu"]))
def test_smooth_activations_stay_within_the_bound(case, activation):
    f = case.lattice
    tolerance = 1e-3 * float(np.abs(f.theta).max())
    net = to_network(f, activation=activation, tolerance=tolerance, dtype=torch.float64)
    error = np.abs(run(net, case.X)[:, 0] - f(case.X))
    assert (error <= tolerance * (1 + 1e-9) + DOUBLE * case.size).all()
    affine = {len(set(s)) for s in f.sets} == {1} and len({frozenset(s) for s in f.sets}) == 1
    exact = affine and activation in ("silu", "gelu")  # whose differences are lines
    assert net.conversion.bound == (0.0 if exact else tolerance)


@settings(max_examples=40, deadline=None)
@given(cases(pieces=20, sets=8, features=6), st.sampled_from(["relu6", "hardtanh", nn.Hardtanh(-3.0, 0.5)]))
def test_saturating_activations_are_exact_on_the_box(case, activation):
    f = case.lattice
    net = to_network(f, activation=activation, box=(-case.scale, case.scale), dtype=torch.float64)
    X = np.random.default_rng(0).uniform(-1, 1, (30, f.inputs)) * case.scale
    size = np.abs(f.theta[:, 0]).max() + (np.abs(f.theta[:, 1:]) @ case.scale).max()
    assert np.abs(run(net, X)[:, 0] - f(X)).max() <= 1e-10 * size
    assert net.conversion.box.tolist() == [(-case.scale).tolist(), case.scale.tolist()]
    with pytest.raises(NetworkError, match="only on a box; pass box="):
        to_network(f, activation=activation)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["relu", "leaky_relu"]))
def test_sums_of_maxima(seed, activation):
    rng = np.random.default_rng(seed)
    d, groups, outputs = rng.integers(1, 6), rng.integers(1, 6), rng.integers(1, 4)
    theta = rng.normal(size=(12, d + 1))
    theta[0] = 0.0
    members = [tuple(rng.choice(12, rng.integers(1, 8), replace=False).tolist()) for _ in range(groups)]
    f = MaxSum(theta, members, rng.normal(size=(groups, outputs)), rng.normal(size=(outputs, d + 1)))
    X = rng.normal(size=(30, d)) * 10
    net = to_network(f, activation=activation, dtype=torch.float64)
    np.testing.assert_allclose(run(net, X), f(X).reshape(len(X), -1), atol=1e-10)
    assert list(network_size(f, activation).widths) == hidden(net)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_a_network_with_scaling_has_the_size_that_was_counted(case):
    net = kw.to_network(case.lattice, dtype=torch.float64)
    size = kw.network_size(case.lattice)
    assert list(size.widths) == hidden(net)
    assert size == network_size(case.lattice)
    assert (np.abs(run(net, case.X)[:, 0] - case.lattice(case.X)) <= DOUBLE * case.size).all()


def test_oblique_hinges_take_one_unit_each():
    theta = np.vstack([np.zeros(4), np.random.default_rng(0).normal(size=(9, 4))])
    f = MaxSum(theta, [(0, k) for k in range(1, 10)], np.ones((9, 1)), np.zeros((1, 4)))
    assert network_size(f).widths == (9,)


def test_in_single_precision_and_with_layers_that_scale():
    case = Case(3, 20, 8, 4)
    single = to_network(case.lattice)
    assert next(single.parameters()).dtype == torch.float32
    assert (np.abs(run(single, case.X)[:, 0] - case.lattice(case.X)) <= 1e-5 * case.size).all()
    X, y = kw.datasets.load_wine_quality("red")
    model = kw.MaxAffineRegressor(n_pieces=5, random_state=0).fit(X, y)
    net = to_network(model, fold=False, dtype=torch.float64)
    assert [type(m) for m in (net[0], net[-1])] == [kw.Scaling, kw.Scaling]
    rows, target = X.to_numpy(), np.asarray(y, dtype=float)
    np.testing.assert_allclose(run(net, rows)[:, 0], model.predict(X), atol=1e-11)
    standard = net[0](torch.tensor(rows)).numpy()
    # Centres are values of the data, the ones next to the means.
    assert ((standard == 0).any(axis=0) & (np.abs(standard.mean(axis=0)) < 0.1)).all()
    np.testing.assert_allclose(standard.std(axis=0), 1.0, rtol=1e-9)
    back = net[-1](torch.tensor([[0.0], [1.0]], dtype=torch.float64)).numpy()[:, 0]
    assert np.isclose(back[0], target, rtol=1e-12).any()
    np.testing.assert_allclose(back[1] - back[0], target.std(), rtol=1e-12)
    narrow = to_network(model, fold=False)
    np.testing.assert_allclose(run_raw(narrow, rows)[:, 0], model.predict(X), atol=1e-5)
    assert [type(m) for m in kw.to_network(case.lattice)[:2]] == [kw.Scaling, nn.Linear]


def test_a_lattice_network_grows_trains_and_is_saved_like_any_other(tmp_path):
    case = Case(5, 12, 4, 3, 2)
    f = case.lattice
    net = to_network(f, dtype=torch.float64)
    near = case.X[:20]
    for activation in ("relu", "leaky_relu"):
        net = to_network(f, activation=activation, dtype=torch.float64)
        grown = kw.reshape(net, [w + 5 for w in hidden(net)] + [8], X=near, random_state=0)
        assert (np.abs(run(grown, case.X) - f(case.X)) <= 1e-11 * case.size[:, None]).all()
        assert len(hidden(kw.deepen(net, 1, X=near))) == len(hidden(net)) + 1
        kw.save(net, tmp_path / activation)
        assert np.array_equal(run(kw.load(tmp_path / activation), case.X), run(net, case.X))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.abs(X).sum(axis=1)
    start = to_network(kw.MaxAffineRegressor(n_pieces=4, random_state=0).fit(X, y), dtype=torch.float64)
    history = kw.train(start, X, y, epochs=5, random_state=0)
    assert min(history.validation_loss) <= history.validation_loss[0]
    report = kw.init_(start, X, y, random_state=0)  # its shape, another function
    assert report.max_difference < 1e-9


def test_lattices_and_sums_are_saved(tmp_path):
    case = Case(1, 9, 4, 3, 2)
    difference = MaxSum(case.lattice.theta, [(0, 1), (2, 3)], [[1.0], [-1.0]], [[0.0] * 4])
    for k, f in enumerate((case.lattice, LatticePWL([[0.0, 1.0]], [(0,)]), difference)):
        kw.save(f, tmp_path / str(k))
        assert kw.load(tmp_path / str(k)) == f


def test_far_too_large_networks_are_refused_before_they_are_built(monkeypatch):
    monkeypatch.setattr(lower, "MAX_WEIGHTS", 100)
    monkeypatch.setattr(lower, "_scaled", None)
    with pytest.raises(NetworkError, match=r"dense layers.*at most 100 are built; simplify\(\) it first"):
        to_network(Case(1, 30, 9, 5).lattice)


def test_all_lattices_of_three_pieces():
    """Every choice of sets of three pieces, so that no special case is left to chance."""
    theta = [[0.0, 1.0, 0.0], [0.5, -1.0, 1.0], [0.25, 0.0, 0.0]]
    X = np.random.default_rng(0).normal(size=(40, 2))
    subsets = [s for n in (1, 2, 3) for s in itertools.combinations(range(3), n)]
    for n in (1, 2, 3):
        for sets in itertools.combinations(subsets, n):
            f = LatticePWL(theta, sets)
            np.testing.assert_allclose(run(to_network(f, dtype=torch.float64), X)[:, 0], f(X), atol=1e-13)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "gelu", "relu6"])
def test_sizes_of_splines(activation):
    spline = kw.Spline((kw.Hinge(0, 1.0, 1), kw.Hinge(0, 1.0, -1), kw.Linear(1)), [0.0], np.ones((3, 1)), ("a", "b"))
    net = to_network(spline, activation=activation, box=(0, 1))
    assert list(network_size(spline, activation).widths) == hidden(net)
