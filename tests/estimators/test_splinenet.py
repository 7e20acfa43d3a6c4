import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.utils.estimator_checks import parametrize_with_checks

import knotwork as kw
from knotwork.data.split import held_out
from knotwork.network.start import choose


@parametrize_with_checks([kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=20)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.normal(size=500)
    return X, y


@pytest.mark.parametrize("hidden", [(32,), (64, 32), (64, 16, 8)])
@pytest.mark.parametrize("fill", ["random", "hinge", "zero"])
def test_epoch_zero_is_the_spline_and_the_result_is_never_worse(data, hidden, fill):
    X, y = data
    model = kw.SplineNetRegressor(n_members=1, hidden=hidden, fill=fill, epochs=8, random_state=3).fit(X, y)
    seed = int(np.random.RandomState(3).randint(2**31 - 1))
    held = held_out(X, 0.15, seed)
    spline_loss = np.mean((model.spline_(X[held]) - y[held]) ** 2)
    assert model.history_.validation_loss[0] == pytest.approx(spline_loss, rel=1e-9)
    kept = np.mean((model.predict(X[held]) - y[held]) ** 2)
    assert kept <= spline_loss * (1 + 1e-6)
    assert kept == pytest.approx(min(model.history_.validation_loss), rel=1e-5)
    assert tuple(m.out_features for m in model.network_ if isinstance(m, torch.nn.Linear)) == (*hidden, 1)


def test_no_epochs_is_the_spline(data):
    X, y = data
    model = kw.SplineNetRegressor(n_members=1, epochs=0, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), model.spline_(X), atol=1e-5)


def test_the_network_takes_raw_features_as_the_encoder_orders_them():
    X, y = kw.datasets.load_abalone()
    model = kw.SplineNetRegressor(n_members=1, hidden=(32,), epochs=2, random_state=0).fit(X, y)
    rows = torch.from_numpy(model.encoder_.encode(X)).float()
    with torch.no_grad():
        out = model.network_(rows).numpy()[:, 0]
    np.testing.assert_allclose(out, model.predict(X), rtol=1e-4)
    layers = [kw.Scaling, torch.nn.Linear, torch.nn.ReLU, torch.nn.Linear, kw.Scaling]
    for net in (model.network_, model.start_network_):
        assert [type(m) for m in net] == layers
        assert {p.dtype for p in net.parameters()} == {torch.float32}
        assert {b.dtype for m in (net[0], net[-1]) for b in (m.centre, m.scale)} == {torch.float64}
        np.testing.assert_array_equal(net[0].centre, model.coordinates_.x_centre)
        np.testing.assert_array_equal(net[0].scale, model.coordinates_.x_scale)
    assert model.score(X, y) > 0.5


def test_training_helps_where_the_truth_is_not_additive(data):
    X, y = data
    model = kw.SplineNetRegressor(n_members=1, hidden=(64, 64), max_degree=1, epochs=60, random_state=0).fit(
        X[:400], y[:400]
    )
    test = np.mean((model.predict(X[400:]) - y[400:]) ** 2)
    assert test < 0.5 * np.mean((model.spline_(X[400:]) - y[400:]) ** 2)


def test_a_random_start_has_no_spline(data):
    X, y = data
    model = kw.SplineNetRegressor(n_members=1, start="random", hidden=(32,), epochs=3, random_state=0).fit(X, y)
    assert model.spline_ is None
    assert len(model.history_) == 4


def test_equal_seeds_give_equal_bits(data):
    X, y = data
    first, second = (
        kw.SplineNetRegressor(n_members=1, hidden=(32, 16), epochs=4, dropout=0.1, random_state=5).fit(X, y).predict(X)
        for _ in range(2)
    )
    assert np.array_equal(first, second)
    other = (
        kw.SplineNetRegressor(n_members=1, hidden=(32, 16), epochs=4, dropout=0.1, random_state=6).fit(X, y).predict(X)
    )
    assert not np.array_equal(first, other)


def test_units_of_the_data_do_not_matter(data):
    X, y = data
    units, y_unit = np.array([1e6, 1e-6, 1.0, 1e3]), 1e9
    fit = [
        kw.SplineNetRegressor(n_members=1, hidden=(32,), epochs=60, random_state=0).fit(A, b)
        for A, b in ((X, y), (X * units, y * y_unit))
    ]
    # The split depends on the values, so the two are alike, not equal.
    scores = fit[0].score(X, y), fit[1].score(X * units, y * y_unit)
    assert scores[1] == pytest.approx(scores[0], abs=0.05)


