import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import knotwork as kw
from knotwork.pwl.maxaffine import FitRules, Rows, _cell_fit, _joint_fit

ALL = [
    kw.MaxAffineRegressor(n_init=2, max_pieces=4),
    kw.MaxAffineRegressor(n_init=2, max_pieces=4, shape="concave"),
    kw.DCMaxAffineRegressor(n_init=2, max_pieces=4),
    kw.HingingHyperplanesRegressor(n_init=2, max_hinges=4),
]


@parametrize_with_checks(ALL)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def make_rows(seed, n=200, d=3):
    rng = np.random.default_rng(seed)
    Z = np.column_stack([np.ones(n), rng.normal(size=(n, d))])
    return Rows(Z, rng.normal(size=n), rng.uniform(0.5, 2, n), [rng.permutation(n) for _ in range(3)])


def test_a_cell_is_fitted_by_weighted_least_squares():
    rows = make_rows(0)
    cell = rows.Z[:, 1] > 0
    root = np.sqrt(rows.weight[cell])
    expected, *_ = np.linalg.lstsq(rows.Z[cell] * root[:, None], rows.y[cell] * root, rcond=None)
    np.testing.assert_allclose(_cell_fit(rows, cell, np.zeros(4), 0.0), expected, atol=1e-8)


def test_all_pieces_of_a_difference_are_fitted_at_once():
    rows = make_rows(1)
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=200), rng.integers(3, size=200)
    origin = np.zeros((6, 4))
    origin[:3] = [0.3, -0.2, 0.1, 0.0]
    ridge = 1e-4
    design = np.zeros((200, 6, 4))
    design[np.arange(200), labels[0]] = rows.Z
    design[np.arange(200), 3 + labels[1]] = -rows.Z
    design = design.reshape(200, 24)
    gram = (design * rows.weight[:, None]).T @ design + ridge * rows.weight.sum() * np.eye(24)
    moment = design.T @ (rows.weight * (rows.y - design @ origin.ravel()))
    expected = origin + np.linalg.solve(gram, moment).reshape(6, 4)
    np.testing.assert_allclose(_joint_fit(rows, labels, 3, origin, ridge), expected, atol=1e-9)


@pytest.fixture(scope="module")
def convex():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3)) * [1, 10, 100]
    theta = np.array([[0, 1, 0.1, 0], [0, -1, 0, 0.01], [1, 0, -0.1, 0], [-1, 2, 0, -0.02]])
    return X, (theta[:, 0] + X @ theta[:, 1:].T).max(axis=1), theta


def test_a_maximum_of_planes_is_found_again(convex):
    X, y, theta = convex
    model = kw.MaxAffineRegressor(ridge=0.0, random_state=0).fit(X, y)
    assert model.score(X, y) > 1 - 1e-9
    distance = np.abs(model.pwl_.theta[:, None] - theta).max(axis=2).min(axis=0)
    assert distance.max() < 1e-6
    concave = kw.MaxAffineRegressor(ridge=0.0, shape="concave", random_state=0).fit(X, -y)
    assert concave.score(X, -y) > 1 - 1e-9
    assert concave.pwl_.sets == tuple((k,) for k in range(len(concave.pwl_.theta)))
    assert model.fit_.sizes[0][:4] == (1, 2, 3, 4)
    assert len(model.fit_.errors[0]) == len(model.fit_.sizes[0])


def test_the_fit_of_a_maximum_is_convex_and_of_a_difference_need_not_be(convex):
    X, _, _ = convex
    wave = np.sin(X[:, 0] * 2) + 0.1 * X[:, 1]
    one = kw.MaxAffineRegressor(random_state=0).fit(X, wave)
    two = kw.DCMaxAffineRegressor(random_state=0).fit(X, wave)
    a, b = X[:300], X[300:]
    middle = one.predict((a + b) / 2)
    assert (middle <= (one.predict(a) + one.predict(b)) / 2 + 1e-9).all()
    assert two.score(X, wave) > one.score(X, wave) + 0.05
    np.testing.assert_allclose(two.pwl_.to_lattice()(X), two.predict(X), atol=1e-9)


@pytest.mark.parametrize("model", ALL, ids=lambda m: type(m).__name__)
def test_real_data_networks_saving_and_several_responses(model, tmp_path):
    X, y = kw.datasets.load_abalone()
    X, y = X[:800], y[:800]
    fitted = clone(model).set_params(random_state=0).fit(X, y)
    linear = 1 - np.linalg.lstsq(np.column_stack([np.ones(800), fitted.encoder_.encode(X)]), y, rcond=None)[1].sum() / (
        800 * np.var(y)
    )  # fmt: skip
    floor = 0.3 if getattr(model, "shape", "") == "convex" else min(0.4, linear)
    assert fitted.score(X, y) > floor
    rows = torch.from_numpy(np.ascontiguousarray(fitted.encoder_.encode(X)))
    for fold in (True, False):
        net = kw.to_network(fitted, fold=fold, dtype=torch.float64)
        np.testing.assert_allclose(net(rows)[:, 0].detach().numpy(), fitted.predict(X), atol=1e-9)
    kw.save(fitted, tmp_path)
    assert np.array_equal(kw.load(tmp_path).predict(X), fitted.predict(X))
    two = clone(fitted).fit(X, np.column_stack([y, -2.0 * y]))
    assert two.predict(X).shape == (800, 2)
    np.testing.assert_allclose(two.predict(X)[:, 0], fitted.predict(X), atol=1e-9)
    net = kw.to_network(two, dtype=torch.float64)
    np.testing.assert_allclose(net(rows).detach().numpy(), two.predict(X), atol=1e-8)


@pytest.mark.parametrize("model", ALL, ids=lambda m: type(m).__name__)
def test_odd_tables(model):
    model = clone(model).set_params(random_state=0)
    constant = model.fit(np.arange(20.0).reshape(10, 2), np.full(10, 3.0))
    np.testing.assert_allclose(constant.predict([[5.0, 9.0]]), 3.0)
    rng = np.random.default_rng(0)
    for n, d in ((2, 1), (3, 5), (6, 30)):
        assert np.isfinite(
            model.fit(rng.normal(size=(n, d)), rng.normal(size=n)).predict(rng.normal(size=(4, d)))
        ).all()
    same = model.fit(np.ones((9, 2)), np.arange(9.0))
    np.testing.assert_allclose(same.predict(np.ones((1, 2))), 4.0)
    before = model.predict(np.ones((1, 2)))
    with pytest.raises(ValueError, match="contains NaN"):
        model.set_params(missing="error").fit(pd.DataFrame({"a": [1.0, np.nan, 2.0]}), [1.0, 2.0, 3.0])
    assert np.array_equal(model.predict(np.ones((1, 2))), before)


def test_rules_have_sensible_defaults():
    assert FitRules().ridge < 1e-3
    for model in ALL:
        name = "n_pieces" if hasattr(model, "n_pieces") else "n_hinges"
        with pytest.raises(ValueError, match=f"'{name}' parameter of {type(model).__name__} must be"):
            clone(model).set_params(**{name: -1}).fit(np.eye(4), np.arange(4.0))
