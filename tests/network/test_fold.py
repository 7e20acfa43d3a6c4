"""Networks that hold their features at limits: folded or not, in every form they compute the same, however far out."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import nn

import knotwork as kw
from knotwork.errors import NetworkError
from knotwork.network.chain import build, evaluate, read_chain
from knotwork.network.fold import folded

FEATURES = 3
HELD = kw.Scaling([0.0], [1.0], [0.0], [1.0])
numbers = st.floats(-5, 5, width=32)
# Beyond the limits on both sides, just beyond, and far.
FAR = np.array([-1e6, -1e3, -50.0, -6.0, -1.0, 0.0, 0.5, 2.0, 6.0, 50.0, 1e3, 1e6])


@st.composite
def held_splines(draw, outputs_held=False):
    hinges = st.builds(kw.Hinge, st.integers(0, FEATURES - 1), numbers, st.sampled_from([1, -1]))
    pairs = st.tuples(numbers, numbers).map(
        lambda knots: kw.Min((kw.Hinge(0, knots[0], 1), kw.Hinge(2, knots[1], -1)), (1.0, 2.0))
    )
    lines = st.builds(kw.Linear, st.integers(0, FEATURES - 1))
    terms = draw(st.lists(st.one_of(hinges, lines, pairs), max_size=6))
    outputs = draw(st.integers(1, 2))
    coef = draw(arrays(float, (len(terms), outputs), elements=numbers))
    sides = np.sort(draw(arrays(float, (2, FEATURES), elements=numbers)), axis=0)
    open_ends = draw(arrays(bool, (2, FEATURES)))
    sides[open_ends] = np.where(np.arange(2)[:, None], np.inf, -np.inf).repeat(FEATURES, axis=1)[open_ends]
    intercept = draw(st.lists(numbers, min_size=outputs, max_size=outputs))
    held = None
    if outputs_held:
        ends = np.sort(draw(arrays(float, (2, outputs), elements=numbers)), axis=0)
        held = kw.Limits(ends[0], np.where(draw(arrays(bool, outputs)), ends[1], np.inf))
    return kw.Spline(tuple(terms), intercept, coef, ("a", "b", "c"), kw.Limits(*sides), output_limits=held)


def rows(seed=0):
    rng = np.random.default_rng(seed)
    return np.vstack([rng.choice(FAR, size=(60, FEATURES)), rng.normal(size=(40, FEATURES)) * 4])


def size_of(spline, X):
    """What large values may cancel from, as far as units are not held."""
    return 1 + np.abs(spline.coef).sum() * (np.abs(X).max(axis=1) + 20) * 2


def run(net, X):
    with torch.no_grad():
        return net(torch.from_numpy(X)).double().numpy()


@given(st.booleans().flatmap(held_splines), st.sampled_from(["relu", "leaky_relu", "prelu"]))
def test_every_form_of_a_spline_is_the_same_everywhere(spline, activation):
    X = rows()
    values = spline(X).reshape(len(X), -1)
    free = replace(spline, limits=None)
    np.testing.assert_array_equal(values, free(spline.limits.hold(X)).reshape(values.shape))
    size = size_of(spline, X)[:, None]
    plain = kw.to_network(spline, activation=activation, dtype=torch.float64)
    bare = kw.to_network(spline, activation=activation, fold=True, dtype=torch.float64)
    assert not any(isinstance(layer, kw.Scaling) for layer in bare)
    own = size_of(spline, spline.limits.hold(X))[:, None]
    assert (np.abs(run(plain, X) - values) <= 1e-12 * own).all()
    for net in (bare, kw.fold(plain)):
        assert (np.abs(run(net, X) - values) <= 1e-12 * size).all()
    sizes = [kw.network_size(spline, activation, fold=fold).widths for fold in (False, True)]
    assert [read_chain(plain).widths, read_chain(bare).widths] == sizes


@given(held_splines())
def test_a_folded_spline_keeps_its_depth(spline):
    plain, bare = (read_chain(kw.to_network(spline, fold=fold)).widths for fold in (False, True))
    assert len(bare) == len(plain)
    # A unit for every end of a feature at most.
    assert bare[0] <= kw.network_size(replace(spline, limits=None), fold=True).widths[0] + 2 * FEATURES


@given(held_splines(True))
def test_an_output_that_is_held_is_one_layer_more(spline):
    plain, bare = (read_chain(kw.to_network(spline, fold=fold)).widths for fold in (False, True))
    free = read_chain(kw.to_network(replace(spline, output_limits=None), fold=True)).widths
    assert bare[:-1] == free
    assert bare[-1] <= 2 * len(spline.output_limits)
    assert len(bare) == len(plain) + 1


@given(st.booleans().flatmap(held_splines))
def test_in_single_precision(spline):
    X = rows()
    values = spline(X).reshape(len(X), -1)
    error = np.abs(run(kw.to_network(spline, fold=True, dtype=torch.float32), X.astype(np.float32)) - values)
    assert (error <= 4e-6 * size_of(spline, X)[:, None]).all()


@pytest.mark.parametrize("module", [nn.ReLU(), nn.LeakyReLU(0.2), nn.Tanh(), nn.PReLU(5), nn.GELU()])
@pytest.mark.parametrize("hidden", [0, 1, 2])
def test_a_network_of_any_layers_gets_a_front(module, hidden):
    torch.manual_seed(0)
    scaling = kw.Scaling([1.0, -2.0, 0.0], [2.0, 0.5, 1.0], [-1.0, -np.inf, -np.inf], [3.0, 2.0, np.inf])
    layers, width = [], 3
    for _ in range(hidden):
        layers += [nn.Linear(width, 5), module]
        width = 5
    net = nn.Sequential(scaling, *layers, nn.Linear(width, 2)).double()
    X = rows()
    bare = kw.fold(net)
    limits = scaling.limits
    np.testing.assert_array_equal(run(net, X), run(net, limits.hold(X)))
    np.testing.assert_allclose(run(bare, X), run(net, X), atol=1e-12 * np.abs(X).max())
    np.testing.assert_allclose(evaluate(read_chain(net), X), run(net, X), rtol=1e-12, atol=1e-12)
    assert len(read_chain(bare).hidden) == hidden + 1
    assert read_chain(bare).widths[1:] == read_chain(net).widths


def test_limits_go_through_every_change_of_a_network():
    spline = kw.Spline(
        (kw.Hinge(0, 0.5, 1), kw.Linear(1), kw.Hinge(2, 1.0, -1)), [1.0], [[2.0], [-1.0], [0.5]], ("a", "b", "c"),
        kw.Limits([-1.0, -2.0, 0.0], [2.0, 2.0, 3.0]),
    )  # fmt: skip
    X, values = rows(), spline(rows())[:, None]
    net = kw.to_network(spline, dtype=torch.float64)
    grown = kw.reshape(net, (16, 8), X=X, random_state=0)
    for made in (grown, kw.widen(net, 12), kw.deepen(net, 1), build(read_chain(net), torch.float64)):
        assert made[0].limits == spline.limits
        np.testing.assert_allclose(run(made, X), values, atol=1e-9)
    chain = read_chain(net)
    c = chain.coordinates
    inside = chain.in_coordinates(replace(c, limits=None))
    np.testing.assert_allclose(evaluate(inside.with_scaling(replace(c, limits=None)), X), values, atol=1e-9)
    assert folded(folded(chain)).scaling is None


def test_pieces_end_at_the_limits():
    spline = kw.Spline((kw.Linear(0),), [0.0], [[1.0]], ("x",), kw.Limits([-1.0], [2.0]))
    pieces = kw.from_network(kw.to_network(spline, dtype=torch.float64), (-5.0, 5.0))
    found = sorted({tuple(np.round(piece.theta[0], 9) + 0.0) for piece in pieces.pieces})
    assert found == [(-1.0, 0.0), (0.0, 1.0), (2.0, 0.0)]


def test_smooth_layers_become_relu_within_the_limits():
    torch.manual_seed(0)
    net = nn.Sequential(kw.Scaling([0.0], [1.0], [-1.0], [1.0]), nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    report = kw.to_relu(net, (-100.0, 100.0), 1e-3, random_state=0)
    x = np.linspace(-100, 100, 999)[:, None]
    assert np.abs(run(report.network, x) - run(net, x)).max() <= report.bound + 1e-12
    assert sum(report.pieces) < 200  # the range that the units see is that between the limits


def test_training_holds_the_rows():
    torch.manual_seed(0)
    X = np.linspace(-1, 1, 200)[:, None]
    X[0] = 1e9
    held, y = np.clip(X, -1, 1), np.abs(np.clip(X, -1, 1))
    net = nn.Sequential(kw.Scaling([0.0], [1.0], [-1.0], [1.0]), nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1)).double()
    losses = [
        kw.train(deepcopy(net), part, y, validation=(part, y), epochs=3, random_state=0).train_loss
        for part in (X, held)
    ]
    assert losses[0] == losses[1]
    start = nn.Sequential(kw.Scaling([0.0], [1.0], [-1.0], [1.0]), nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1))
    report = kw.init_(start.double(), X, np.abs(np.clip(X, -1, 1))[:, 0], random_state=0)
    assert report.max_difference < 1e-9
    np.testing.assert_allclose(run(start, X)[:, 0], np.abs(np.clip(X[:, 0], -1, 1)), atol=0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kw.Scaling([0.0], [1.0], [1.0], [0.0]), "lower must be at most upper"),
        (lambda: kw.Scaling([0.0], [1.0], [np.nan], [0.0]), "lower must be at most upper"),
        (lambda: kw.Scaling([0.0], [1.0], [0.0]), "must be given together"),
        (lambda: kw.Scaling([0.0], [1.0], [0.0, 1.0], [1.0, 2.0]), "must have the shape of centre"),
        (lambda: kw.fold(nn.Sequential(nn.Linear(1, 1), nn.ReLU(), HELD, nn.Linear(1, 1))), "must stand at an end"),
        (lambda: kw.fold(nn.Sequential(nn.Linear(1, 1), HELD)), "must stand in front"),
    ],
)
def test_limits_that_cannot_be(make, message):
    with pytest.raises(NetworkError, match=message):
        make()