def test_the_spline_may_have_rows_of_its_own(data):
    X, y = data
    model = kw.SplineNetRegressor(n_members=1, hidden=(32,), epochs=2, spline_fraction=0.5, random_state=0).fit(X, y)
    assert model.spline_ != kw.SplineNetRegressor(n_members=1, hidden=(32,), epochs=2, random_state=0).fit(X, y).spline_


@pytest.mark.parametrize("width", [2, 3, 5])
def test_a_narrow_layer_gets_a_smaller_spline(data, width):
    X, y = data
    model = kw.SplineNetRegressor(n_members=1, hidden=(width,), epochs=0, random_state=0).fit(X, y)
    assert 1 <= len(model.spline_.terms) <= width
    np.testing.assert_allclose(model.predict(X), model.spline_(X), atol=1e-5)


@pytest.mark.parametrize("activation", ["leaky_relu", "prelu", "silu", "gelu", "softplus"])
def test_other_activations(data, activation):
    X, y = data
    model = kw.SplineNetRegressor(n_members=1, hidden=(64, 8), activation=activation, epochs=2, random_state=0).fit(
        X, y
    )
    start = kw.SplineNetRegressor(n_members=1, hidden=(64, 8), activation=activation, epochs=0, random_state=0).fit(
        X, y
    )
    difference = np.abs(start.predict(X) - start.spline_(X))
    if activation in ("leaky_relu", "prelu"):
        assert difference.max() < 1e-4
    else:  # smooth units that survive training are near the spline, not equal to it
        assert 0 < difference.mean() < 0.03 * y.std()
        assert start.start_network_.conversion.bound == np.inf
        assert model.network_.conversion.bound == 0  # it is what it is
    assert model.score(X, y) > 0.3


def test_several_outputs(data):
    X, y = data
    model = kw.SplineNetRegressor(n_members=1, hidden=(48, 16), epochs=3, random_state=0).fit(
        X, np.stack([y, 100 + X[:, 3]], axis=1)
    )
    assert model.predict(X).shape == (500, 2)
    assert model.spline_.coef.shape[1] == 2


def test_sample_weights_are_heard(data):
    X, y = data
    odd = np.where(X[:, 3] > 0, y, 50.0)
    weight = np.where(X[:, 3] > 0, 1.0, 1e-6)
    model = kw.SplineNetRegressor(n_members=1, hidden=(32,), epochs=3, random_state=0)
    with pytest.warns(UserWarning, match="sum to"):
        model.fit(X, odd, sample_weight=weight * 0.9)
    clean = X[:, 3] > 0
    assert np.mean((model.predict(X[clean]) - y[clean]) ** 2) < 1


def test_pickles(data):
    X, y = data
    model = kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=1, random_state=0).fit(X, y)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


def test_progress_is_shown(data, capsys):
    kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=2, verbose=1).fit(*data)
    assert "epoch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden": ()}, "at least one layer"),
        ({"hidden": (0,)}, "at least one unit"),
        ({"hidden": (1,)}, "need at least 2"),
        ({"hidden": (32, 1)}, "hidden layer 1 needs a width of at least 2"),
        ({"start": "warm"}, "'start' parameter"),
        ({"activation": "tanh"}, "'activation' parameter"),
        ({"activation": torch.nn.Tanh()}, "cannot be held by Tanh"),
        ({"epochs": -1}, "'epochs' parameter"),
        ({"learning_rate": 0.0}, "'learning_rate' parameter"),
        ({"validation_fraction": 1.0}, "'validation_fraction' parameter"),
        ({"spline_fraction": 0.0}, "'spline_fraction' parameter"),
    ],
)
def test_parameters_out_of_range_are_refused(data, parameters, message):
    X, y = data
    with pytest.raises(ValueError, match=message):
        kw.SplineNetRegressor(n_members=1, **parameters).fit(X, 3 * X[:, 0] + np.abs(y))


def test_missing_values_are_refused_with_advice(data):
    X, y = data
    with pytest.raises(ValueError, match=r"column 'a' contains NaN.*SimpleImputer\), or fit with missing='indicator'"):
        kw.SplineNetRegressor(n_members=1, missing="error").fit(
            pd.DataFrame({"a": np.where(X[:, 0] > 1, np.nan, X[:, 0]), "b": X[:, 1]}), y
        )


