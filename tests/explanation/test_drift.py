"""What training changed, and smaller networks."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import knotwork as kw
from knotwork.data.coordinates import Coordinates
from knotwork.errors import DataError
from knotwork.network.chain import evaluate, read_chain
from knotwork.network.prune import shrink_chain, threshold_chain


@pytest.fixture(scope="module")
def wine():
    X, y = kw.datasets.load_wine_quality("red")
    return kw.SplineNetRegressor(n_members=1, hidden=(48, 12), max_degree=1, epochs=4, random_state=0).fit(X, y), X, y


def test_the_start_is_kept_and_is_the_spline(wine, tmp_path):
    model, X, _ = wine
    rows = torch.from_numpy(X.to_numpy(float)).float()
    with torch.no_grad():
        start = model.start_network_(rows)[:, 0].numpy()
    np.testing.assert_allclose(start, model.spline_(X), atol=1e-4)
    kw.save(model, tmp_path / "model")
    again = kw.load(tmp_path / "model")
    ours, theirs = kw.explain(model).drift, kw.explain(again).drift
    assert ours.units.equals(theirs.units)
    assert ours.inputs.equals(theirs.inputs)


def test_strengths_are_sums_over_paths(wine):
    model, _, _ = wine
    drift = kw.explain(model).drift
    for strength, weights in (("strength_before", drift.before), ("strength_after", drift.after)):
        # Path by path, the slow way.
        first, second, last = (np.abs(w) for w in weights)
        inputs, units = np.zeros(first.shape[1]), np.zeros(len(first))
        for i in range(first.shape[1]):
            for u in range(len(first)):
                through = sum(first[u, i] * second[v, u] * last[0, v] for v in range(len(second)))
                inputs[i] += through
                units[u] += through
        np.testing.assert_allclose(drift.inputs[strength], inputs, rtol=1e-9, atol=1e-12)
        shown = drift.units[drift.units["layer"] == 0]
        np.testing.assert_allclose(shown[strength], units, rtol=1e-9, atol=1e-12)


def test_units_know_where_they_come_from(wine):
    model, _, _ = wine
    drift = kw.explain(model).drift
    first = drift.units[drift.units["layer"] == 0]
    spline = first[first["origin"] == "spline"]
    written = {t.describe(model.spline_.feature_names) for t in model.spline_.terms if isinstance(t, kw.Hinge)}
    assert written <= set(spline["term"])
    assert (first[first["origin"] == "added"]["strength_before"] == 0).all()
    used = {model.spline_.feature_names[f] for t in model.spline_.terms for f in t.features}
    woken = set(drift.inputs.index[drift.inputs["woke_up"]])
    assert woken
    assert not woken & used
    changed = np.linalg.norm(drift.after[1] - drift.before[1])
    assert drift.layers["change"][1] == pytest.approx(changed)


def test_no_training_no_drift():
    X, y = kw.datasets.load_wine_quality("red")
    model = kw.SplineNetRegressor(n_members=1, hidden=(32,), epochs=0, random_state=0).fit(X, y)
    drift = kw.explain(model).drift
    assert (drift.units["change"] == 0).all()
    assert not drift.inputs["woke_up"].any()
    random = kw.SplineNetRegressor(n_members=1, hidden=(32,), epochs=1, start="random", random_state=0).fit(X, y)
    assert set(kw.explain(random).drift.units["origin"]) == {"random"}


@st.composite
def networks(draw):
    widths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    activation = draw(st.sampled_from([torch.nn.ReLU, torch.nn.LeakyReLU, torch.nn.Softplus, torch.nn.SiLU]))
    torch.manual_seed(draw(st.integers(0, 10_000)))
    sizes = [3, *widths, draw(st.integers(1, 2))]
    layers = []
    for a, b in pairwise(sizes):
        layers += [torch.nn.Linear(a, b, dtype=torch.float64), activation()]
    return torch.nn.Sequential(*layers[:-1])


@given(networks(), st.sampled_from([0.0, 0.2, 0.4, 0.6, 10.0]))
def test_taking_idle_units_out_changes_nothing(net, threshold):
    X = np.random.default_rng(0).normal(size=(50, 3))
    coordinates = Coordinates.of(X, evaluate(read_chain(net), X))
    sparse = threshold_chain(read_chain(net), coordinates, threshold)
    small = shrink_chain(sparse)
    np.testing.assert_allclose(evaluate(small, X), evaluate(sparse, X), rtol=1e-12, atol=1e-12)
    assert sum(small.widths) <= sum(sparse.widths)
    assert min(small.widths) >= 1
    for k, layer in enumerate(small.hidden):
        following = small.hidden[k + 1] if k + 1 < len(small.hidden) else small.output
        if len(layer.bias) > 1:
            assert (following.weight != 0).any(dim=0).all()
            assert (layer.weight != 0).any(dim=1).all()
    if threshold == 10.0:  # nothing is left but a constant: every row at the mean
        assert np.ptp(evaluate(small, X), axis=0).max() == 0


@given(networks())
def test_a_networks_contributions_add_up_whatever_it_is(net):
    X = np.random.default_rng(1).normal(size=(40, 3))
    parts = kw.explain(net, X).contributions(X[:5])
    total = parts.base + parts.values.sum(axis=1) + parts.interactions["interaction"]
    assert np.abs(total - evaluate(read_chain(net), X[:5])).max() <= 1e-9
    # A column alone, by hand: everybody gets the row's value, and the mean moves.
    moved = X.copy()
    moved[:, 1] = X[0, 1]
    alone = evaluate(read_chain(net), moved).mean(axis=0) - evaluate(read_chain(net), X).mean(axis=0)
    np.testing.assert_allclose(parts.values[0, 1], alone, atol=1e-12)


def test_pruning_by_nothing_keeps_every_bit_and_by_something_says_its_price(wine):
    model, X, y = wine
    explanation = kw.explain(model, X, y)
    same = explanation.prune(0.0)
    assert (same.model.predict(X) == model.predict(X)).all()
    assert same.error[0] == same.error[1]
    smaller = explanation.prune(0.05)
    assert smaller.weights[1] < smaller.weights[0]
    assert smaller.parameters[1] <= smaller.parameters[0]
    predicted = smaller.model.predict(X)
    assert smaller.largest_change == pytest.approx(np.abs(predicted - model.predict(X)).max())
    assert smaller.error[1] == pytest.approx(np.sqrt(np.mean((predicted - y) ** 2)))
    assert model.predict(X) == pytest.approx(same.model.predict(X))  # the model itself is as it was
    with torch.no_grad():
        rows = torch.from_numpy(X.to_numpy(float)).float()
        np.testing.assert_allclose(smaller.network(rows)[:, 0].numpy(), predicted, atol=1e-4)


def test_a_pruned_model_is_a_model(wine, tmp_path):
    model, X, y = wine
    smaller = kw.explain(model, X, y).prune(0.03).model
    kw.save(smaller, tmp_path / "model")
    assert (kw.load(tmp_path / "model").predict(X) == smaller.predict(X)).all()
    again = kw.explain(smaller, X, y)
    assert "validation RMSE" not in again.quality.columns
    again.to_html(tmp_path / "page.html")
    with pytest.raises(DataError, match="as it was fitted"):
        again.drift  # noqa: B018
    assert len(kw.explain(model, X, y).drift.before) == 3  # the model itself still knows its start


def test_the_path_of_smaller_networks(wine):
    model, X, y = wine
    path = kw.explain(model, X, y).sparsity
    assert (path["weights"].diff().dropna() <= 0).all()
    assert path["error"].iloc[0] == pytest.approx(np.sqrt(np.mean((model.predict(X) - y) ** 2)))
    at = kw.explain(model, X, y).prune(path["threshold"].iloc[5])
    assert at.weights[1] == path["weights"].iloc[5]
    assert at.error[1] == pytest.approx(path["error"].iloc[5], rel=1e-5)


def test_a_bare_network_is_pruned_in_the_coordinates_of_the_data():
    X, y = kw.datasets.load_wine_quality("red")
    net = kw.reshape(kw.to_network(kw.MarsRegressor().fit(X, y)), (40,), X=X, random_state=0)
    pruned = kw.explain(net, X, y).prune(1e-9)
    assert pruned.model is None
    assert pruned.units[1] < 40  # units whose outputs are zero
    assert pruned.largest_change < 1e-4
