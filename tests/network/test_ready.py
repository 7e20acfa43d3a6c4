"""Networks that are ready to train: scales by sensitivity, and what they are for, a bare optimiser."""

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import knotwork as kw
from knotwork.network.activations import activation_rule
from knotwork.network.chain import Chain, Layer, build, evaluate, read_chain
from knotwork.network.compile.function import function_chain
from knotwork.network.ready import NEW_SIZE, carrying_pairs, ready_chain, rescaled, training_scales
from tests.network.compile.test_convert import cases


def table(seed=0, rows=1500):
    """Correlated columns in wild units of measurement, and a response that a spline predicts to a few percent."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(rows, 8))
    y = np.abs(z[:, 0]) + np.maximum(z[:, 1], 0) - 0.5 * z[:, 2] + 0.3 * np.sin(z[:, 3]) + 0.02 * rng.normal(size=rows)
    units = 10.0 ** np.array([5, -6, 0, 3, -2, 1, 6, -4])
    return z * units + 3 * units, y * 2e5 + 5e5


def bare_adam(net, X, y, epochs=10, unit=1.0):
    """Train on the first 1000 rows; return the RMSE on the others by epoch, over the start's: (epochs + 1, outputs)."""
    rows, targets = torch.from_numpy(X[:1000]), torch.from_numpy(y[:1000].reshape(1000, -1) / unit).float()
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)

    def errors():
        with torch.no_grad():
            values = net(torch.from_numpy(X[1000:])).double().numpy()
        return np.sqrt(np.mean((values - y[1000:].reshape(values.shape)) ** 2, axis=0))

    found = [errors()]
    for _ in range(epochs):
        for batch in torch.randperm(1000, generator=generator).split(128):
            loss = nn.functional.mse_loss(net(rows[batch]) / torch.as_tensor(unit).float(), targets[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        found.append(errors())
    return np.array(found) / found[0]


def total_sensitivity(chain, rows):
    """The slow and obvious sum: the mean over rows, summed over outputs and parameters, of a derivative's square."""
    inner = build(chain, torch.float64)
    total = 0.0
    for row in rows:
        for output in inner(row[None])[0]:
            inner.zero_grad()
            output.backward(retain_graph=True)
            total += sum(float(p.grad.square().sum()) for p in inner.parameters() if p.grad is not None)
    return total / len(rows)


def dead_units(net, X):
    dead = []
    rows = torch.from_numpy(X)
    for layer in net:
        rows = layer(rows)
        if isinstance(layer, nn.ReLU):
            dead.append(int((rows <= 0).all(dim=0).sum()))
    return sum(dead)


@pytest.mark.parametrize("seed", range(3))
def test_a_bare_optimiser_does_not_lose_the_start(seed):
    X, y = table(seed)
    model = kw.MarsRegressor(extrapolate="linear").fit(X[:1000], y[:1000])  # the response goes on so
    net = kw.reshape(kw.to_network(model), (64, 64), X=X[:1000], random_state=0)
    shares = bare_adam(net, X, y)[:, 0]
    assert shares.max() == 1.0  # balanced by weights alone it rose to 1.26 to 1.39
    assert shares[-1] < 0.8


@pytest.mark.parametrize("outputs", [1, 2])
def test_no_scale_of_a_unit_makes_the_outputs_less_sensitive(outputs):
    rng = np.random.default_rng(outputs)
    X = rng.normal(size=(400, 4))
    y = np.column_stack([np.abs(X[:, 0]) + X[:, 1], 3 * np.maximum(X[:, 2], 0.3)])[:, :outputs]
    chain = read_chain(kw.to_network(kw.MarsRegressor(max_terms=7).fit(X, y), dtype=torch.float64))
    grown = read_chain(kw.deepen(build(chain, torch.float64), 1, X=X))
    rows = torch.from_numpy(grown.coordinates.features(X[:60]))
    inner = replace(grown, scaling=None)
    ready = ready_chain(inner, rows)
    least = total_sensitivity(ready, rows)
    scales = [np.ones(width) for width in inner.widths]
    used = [layer.weight.any(dim=0) for layer in inner.layers[1:]]  # the others add nothing yet
    for k, unit in ((k, unit) for k, units in enumerate(used) for unit in torch.nonzero(units)[:, 0].tolist()):
        for factor in (0.25, 4.0):  # a factor of two may be what rounding to a power of two leaves
            scales[k][unit] = factor
            assert total_sensitivity(rescaled(ready, scales), rows) > least
            scales[k][unit] = 1.0


@given(cases(terms=12, features=4, outputs=3), st.sampled_from(["relu", "leaky_relu", "prelu"]))
def test_scales_are_powers_of_two_and_change_no_bit(case, activation):
    chain = function_chain(case.spline, activation_rule(activation))
    rows = torch.from_numpy(np.array(case.inside))
    for scale in training_scales(chain, rows):
        np.testing.assert_array_equal(np.frexp(scale)[0], 0.5)
    np.testing.assert_array_equal(evaluate(ready_chain(chain, rows), case.X), evaluate(chain, case.X))


def test_other_activations_keep_their_units():
    chain = function_chain(kw.Spline((kw.Hinge(0, 1.0, 1),), [2.0], [[3.0]], ("x",)), activation_rule("softplus"))
    assert ready_chain(chain) is chain


def test_new_units_are_small_and_no_unit_is_dead():
    X, y = table()
    bare = kw.to_network(kw.MarsRegressor().fit(X, y))
    for net in (
        bare,
        kw.reshape(bare, (64, 64), X=X, random_state=0),
        kw.reshape(bare, (64, 64, 16), X=X, fill="random", random_state=0),
        kw.widen(bare, 64, X=X, random_state=0),
        kw.deepen(bare, 2, X=X, random_state=0),
    ):
        assert dead_units(net, X) == 0
    wide = kw.reshape(bare, (64, 64), X=X, random_state=0)
    with torch.no_grad():
        first = wide[:3](torch.from_numpy(X))
        second = wide[:5](torch.from_numpy(X))
    old = bare[1].out_features, 2
    for values, known in ((first, old[0]), (second, old[1])):
        size = values[:, known:].square().mean(dim=0).sqrt()
        assert bool((size > NEW_SIZE / 2).all())
        assert bool((size < NEW_SIZE * 2).all())


def test_reshaping_twice_gives_the_same_sizes():
    X, y = table()
    once = kw.reshape(kw.to_network(kw.MarsRegressor().fit(X, y)), (32, 16), X=X, random_state=0)
    again = kw.reshape(once, (32, 16), X=X, random_state=0)
    for a, b in zip(once.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_responses_of_very_different_scales_each_have_their_own():
    X, y = table()
    Y = np.column_stack([y / 2e5, 1e6 * (np.abs(X[:, 2]) + X[:, 5] / 10)])
    std = Y[:1000].std(axis=0)
    model = kw.MarsRegressor(scale_responses=True).fit(X[:1000], Y[:1000])
    net = kw.reshape(kw.to_network(model), (64, 64), X=X[:1000], random_state=0)
    np.testing.assert_allclose(net[-1].scale, 1 / std, rtol=1e-6)
    start = np.sqrt(np.mean((model.predict(X[1000:]) - Y[1000:]) ** 2, axis=0)) / std
    shares = bare_adam(net, X, Y, unit=std)
    assert ((shares - 1) * start).max() < 0.01
    assert (shares[-1] < 1).all()
    trained = kw.reshape(kw.to_network(model), (64, 64), X=X[:1000], random_state=0)
    kw.train(trained, X[:1000], Y[:1000], epochs=10, random_state=0, validation=(X[1000:], Y[1000:]))
    with torch.no_grad():
        error = np.sqrt(((trained(torch.from_numpy(X[1000:])).double().numpy() - Y[1000:]) ** 2).mean(axis=0)) / std
    assert (error < 0.05).all()


def test_splinenet_learns_small_responses_beside_large_ones():
    X, y = table()
    Y = np.column_stack([y / 2e5, 1e6 * (np.abs(X[:, 2]) + X[:, 5] / 10)])
    options = {"hidden": (64, 64), "epochs": 10, "random_state": 0, "n_jobs": 1}
    both = kw.SplineNetRegressor(n_members=1, **options).fit(X[:1000], Y[:1000])
    alone = kw.SplineNetRegressor(n_members=1, **options).fit(X[:1000], Y[:1000, 0])
    small = np.square(both.predict(X[1000:])[:, 0] - Y[1000:, 0]).mean()
    assert small < 1.5 * np.square(alone.predict(X[1000:]) - Y[1000:, 0]).mean()


@pytest.mark.parametrize(("activation", "worst"), [("softplus", 1.5), ("silu", 1.05), ("gelu", 1.05), ("elu", 1.05)])
def test_smooth_activations_survive_a_bare_optimiser_with_a_wide_tolerance_and_train_with_any(activation, worst):
    X, y = table()
    model = kw.MarsRegressor().fit(X[:1000], y[:1000])
    near, wide = (kw.to_network(model, activation=activation, tolerance=t) for t in (None, 0.2 * y.std()))
    fresh = X[850:1000], y[850:1000]
    history = kw.train(copy.deepcopy(near), X[:850], y[:850], validation=fresh, epochs=5, random_state=0)
    assert max(history.validation_loss) <= 1.05 * history.validation_loss[0]
    assert bare_adam(near, X, y, epochs=1).max() > 1.5  # what docs/networks.md warns of
    assert bare_adam(wide, X, y).max() < worst


@pytest.mark.parametrize(("activation", "worst"), [("softplus", 3.0), ("silu", 1.25), ("gelu", 1.25)])
def test_units_that_carry_values_let_two_smooth_layers_survive_a_bare_optimiser(activation, worst):
    X, y = table()
    exact = kw.to_network(kw.MarsRegressor().fit(X[:1000], y[:1000]), activation=activation)
    assert bare_adam(kw.reshape(exact, (64, 64), X=X[:1000], random_state=0), X, y).max() < worst


@pytest.mark.parametrize("activation", [nn.Softplus, nn.SiLU, nn.GELU, nn.ELU])
@pytest.mark.parametrize("widths", [(64,), (64, 64)])
def test_smooth_starts_are_near_the_spline_and_survive_a_bare_optimiser(activation, widths):
    if activation is nn.ELU and len(widths) > 1:
        pytest.skip("ELU carries nothing")
    X, y = table()
    net = nn.Sequential(kw.Scaling.of(X[:1000]))
    for inputs, width in itertools.pairwise((8, *widths)):
        net.extend([nn.Linear(inputs, width), activation()])
    net.extend([nn.Linear(widths[-1], 1), kw.Scaling.back_to(y[:1000])])
    report = kw.init_(net, X[:1000], y[:1000], random_state=0)
    assert 0 < report.mean_difference < 0.02 * y.std()
    with torch.no_grad():
        start = np.sqrt(np.mean((net(torch.from_numpy(X[1000:])).double().numpy()[:, 0] - y[1000:]) ** 2)) / y.std()
    shares = bare_adam(net, X, y)
    assert ((shares - 1) * start).max() < 0.03
    assert shares[-1] < 1


@pytest.mark.parametrize("activation", ["softplus", "silu", "gelu"])
def test_pairs_of_smooth_units_are_scaled_and_carry_the_same(activation):
    f = kw.Spline((kw.Hinge(0, 1.0, 1), kw.Linear(1)), [2.0], [[300.0], [4.0]], ("x", "z"))
    chain = function_chain(f, activation_rule(activation), tolerance=1.0)
    assert carrying_pairs(chain, 0).tolist() == [[1, 2]]
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(200, 2)))
    scales = training_scales(chain, rows, [carrying_pairs(chain, 0)])[0]
    assert scales[0] == 1.0
    assert scales[1] == scales[2]
    assert np.frexp(scales[1])[0] == 0.5
    ready = ready_chain(chain, rows)
    np.testing.assert_allclose(evaluate(ready, rows.numpy()), evaluate(chain, rows.numpy()), rtol=0, atol=1e-8)
    assert len(carrying_pairs(function_chain(f, activation_rule("elu")), 0)) == 0


def test_units_that_only_rounding_turns_on_keep_their_scale():
    """A knot at a column's end: whether the row there lies above it depends on the last bit."""
    rows = torch.tensor([[0.0], [0.1 + 0.2]], dtype=torch.float64)  # 5e-17 above 0.3
    one, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    chain = Chain.of([Layer(one, zero - 0.3), Layer(one, zero)], activation_rule("relu"))
    assert chain.hidden[0](rows).max() > 0
    assert training_scales(chain, rows)[0].tolist() == [1.0]


@given(weight=st.floats(0.1, 10), seen=st.integers(1, 5), seed=st.integers(0, 99))
def test_centred_logits_do_not_cancel(weight, seen, seed):
    """Logits that add up to zero: what a unit adds to their sum is nothing but rounding."""
    rng = np.random.default_rng(seed)
    rows = torch.from_numpy(np.where(np.arange(40) < seen, 1.0, -1.0)[:, None] * rng.uniform(0.5, 2, (40, 1)))
    out = torch.tensor([[0.1], [0.2], [-0.3]], dtype=torch.float64) * weight
    layers = [Layer(torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)),
              Layer(out, torch.zeros(3, dtype=torch.float64))]  # fmt: skip
    scale = training_scales(Chain.of(layers, activation_rule("relu")), rows)[0]
    # Of one output of this size: (seen·(x² + 1)·w²/s²) = seen·x²·s², a power of two and the factors' spread apart.
    assert 1 / 16 <= scale / np.sqrt(weight * 0.374) <= 16