@pytest.mark.parametrize("interacts", [False, True])
def test_interactions_are_searched_for_where_pairs_matter(interacts, monkeypatch):
    degrees = []
    fit = choose._splines
    monkeypatch.setattr(choose, "_splines", lambda *a: degrees.append(a[1].max_degree) or fit(*a))
    rng = np.random.default_rng(6)
    X = rng.normal(size=(800, 3))
    first = np.sin(2 * X[:, 0]) + rng.normal(size=800)
    second = X[:, 1] * X[:, 2] if interacts else np.abs(X[:, 1])
    kw.SplineNetRegressor(n_members=1, hidden=(64, 64), epochs=0).fit(
        X, np.column_stack([first, second + rng.normal(size=800)])
    )
    assert degrees == ([1, 2] if interacts else [1])


def test_the_degree_is_chosen_on_the_validation_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 4))
    noise = rng.normal(size=600) * 0.05
    together = kw.SplineNetRegressor(n_members=1, hidden=(64, 64), epochs=1, random_state=0).fit(
        X, X[:, 0] * X[:, 1] * 4 + noise
    )
    assert any(isinstance(term, kw.Min) for term in together.spline_.terms)
    apart = kw.SplineNetRegressor(n_members=1, hidden=(64, 64), epochs=1, random_state=0).fit(
        X, np.abs(X[:, 0] - 0.5) + noise
    )
    assert not any(isinstance(term, kw.Min) for term in apart.spline_.terms)
    losses = [
        kw.SplineNetRegressor(n_members=1, hidden=(64, 64), max_degree=degree, epochs=0, random_state=0)
        .fit(X, X[:, 0] * X[:, 1] * 4 + noise)
        .history_.validation_loss[0]
        for degree in (1, 2, "auto")
    ]
    assert losses[2] == min(losses[:2])


def test_one_hidden_layer_has_no_room_for_interactions():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 3))
    model = kw.SplineNetRegressor(n_members=1, hidden=(64,), epochs=1, random_state=0).fit(X, X[:, 0] * X[:, 1])
    assert not any(isinstance(term, kw.Min) for term in model.spline_.terms)


@pytest.mark.parametrize(("noise", "ridge"), [(0.01, 1e-3), (3.0, 1e-2)])
def test_the_ridge_is_chosen_on_the_validation_rows(noise, ridge):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 12))
    y = 3 * np.abs(X[:, 0]) + X[:, 1] + noise * rng.normal(size=300)
    starts = {
        choice: kw.SplineNetRegressor(n_members=1, hidden=(64,), ridge=choice, epochs=0, random_state=0).fit(X, y)
        for choice in ("auto", 1e-3, 1e-2)
    }
    losses = {choice: model.history_.validation_loss[0] for choice, model in starts.items()}
    assert losses["auto"] == losses[ridge] == min(losses.values())
    assert losses[1e-3] != losses[1e-2]


@pytest.mark.parametrize(("rows", "weight", "pairs"), [(300, 1.0, False), (300, 2.0, True), (900, 1.0, True)])
def test_few_rows_are_not_asked_for_interactions(rows, weight, pairs):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(rows, 3))
    model = kw.SplineNetRegressor(n_members=1, epochs=0, random_state=0).fit(
        X, 4 * X[:, 0] * X[:, 1], np.full(rows, weight)
    )
    assert any(isinstance(term, kw.Min) for term in model.spline_.terms) == pairs


def held_out_rows(X, random_state=0):
    return held_out(X, 0.15, int(np.random.RandomState(random_state).randint(2**31 - 1)))


@pytest.mark.parametrize("estimator", [kw.SplineNetRegressor, kw.SplineNetClassifier])
def test_units_that_the_spline_leaves_over_are_filled_as_asked(data, estimator):
    X, y = data
    y = y > 0 if estimator is kw.SplineNetClassifier else y
    features = {}
    for fill in ("hinge", "random", "zero"):
        model = estimator(hidden=(64, 8), fill=fill, max_degree=1, epochs=1, random_state=0).fit(X, y)
        features[fill] = np.count_nonzero(model.start_network_[1].weight.detach(), axis=1)
    # The units of an additive spline read one feature each.
    assert (features["hinge"] == 1).all()
    assert set(features["random"]) == {1, 4}
    assert set(features["zero"]) == {0, 1}


