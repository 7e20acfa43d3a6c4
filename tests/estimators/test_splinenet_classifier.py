import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.utils.estimator_checks import parametrize_with_checks

import knotwork as kw
from knotwork.data.split import held_out
from knotwork.network.start import choose
from knotwork.network.start.ridge import CLASS_RIDGES
from tests.estimators.test_splinenet import FAR_TABLES, far_tables


@parametrize_with_checks([kw.SplineNetClassifier(n_members=1, hidden=(16,), epochs=20)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 4))
    score = 2 * np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=500)
    return X, np.array(["low", "middle", "high"])[np.digitize(score, [-0.5, 0.5])]


def log_loss(model, X, y, logits=None):
    logs = model.predict_log_proba(X) if logits is None else logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return -logs[np.arange(len(y)), np.searchsorted(model.classes_, y)].mean()


@pytest.mark.parametrize(("hidden", "fill"), [((32,), "random"), ((64, 32), "hinge"), ((64, 16, 8), "zero")])
def test_epoch_zero_is_the_spline_and_the_result_is_never_worse(data, hidden, fill):
    X, y = data
    model = kw.SplineNetClassifier(n_members=1, hidden=hidden, fill=fill, epochs=6, random_state=3).fit(X, y)
    held = held_out(X, 0.15, int(np.random.RandomState(3).randint(2**31 - 1)))
    spline_loss = log_loss(model, X[held], y[held], model.spline_(X[held]))
    assert model.history_.validation_loss[0] == pytest.approx(spline_loss, rel=1e-9)
    kept = log_loss(model, X[held], y[held])
    assert kept <= spline_loss * (1 + 1e-6)
    assert kept == pytest.approx(min(model.history_.validation_loss), rel=1e-5)
    assert tuple(m.out_features for m in model.network_ if isinstance(m, torch.nn.Linear)) == (*hidden, 3)


@settings(max_examples=15)
@given(
    seed=st.integers(0, 1000),
    classes=st.integers(2, 6),
    features=st.integers(1, 5),
    scales=st.lists(st.sampled_from([1e-6, 1e-2, 1.0, 1e3, 1e6]), min_size=5, max_size=5),
)
def test_network_logits_are_the_splines(seed, classes, features, scales):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(80, features)) * scales[:features]
    y = (np.argsort(np.argsort(np.abs(X[:, 0]))) * classes) // 80
    spline = kw.MarsClassifier().fit(X, y).spline_
    far = np.concatenate([X, 100 * X])
    parts = np.abs(spline.intercept) + spline.basis(far) @ np.abs(spline.coef)
    with torch.no_grad():
        out = kw.to_network(spline, dtype=torch.float64)(torch.from_numpy(far)).numpy()
    assert (np.abs(out - spline(far).reshape(out.shape)) <= 1e-12 * parts).all()
    knots = np.array([[abs(getattr(t, "knot", 0.0)) for t in spline.terms]])
    size = np.abs(far[:, [t.feature for t in spline.terms]]) + knots
    with torch.no_grad():
        out = kw.to_network(spline, dtype=torch.float32)(torch.from_numpy(far).float()).double().numpy()
    bound = 1e-6 * (np.abs(spline.intercept) + size @ np.abs(spline.coef))
    assert (np.abs(out - spline(far).reshape(out.shape)) <= bound).all()


def test_two_classes_have_one_logit(data):
    X, y = data
    model = kw.SplineNetClassifier(n_members=1, hidden=(32,), epochs=0, random_state=0).fit(X, y == "low")
    assert model.network_[-1].out_features == 1
    np.testing.assert_allclose(model.decision_function(X), model.spline_(X), atol=1e-4)
    assert model.predict_proba(X).shape == (500, 2)
    assert model.predict(X).dtype == bool


def test_training_helps_where_the_truth_is_not_additive(data):
    X, y = data
    model = kw.SplineNetClassifier(n_members=1, hidden=(64, 64), epochs=40, random_state=0).fit(X[:400], y[:400])
    assert log_loss(model, X[400:], y[400:]) < 0.95 * log_loss(model, X[400:], y[400:], model.spline_(X[400:]))


def test_a_random_start_has_no_spline(data):
    X, y = data
    model = kw.SplineNetClassifier(n_members=1, start="random", hidden=(32,), epochs=3, random_state=0).fit(X, y)
    assert model.spline_ is None
    assert len(model.history_) == 4


