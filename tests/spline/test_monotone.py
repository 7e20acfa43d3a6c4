"""Monotone effects: by construction, certified without rounding, and seen on grids."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

import knotwork as kw
from knotwork.data.limits import Limits
from knotwork.errors import DataError
from knotwork.spline.model import Hinge, Linear, Min, Spline
from knotwork.spline.monotone import certify, directions, inequalities, least_squares, made_exact
from tests.reference import constrained_least_squares

GRID = 100_000


def _is_monotone(predict, low, high, feature, sign, rng, lines=10):
    """Walk along a feature on lines at random places of the others: GRID points in all, far outside the rows too."""
    d, n = len(low), GRID // lines
    for _ in range(lines):
        rows = np.repeat(rng.uniform(low, high, (1, d)), n, axis=0)
        width = high[feature] - low[feature]
        rows[:, feature] = np.linspace(low[feature] - width, high[feature] + width, n)
        values = predict(rows)
        # Sums of terms round: a step back of a few units in the last place of the largest of them is none.
        if (sign * np.diff(values) < -1e-11 * (1 + np.abs(values).max())).any():
            return False
    return True


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 3), st.lists(st.sampled_from([-1, 0, 1]), min_size=3, max_size=3),
    st.sampled_from(["clip", "linear"]), st.booleans(),
)  # fmt: skip
def test_random_data_signs_and_degrees(seed, degree, signs, extrapolate, classes):
    if not any(signs):
        signs = [1, 0, 0]
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 3)) * 10.0 ** rng.integers(-3, 4, 3)
    z = X / X.std(axis=0)
    y = np.sin(2 * z[:, 0]) + z[:, 1] * np.maximum(z[:, 2], 0) - z[:, 1] ** 2 + rng.normal(0, 0.3, 120)
    options = {"monotonic_cst": signs, "max_degree": degree, "extrapolate": extrapolate, "max_terms": 15, "n_jobs": 1}
    weights = rng.uniform(0.5, 2.0, 120)
    if classes:
        model = kw.MarsClassifier(**options).fit(X, y > np.median(y), sample_weight=weights)
        predict = model.decision_function
    else:
        model = kw.MarsRegressor(**options).fit(X, y, sample_weight=weights)
        predict = model.predict
    certificate = model.certify_monotone()
    assert certificate, str(certificate)
    assert len(certificate.columns) == sum(sign != 0 for sign in signs)
    for feature, sign in enumerate(signs):
        if sign:
            assert _is_monotone(predict, X.min(axis=0), X.max(axis=0), feature, sign, rng)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(0, 8))
def test_least_squares_under_inequalities_is_the_best_there_is(seed, n, k):
    rng = np.random.default_rng(seed)
    A, b, G = rng.normal(size=(2 * n, n)), rng.normal(size=2 * n), rng.normal(size=(k, n))
    q, factor = np.linalg.qr(A)
    found = least_squares(np.triu(factor), q.T @ b, G)
    assert (G @ found >= -1e-9).all()
    slow = constrained_least_squares(A, b, G)
    assert np.sum((A @ found - b) ** 2) <= np.sum((A @ slow - b) ** 2) + 1e-7 * np.sum(b**2)


def test_bounds_alone_are_what_scipy_finds():
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(20, 5)), rng.normal(size=20)
    q, factor = np.linalg.qr(A)
    np.testing.assert_allclose(
        least_squares(np.triu(factor), q.T @ b, np.eye(5)), lsq_linear(A, b, (0, np.inf)).x, atol=1e-6
    )


def test_inequalities_are_the_slopes_of_the_pieces():
    terms = [((0, 1.0, 1),), ((0, 2.0, -1),), ((0, 0.0, 0),), ((0, 0.5, -1), (1, 0.0, 1))]
    G = inequalities(terms, [1, 0])
    rng = np.random.default_rng(0)
    for _ in range(50):
        beta = rng.normal(size=4)
        slopes = [beta[2] - beta[1], beta[0] + beta[2] - beta[1], beta[0] + beta[2], -beta[3]]
        assert (min(slopes) >= 0) == (G @ beta >= 0).all()


def test_a_certificate_sees_the_last_bit():
    terms = (Hinge(0, 0.0, 1), Hinge(0, 1.0, 1), Hinge(0, 2.0, 1))
    spline = Spline(terms, [0.0], [[0.1], [0.2], [-0.30000000000000004]], ("x",))
    assert not certify(spline, (1,))  # 0.1 + 0.2 − 0.30000000000000004 rounds to 0 and is less
    exact = made_exact(spline, (1,))
    assert certify(exact, (1,)).columns[0].min_slope >= 0
    np.testing.assert_allclose(exact.coef, spline.coef, rtol=1e-15)
    falling = Spline((Min((Hinge(0, 0.0, -1), Hinge(1, 0.0, 1)), (1.0, 1.0)),), [0.0], [[2.0]], ("a", "b"))
    assert directions(falling, 0).tolist() == [-1, 1]
    assert not certify(falling, (1, 0))
    assert "is not monotone" in str(certify(falling, (1, 0)))


def test_data_that_go_the_other_way_give_a_flat_curve():
    x = np.linspace(0, 1, 200)[:, None]
    model = kw.MarsRegressor(monotonic_cst=[1]).fit(x, -x[:, 0])
    assert len(model.spline_.terms) == 0
    np.testing.assert_allclose(model.predict(x), -0.5, atol=1e-12)


def test_a_monotone_truth_costs_little_and_s_curves_are_kept():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (2000, 1))
    y = np.tanh(2 * x[:, 0]) + rng.normal(0, 0.1, 2000)
    grid = np.linspace(-3, 3, 400)[:, None]
    free, rising = (
        np.sqrt(np.mean((kw.MarsRegressor(monotonic_cst=sign).fit(x, y).predict(grid) - np.tanh(2 * grid[:, 0])) ** 2))
        for sign in (None, [1])
    )
    assert rising <= 1.1 * free


def test_columns_by_name_gaps_orders_and_what_has_none():
    rng = np.random.default_rng(0)
    n = 300
    age = rng.uniform(20, 70, n)
    size = pd.Categorical(rng.choice(["s", "m", "l"], n), ["s", "m", "l"], ordered=True)
    X = pd.DataFrame(
        {"age": np.where(rng.random(n) < 0.2, np.nan, age), "town": rng.choice(["a", "b"], n), "size": size}
    )
    y = np.sin(age / 5) + size.codes
    model = kw.MarsRegressor(monotonic_cst={"age": -1, "size": 1}).fit(X, y)
    certificate = model.certify_monotone()
    assert certificate
    assert [column.name for column in certificate.columns] == ["age", "size"]
    with pytest.raises(ValueError, match="'town' holds categories without one"):
        kw.MarsRegressor(monotonic_cst={"town": 1}).fit(X, y)
    with pytest.raises(ValueError, match="must name columns of X, got 'height'"):
        kw.MarsRegressor(monotonic_cst={"height": 1}).fit(X, y)
    with pytest.raises(ValueError, match="one entry for each of the 3 columns"):
        kw.MarsRegressor(monotonic_cst=[1]).fit(X, y)
    for wrong in (2, "up", True, None):
        with pytest.raises(ValueError, match="must hold -1, 0 or 1"):
            kw.MarsRegressor(monotonic_cst={"age": wrong}).fit(X, y)
    dated = X.assign(age=pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"))
    with pytest.raises(ValueError, match="cannot hold for 'age', whose"):
        kw.MarsRegressor(monotonic_cst={"age": 1}).fit(dated, y)


def test_what_cannot_be_monotone_is_refused_in_one_sentence():
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60.0)
    for options, text in (
        ({"compat": "earth"}, "has no monotone effects"),
        ({"interaction": "product", "max_degree": 2}, "holds for minima of hinges"),
        ({"loss": "absolute_error"}, "for loss='squared_error', got 'absolute_error'"),
        ({"cv": 3}, "leaves the size to GCV"),
    ):
        with pytest.raises(ValueError, match=text):
            kw.MarsRegressor(monotonic_cst=[1, 0], **options).fit(X, y)
    with pytest.raises(ValueError, match="for one response, got 2"):
        kw.MarsRegressor(monotonic_cst=[1, 0]).fit(X, np.column_stack([y, y]))
    with pytest.raises(ValueError, match="for two classes, got 3"):
        kw.MarsClassifier(monotonic_cst=[1, 0]).fit(X, y.astype(int) % 3)
    for network in (kw.SplineNetRegressor, kw.SplineNetClassifier):
        with pytest.raises(ValueError, match="training does not keep a network monotone"):
            network(monotonic_cst=[1, 0]).fit(X, y > 30)
    rising = kw.MarsRegressor(monotonic_cst=[1, 0]).fit(X, y)
    for call in (lambda: rising.path_, lambda: rising.stability(X, y)):
        with pytest.raises(DataError, match="which monotonic_cst does not hold for"):
            call()
    with pytest.raises(ValueError, match="checks what monotonic_cst asks for"):
        kw.MarsRegressor().fit(X, y).certify_monotone()


def test_saved_models_and_simpler_splines_keep_it(tmp_path):
    X, y = kw.datasets.load_abalone()
    model = kw.MarsRegressor(max_degree=2, monotonic_cst={"Shell weight": 1, "Shucked weight": -1}).fit(X, y)
    assert model.certify_monotone()
    kw.save(model, tmp_path / "m")
    again = kw.load(tmp_path / "m")
    assert again.monotonic_cst == model.monotonic_cst
    assert again.certify_monotone() == model.certify_monotone()
    signs = [0] * len(model.spline_.feature_names)
    for column in model.certify_monotone().columns:
        signs[model.spline_.feature_names.index(column.name)] = column.sign
    for tolerance in (0.02, 0.1, 0.3):
        assert certify(model.spline_.simplify(tolerance, model.encoder_.encode(X)), signs)


def test_a_stream_is_monotone_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=300)
    model = kw.MarsRegressor(monotonic_cst=[1, -1])
    for rows in np.array_split(np.arange(300), 3):
        model.partial_fit(X[rows], y[rows])
    assert model.certify_monotone()


def test_linear_terms_count():
    spline = Spline((Linear(0), Hinge(0, 0.5, 1)), [0.0], [[1.0], [-1.0]], ("x",), Limits([0.0], [1.0]))
    assert certify(spline, (1,)).columns[0].min_slope == 0.0