def test_the_spline_and_the_coordinates_know_nothing_of_the_held_out_rows(data):
    X, y = data
    other = np.where(held_out_rows(X), 1e3 * np.cos(9 * y), y)
    first, second = (
        kw.SplineNetRegressor(n_members=1, hidden=(32,), max_degree=1, ridge=1e-3, epochs=0, random_state=0).fit(
            X, target
        )
        for target in (y, other)
    )
    assert first.spline_ == second.spline_
    assert first.coordinates_.y_scale == second.coordinates_.y_scale
    assert first.history_.train_loss == second.history_.train_loss
    assert first.history_.validation_loss[0] < 1e-3 * second.history_.validation_loss[0]


def test_rows_of_the_spline_are_not_trained_on_if_it_has_rows_of_its_own(data):
    X, y = data
    settings = {"hidden": (32,), "max_degree": 1, "ridge": 0.0, "epochs": 1, "spline_fraction": 0.25, "random_state": 0}
    batches = []

    def look(module, args):
        if torch.is_grad_enabled() and args[0].shape[1:] == (4,) and isinstance(module, torch.nn.Linear):
            batches.append(args[0].numpy().copy())

    handle = torch.nn.modules.module.register_module_forward_pre_hook(look)
    try:
        model = kw.SplineNetRegressor(n_members=1, **settings).fit(X, y)
    finally:
        handle.remove()
    c = model.coordinates_
    rows = np.concatenate(batches) * c.x_scale + c.x_centre
    trained = np.abs(X[:, None] - rows).max(axis=2).min(axis=1) < 1e-9
    assert trained.sum() == len(rows) == pytest.approx(0.85 * 0.75 * len(X), abs=2)
    assert not (trained & held_out_rows(X)).any()
    again = kw.SplineNetRegressor(n_members=1, **settings).fit(X, np.where(trained, np.cos(9 * y), y))
    # Both are held at the range of the responses that are trained on.
    assert replace(again.spline_, output_limits=None) == replace(model.spline_, output_limits=None)


def test_held_out_rows_count_by_their_weights(data):
    X, y = data
    weight = np.exp(X[:, 0])
    model = kw.SplineNetRegressor(n_members=1, hidden=(32,), epochs=2, random_state=0).fit(X, y, sample_weight=weight)
    held, errors = held_out_rows(X), np.square(model.spline_(X) - y)
    assert model.history_.validation_loss[0] == pytest.approx(np.average(errors[held], weights=weight[held]), rel=1e-9)
    assert model.history_.train_loss[0] == pytest.approx(np.average(errors[~held], weights=weight[~held]), rel=1e-9)


@pytest.mark.parametrize("estimator", [kw.SplineNetRegressor, kw.SplineNetClassifier])
def test_every_parameter_of_training_is_heard(data, estimator):
    X, y = data
    y = y > 0 if estimator is kw.SplineNetClassifier else y
    settings = {"hidden": (16,), "max_degree": 1, "epochs": 6, "learning_rate": 0.1, "patience": None}

    def history(**changes):
        return (
            estimator(**{**settings, "setback": None, "average": 1.0, "random_state": 0, **changes}).fit(X, y).history_
        )

    def losses(**changes):
        return history(**changes).train_loss

    plain = losses()
    assert len(plain) == 7
    assert losses() == plain
    # No epoch is better than the start at this rate.
    worse = {"learning_rate": 1e3, "warmup": 0.0}
    assert len(history(patience=2, **worse)) == 3
    assert history(setback=0.05, **worse).undone == [1, 2, 3, 4, 5, 6]
    assert history(setback=None, **worse).undone == []
    changes = [
        {"batch_size": 50}, {"learning_rate": 0.2}, {"weight_decay": 1.0}, {"warmup": 0.5}, {"l1": 0.01},
        {"dropout": 0.2}, {"average": 5.0}, {"fill": "hinge"}, {"validation_fraction": 0.3},
    ]  # fmt: skip
    if estimator is kw.SplineNetClassifier:
        changes.append({"label_smoothing": 0.2})
    for change in changes:
        changed = losses(**change)
        assert len(changed) == 7
        assert changed[1:] != plain[1:], change


@pytest.mark.parametrize("ridge", [1e-3, 1e-2])
def test_the_ridge_is_chosen_by_the_held_out_rows_that_count(data, ridge):
    X, y = data
    settings = {"hidden": (32,), "max_degree": 1, "epochs": 0, "random_state": 0}
    small, large = (kw.SplineNetRegressor(n_members=1, ridge=r, **settings).fit(X, y).spline_ for r in (1e-3, 1e-2))
    prefers_small = np.abs(small(X) - y) < np.abs(large(X) - y)
    # Both splines stay as they are: the rows that they are fitted to have a weight of one.
    weight = np.where(held_out_rows(X), np.where(prefers_small == (ridge == 1e-3), 20.0, 0.05), 1.0)
    chosen = kw.SplineNetRegressor(n_members=1, **settings).fit(X, y, sample_weight=weight).spline_
    expected, other = (small, large) if ridge == 1e-3 else (large, small)
    np.testing.assert_allclose(chosen(X), expected(X), rtol=1e-9, atol=1e-9)
    assert np.abs(chosen(X) - other(X)).max() > 1e-4