def test_equal_seeds_give_equal_bits(data):
    X, y = data
    first, second = (
        kw.SplineNetClassifier(n_members=1, hidden=(32, 16), epochs=3, dropout=0.1, random_state=5)
        .fit(X, y)
        .predict_proba(X)
        for _ in range(2)
    )
    assert np.array_equal(first, second)


def test_label_smoothing_calms_the_logits(data):
    X, y = data
    sharp, smooth = (
        kw.SplineNetClassifier(
            n_members=1,
            hidden=(32,),
            start="random",
            epochs=15,
            label_smoothing=s,
            patience=None,
            average=0,
            random_state=0,
        ).fit(X, y)
        for s in (0.0, 0.5)
    )
    assert np.abs(smooth.decision_function(X)).max() < np.abs(sharp.decision_function(X)).max()


@pytest.mark.parametrize("classes", [2, 3])
def test_losses_in_the_history_are_without_label_smoothing(data, classes):
    X, y = data
    y = y if classes == 3 else y == "high"
    model = kw.SplineNetClassifier(n_members=1, hidden=(32,), epochs=5, label_smoothing=0.3, random_state=0).fit(X, y)
    held = held_out(X, 0.15, int(np.random.RandomState(0).randint(2**31 - 1)))
    expected = [log_loss(model, X[rows], y[rows]) for rows in (held, ~held)]
    best = model.history_.best_epoch
    found = model.history_.validation_loss[best], model.history_.train_loss[best]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_class_weights_are_sample_weights(data):
    X, y = data
    weight = {"low": 1.0, "middle": 2.0, "high": 4.0}
    by_class = kw.SplineNetClassifier(n_members=1, hidden=(16,), epochs=2, random_state=0, class_weight=weight).fit(
        X, y
    )
    by_row = kw.SplineNetClassifier(n_members=1, hidden=(16,), epochs=2, random_state=0)
    by_row.fit(X, y, sample_weight=[weight[label] for label in y])
    assert np.array_equal(by_class.predict_proba(X), by_row.predict_proba(X))


def test_a_class_that_only_validation_rows_have():
    X, y = load_iris(return_X_y=True)
    labels = y.copy()
    held = held_out(X, 0.15, int(np.random.RandomState(0).randint(2**31 - 1)))
    labels[np.flatnonzero(held)[0]] = 9
    model = kw.SplineNetClassifier(n_members=1, hidden=(16,), epochs=2, random_state=0).fit(X, labels)
    assert model.classes_.tolist() == [0, 1, 2, 9]
    assert np.isfinite(model.history_.validation_loss).all()


def test_pickles(data):
    X, y = data
    model = kw.SplineNetClassifier(n_members=1, hidden=(16,), epochs=1, random_state=0).fit(X, y)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"hidden": (32, 1)}, "hidden layer 1 needs a width of at least 2 to carry the outputs, got 1"),
        ({"hidden": (32, 3), "activation": "silu"}, "hidden layer 1 needs a width of at least 6"),
        ({"label_smoothing": 1.0}, "'label_smoothing' parameter"),
        ({"class_weight": "even"}, "'class_weight' parameter"),
    ],
)
def test_parameters_out_of_range_are_refused(data, parameters, message):
    with pytest.raises(ValueError, match=message):
        kw.SplineNetClassifier(n_members=1, **parameters).fit(*data)


def test_one_class_is_refused(data):
    with pytest.raises(ValueError, match="at least 2 classes"):
        kw.SplineNetClassifier(n_members=1).fit(data[0], np.zeros(500))


@pytest.mark.parametrize("interacts", [False, True])
def test_interactions_must_be_better(interacts):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(600, 4))
    score = 6 * X[:, 0] * X[:, 1] if interacts else 4 * np.abs(X[:, 0]) - 2
    y = rng.uniform(size=600) < 1 / (1 + np.exp(-score))
    spline = kw.SplineNetClassifier(n_members=1, epochs=0, random_state=0).fit(X, y).spline_
    assert any(len(term.features) == 2 for term in spline.terms) == interacts


@pytest.mark.parametrize("interacts", [False, True])
def test_interactions_are_searched_for_where_pairs_matter(interacts, monkeypatch):
    degrees = []
    fit = choose._splines
    monkeypatch.setattr(choose, "_splines", lambda *a: degrees.append(a[1].max_degree) or fit(*a))
    rng = np.random.default_rng(5)
    X = rng.normal(size=(800, 3))
    score = 3 * X[:, 0] * X[:, 1] if interacts else 3 * X[:, 0] + X[:, 1]
    kw.SplineNetClassifier(n_members=1, hidden=(32, 32), epochs=0).fit(X, score + rng.logistic(size=800) > 0)
    assert degrees == ([1, 2, 2] if interacts else [1])


def test_where_some_features_interact_all_are_searched_too(monkeypatch):
    asked = []
    fit = choose._splines
    monkeypatch.setattr(choose, "_splines", lambda *a: asked.append(a[1].interacting) or fit(*a))
    rng = np.random.default_rng(5)
    X = rng.normal(size=(800, 31))
    y = 3 * X[:, 0] * X[:, 1] + rng.logistic(size=800) > 0
    for features in (30, 31):
        kw.SplineNetClassifier(n_members=1, hidden=(32, 32), epochs=0).fit(X[:, :features], y)
    assert asked == [None, (0, 1), tuple(range(30)), None, (0, 1)]


@pytest.mark.parametrize("noise", [0.0, 4.0])
def test_the_ridge_goes_down_while_the_validation_rows_gain(noise):
    """Classes that are easy to tell apart want little of it, noise much."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 6))
    y = np.abs(X[:, 0]) + X[:, 1] - 0.8 + noise * rng.logistic(size=600) > 0
    start = {"max_degree": 1, "epochs": 0, "random_state": 0}
    losses = [
        kw.SplineNetClassifier(n_members=1, ridge=ridge, **start).fit(X, y).history_.validation_loss[0]
        for ridge in CLASS_RIDGES
    ]
    last = next((k for k in range(1, len(losses)) if losses[k] >= losses[k - 1]), len(losses)) - 1
    chosen = kw.SplineNetClassifier(n_members=1, **start).fit(X, y).history_.validation_loss[0]
    assert chosen == pytest.approx(losses[last], rel=0.02)
    assert (last == 0) == (noise > 0)
    assert chosen < 0.7 * losses[0] or noise > 0


def test_there_may_be_more_classes_than_half_the_units():
    rng = np.random.default_rng(0)
    centres, y = rng.normal(size=(40, 5)), np.repeat(np.arange(40), 12)
    X = centres[y] + 0.2 * rng.normal(size=(480, 5))
    model = kw.SplineNetClassifier(n_members=1, hidden=(48, 48), epochs=1, random_state=0).fit(X, y)
    start = model.spline_(X)
    with torch.no_grad():
        shown = model.start_network_(torch.tensor(X, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(shown, start, atol=1e-3 * np.abs(start).max())
    assert model.score(X, y) > 0.5


def test_many_classes_are_not_asked_for_interactions_unless_told():
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, size=(700, 3))
    y = np.digitize(X[:, 0] * X[:, 1], [-0.1, 0.1])
    for degree, pairs in (("auto", False), (2, True)):
        spline = kw.SplineNetClassifier(n_members=1, max_degree=degree, epochs=0, random_state=0).fit(X, y).spline_
        assert any(len(term.features) == 2 for term in spline.terms) == pairs


@pytest.mark.parametrize("table", FAR_TABLES)
@pytest.mark.parametrize("classes", [2, 3])
def test_the_history_tells_the_truth_wherever_the_columns_lie(data, table, classes):
    X, y = data
    X, y = far_tables(X)[table], y if classes == 3 else y == "low"
    model = kw.SplineNetClassifier(n_members=1, hidden=(32, 16), epochs=15, random_state=0).fit(X, y)
    held = held_out(X, 0.15, int(np.random.RandomState(0).randint(2**31 - 1)))
    told = model.history_.validation_loss[model.history_.best_epoch]
    share = np.unique(y[held], return_counts=True)[1] / held.sum()
    assert told < 0.9 * -(share * np.log(share)).sum()
    assert log_loss(model, X[held], y[held]) == pytest.approx(told, abs=1e-5)
    for net, loss in ((model.network_, told), (model.start_network_, model.history_.validation_loss[0])):
        with torch.no_grad():
            logits = net(torch.tensor(X[held])).double().numpy()
        logits = np.hstack([np.zeros_like(logits), logits]) if classes == 2 else logits
        assert log_loss(model, X[held], y[held], logits) == pytest.approx(loss, abs=1e-5)