def test_every_parameter_of_the_search_is_heard(data):
    X, y = data

    def spline(**changes):
        settings = {"hidden": (64, 64), "max_degree": 1, "ridge": 1e-3, "epochs": 0, "random_state": 0, **changes}
        return kw.SplineNetRegressor(n_members=1, **settings).fit(X, y).spline_

    plain = spline()
    assert len(spline(max_terms=4).terms) == 3
    assert len(spline(penalty=1e6).terms) == 0
    assert len(spline(threshold=0.1).terms) < len(plain.terms)
    assert spline(ridge=1.0).terms == plain.terms
    assert np.abs(spline(ridge=1.0).coef).sum() < 0.8 * np.abs(plain.coef).sum()
    assert any(isinstance(term, kw.Min) for term in spline(max_degree=2).terms)


def far_tables(X):
    """The same four columns in places where single precision cannot tell their rows apart."""
    seconds = 1.7e9 + 30 * X  # Unix seconds of a few minutes
    return {
        "at zero": X,
        "1e8 stds from zero": X + 1e8,
        "1e8 stds of any scale": (X + np.array([1e8, -1e8, 1e8, 3e7])) * [1e-6, 1.0, 1e6, 40.0],
        "unix seconds": seconds,
        "unix seconds beside others": np.column_stack([seconds[:, 0], X[:, 1:]]),
        "unix days": np.round(1.7e9 + 86400 * 100 * X),
    }


FAR_TABLES = list(far_tables(np.zeros((1, 4))))


@pytest.mark.parametrize("table", FAR_TABLES)
@pytest.mark.parametrize("far_response", [False, True])
def test_the_history_tells_the_truth_wherever_the_columns_lie(data, table, far_response):
    X, y = data
    X, y = far_tables(X)[table], y + 1e8 * far_response
    model = kw.SplineNetRegressor(n_members=1, hidden=(32, 16), epochs=15, random_state=0).fit(X, y)
    held = held_out_rows(X)
    variance = np.var(y[held])
    told = 1 - model.history_.validation_loss[model.history_.best_epoch] / variance
    assert told > 0.5
    assert 1 - np.mean((model.predict(X[held]) - y[held]) ** 2) / variance == pytest.approx(told, abs=1e-5)
    at_first = 1 - model.history_.validation_loss[0] / variance
    assert 1 - np.mean((model.spline_(X[held]) - y[held]) ** 2) / variance == pytest.approx(at_first, abs=1e-5)
    if not far_response:  # single precision cannot hold such a response
        for net, r2 in ((model.network_, told), (model.start_network_, at_first)):
            with torch.no_grad():
                out = net(torch.tensor(X[held])).double().numpy()[:, 0]
            assert 1 - np.mean((out - y[held]) ** 2) / variance == pytest.approx(r2, abs=1e-5)


@pytest.mark.parametrize("far", ["1e8 stds from zero", "unix seconds"])
def test_columns_far_from_zero_survive_pickling_saving_and_conversion(data, far, tmp_path):
    X, y = data
    X = far_tables(X)[far]
    model = kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=2, random_state=0).fit(X, y)
    expected = model.predict(X)
    kw.save(model, tmp_path)
    for again in (pickle.loads(pickle.dumps(model)), kw.load(tmp_path)):
        np.testing.assert_array_equal(again.predict(X), expected)
    with torch.no_grad():
        for dtype, limit in ((torch.float32, 1e-5), (torch.float64, 1e-9)):
            out = kw.to_network(model, dtype=dtype)(torch.tensor(X)).double().numpy()[:, 0]
            np.testing.assert_allclose(out, expected, atol=limit * y.std())


@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.3])
def test_a_start_by_hubers_loss_is_a_spline_however_little_noise_there_is(noise):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = 2 * X[:, 0] + np.abs(X[:, 1]) + noise * rng.normal(size=300)
    model = kw.SplineNetRegressor(n_members=1, hidden=(32, 32), epochs=0, loss="huber", random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95
