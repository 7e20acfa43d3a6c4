"""Where data lie and in which units they come does not matter; docs/guarantees.md states these bounds."""

from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss
from sklearn.utils import check_random_state

import knotwork as kw
from knotwork.data.coordinates import Coordinates, mean_and_std, value_and_std
from knotwork.data.split import held_out
from knotwork.pwl.maxaffine import first_maximum

REGRESSORS = {
    "additive": lambda: kw.MarsRegressor(),
    "degree 2": lambda: kw.MarsRegressor(max_degree=2),
    "convex": lambda: kw.MaxAffineRegressor(max_pieces=6, n_init=2, random_state=0),
    "concave": lambda: kw.MaxAffineRegressor(max_pieces=6, n_init=2, shape="concave", random_state=0),
    "difference": lambda: kw.DCMaxAffineRegressor(max_pieces=4, n_init=2, random_state=0),
    "hinging": lambda: kw.HingingHyperplanesRegressor(max_hinges=4, random_state=0),
}
CLASSIFIERS = {
    "additive": lambda: kw.MarsClassifier(),
    "degree 2": lambda: kw.MarsClassifier(max_degree=2),
}


def make_data(seed=0, n=300):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    X[:, 2] = np.round(X[:, 2], 1)  # ties
    y = np.abs(X[:, 0]) + np.sin(2 * X[:, 1]) + X[:, 0] * X[:, 2] / 2 + 0.3 * rng.normal(size=n)
    return X, y, rng.integers(1, 4, n).astype(float)


def moved(values, offset):
    """Data at an offset, and the same data, as far as they can be represented there, without it."""
    far = values + offset
    return far, far - offset


def power_of_two(values):
    return 2.0 ** -np.floor(np.log2(np.abs(values).max(axis=0)))


def r_squared(model, X, y, weight=None):
    """R² of the fit to the same rows; each response is scaled by a power of two, so that squares exist."""
    prediction = model.fit(X, y, sample_weight=weight).predict(X)
    unit = power_of_two(y)
    residual, spread = (y - prediction) * unit, (y - np.median(y, axis=0)) * unit
    spread = spread - spread.mean(axis=0)
    return 1 - np.mean(residual**2, axis=0) / np.mean(spread**2, axis=0)


@pytest.mark.parametrize("name", REGRESSORS)
@pytest.mark.parametrize("weighted", [False, True])
def test_regressors_do_not_notice_offsets_and_units_of_x(name, weighted):
    X, y, weight = make_data()
    weight = weight if weighted else None
    for offset in (1e8, -1e12):
        far, near = moved(X, offset)
        a, b = r_squared(REGRESSORS[name](), near, y, weight), r_squared(REGRESSORS[name](), far, y, weight)
        assert abs(a - b) < 1e-6
    plain = r_squared(REGRESSORS[name](), X, y, weight)
    for unit in (1e100, 1e-100):
        assert abs(r_squared(REGRESSORS[name](), X * unit, y, weight) - plain) < 1e-6


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_do_not_notice_offsets_and_units_of_several_responses(name):
    X, y, _ = make_data()
    Y = np.column_stack([y, 3 * y[::-1] + X[:, 0]])
    plain = r_squared(REGRESSORS[name](), X, Y)
    for unit in (1e22, 1e100, 1e-100):
        np.testing.assert_allclose(r_squared(REGRESSORS[name](), X, Y * unit), plain, rtol=0, atol=1e-6)
    np.testing.assert_allclose(r_squared(REGRESSORS[name](), X * 1e-100, Y * 1e100), plain, rtol=0, atol=1e-6)
    far, near = moved(Y, 1e10)
    a, b = r_squared(REGRESSORS[name](), X, near), r_squared(REGRESSORS[name](), X, far)
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


@pytest.mark.parametrize("seed", [3, 34, 58])
def test_of_equal_products_the_same_one_is_taken_in_any_units(seed):
    X, y, _ = make_data(seed)
    plain = r_squared(kw.MarsRegressor(max_degree=2, interaction="product"), X, y)
    for unit in (3.0, 1e100, 1e-100):
        assert abs(r_squared(kw.MarsRegressor(max_degree=2, interaction="product"), X * unit, y) - plain) < 1e-6


@pytest.mark.parametrize("name", ["additive", "convex"])
def test_responses_at_1e12_stds(name):
    # Predictions are rounded to 1e-4 stds there; over enough rows that averages out.
    X, y, _ = make_data(n=20_000 if name == "additive" else 6000)
    model = REGRESSORS[name]() if name == "additive" else kw.MaxAffineRegressor(n_pieces=3, n_init=1, random_state=0)
    far, near = moved(y, 1e12 * y.std())
    assert abs(r_squared(model, X, near) - r_squared(model, X, far)) < 1e-6


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("weighted", [False, True])
def test_classifiers_do_not_notice_offsets_and_units(name, weighted):
    X, y, weight = make_data()
    labels, weight = np.digitize(y, [0.5, 1.5]), weight if weighted else None

    def loss(X):
        model = CLASSIFIERS[name]().fit(X, labels, sample_weight=weight)
        return log_loss(labels, model.predict_proba(X))

    for offset in (1e8, -1e12):
        far, near = moved(X, offset)
        assert abs(loss(near) - loss(far)) < 1e-6
    for unit in (1e100, 1e-100):
        assert abs(loss(X * unit) - loss(X)) < 1e-6


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["convex", "difference", "hinging"]),
    st.integers(0, 10**6),
    st.floats(-1e12, 1e12),
    st.integers(-300, 300),
)
def test_max_affine_kinds_are_the_same_bit_for_bit_elsewhere_and_in_units_of_powers_of_two(name, seed, offset, power):
    X, y, weight = make_data(seed, n=60)
    far, near = moved(X, offset)
    unit = 2.0**power
    here = REGRESSORS[name]().fit(near, y, sample_weight=weight).predict(near)
    there = REGRESSORS[name]().fit(far * unit, y / unit, sample_weight=weight).predict(far * unit)
    np.testing.assert_array_equal(there * unit, here)


def at_validation_rows(X):
    seed = int(check_random_state(0).randint(2**31 - 1))
    return held_out(X, 0.15, seed)


@pytest.mark.parametrize(
    ("x_offset", "x_unit", "y_offset", "y_unit"),
    [
        (1e8, 1, 0, 1), (-1e12, 1, 0, 1), (0, 1e100, 0, 1), (0, 1e-100, 0, 1), (0, 1e-40, 0, 1),
        (0, 1, 1e8, 1), (0, 1, -1e12, 1), (0, 1, 0, 1e19), (0, 1, 0, 1e22), (0, 1, 0, 1e-22), (0, 1, 0, 1e100),
        (0, 1e100, 0, 1e-100), (1e12, 1e-100, 1e11, 1e100),
    ],
)  # fmt: skip
def test_a_networks_prediction_has_the_r_squared_of_its_history(x_offset, x_unit, y_offset, y_unit, tmp_path):
    X, y, _ = make_data(n=450)
    X, y = (X + x_offset) * x_unit, (y + y_offset) * y_unit
    model = kw.SplineNetRegressor(n_members=1, hidden=(12, 12), epochs=2, random_state=0).fit(X, y)
    held = at_validation_rows(X)
    unit = power_of_two(y - np.median(y))
    residual, spread = (y[held] - model.predict(X[held])) * unit, (y[held] - np.median(y)) * unit
    reached = np.mean(residual**2)
    said = model.history_.validation_loss[model.history_.best_epoch] * unit**2
    assert abs(reached - said) / np.var(spread) < 1e-5

    kw.save(model, tmp_path / "model")
    np.testing.assert_array_equal(kw.load(tmp_path / "model").predict(X), model.predict(X))
    # The networks themselves, in float32 where that can hold the responses.
    for net in (model.network_, kw.to_network(model)):
        found = net(torch.from_numpy(X)).detach().numpy()[:, 0].astype(np.float64)
        bound = 1e-3 if abs(y_offset) < 1e9 else 3e-3
        assert np.abs(found - model.predict(X)).max() < bound * np.std(spread / unit)


def test_predictions_at_1e12_stds_differ_from_the_history_by_their_rounding_alone():
    X, y, _ = make_data(n=450)
    X, y = (X + 1e12) * 1e-100, (y + 1e12) * 1e100
    centre = float(np.median(y))
    held, unit = at_validation_rows(X), power_of_two(y - centre)

    def error(y, rounding):
        """Return how far the squared error is from the history's, and how far rounding of predictions can move it."""
        model = kw.SplineNetRegressor(n_members=1, hidden=(12, 12), epochs=2, random_state=0).fit(X, y)
        residual, said = (y[held] - model.predict(X[held])) * unit, model.history_.validation_loss
        moved = np.mean(residual**2) - said[model.history_.best_epoch] * unit**2
        variance = np.var((y[held] - np.median(y)) * unit)
        return abs(moved) / variance, np.mean(np.abs(residual)) * rounding * unit / variance

    far, rounding = error(y, np.spacing(centre))
    assert far < rounding < 2e-4
    assert error(y - centre, 0.0)[0] < 1e-6  # the subtraction is exact: these predictions have all their digits


def test_the_spline_behind_a_network_does_not_depend_on_the_units_of_y():
    # Residuals in float32 were infinite or zero from 1e±22 on, and interactions were never looked for.
    X, y, _ = make_data(n=600)
    y = y + 2 * X[:, 0] * X[:, 1]
    plain = kw.SplineNetRegressor(n_members=1, hidden=(64, 64), epochs=0, random_state=0).fit(X, y)
    assert any(len(term.features) == 2 for term in plain.spline_.terms)
    for power in (-400, -70, 70, 400):
        other = kw.SplineNetRegressor(n_members=1, hidden=(64, 64), epochs=0, random_state=0).fit(X, y * 2.0**power)
        assert other.spline_.terms == plain.spline_.terms


@pytest.mark.parametrize(("offset", "unit"), [(1e8, 1), (-1e12, 1), (0, 1e100), (0, 1e-100)])
def test_a_classifying_networks_prediction_has_the_log_loss_of_its_history(offset, unit):
    X, y, _ = make_data(n=450)
    X, labels = (X + offset) * unit, (y > 1).astype(int)
    model = kw.SplineNetClassifier(n_members=1, hidden=(12, 12), epochs=2, random_state=0).fit(X, labels)
    held = at_validation_rows(X)
    said = model.history_.validation_loss[model.history_.best_epoch]
    assert abs(log_loss(labels[held], model.predict_proba(X[held])) - said) < 1e-5


@pytest.mark.parametrize("unit", [1e-305, 1e-310, 5e-324])
@pytest.mark.parametrize(
    "make",
    [
        *REGRESSORS.values(),
        lambda: kw.MarsRegressor(max_degree=2, interaction="product"),
        lambda: kw.SplineNetRegressor(n_members=1, hidden=(8,), epochs=1, random_state=0),
    ],
)
def test_columns_of_denormal_numbers_are_constants(make, unit):
    X, y, _ = make_data(n=120)
    tiny = np.column_stack([X[:, 0] * unit, X[:, 1]])
    same = np.column_stack([np.zeros(len(X)), X[:, 1]])
    expected = make().fit(same, y).predict(same)
    found = make().fit(tiny, y).predict(tiny)
    assert np.isfinite(found).all()
    if isinstance(make(), kw.MarsRegressor):  # the others hold rows out by the values of all columns
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_coefficients_beyond_the_range_of_floats_are_refused_with_the_column():
    X, y, _ = make_data()
    with pytest.raises(kw.errors.DataError, match=r"coefficients must be floats.*x\d"):
        kw.MarsRegressor().fit(X * 1e-250, y * 1e100)


def exact_fit(model, X, y, weight):
    """Least squares on the terms of a fitted spline, with 60 digits; returns the fitted values (N,)."""
    with mpmath.workdps(60):
        rows = [[mpmath.mpf(float(v)) for v in row] for row in X]
        columns = [[mpmath.mpf(1)] * len(rows)]
        for term in model.spline_.terms:
            hinges = getattr(term, "hinges", (term,))
            slopes = getattr(term, "slopes", (1.0,) * len(hinges))
            values = []
            for row in rows:
                parts = [
                    row[h.feature] if not hasattr(h, "knot")
                    else mpmath.mpf(slope) * max(mpmath.mpf(0), h.sign * (row[h.feature] - mpmath.mpf(h.knot)))
                    for h, slope in zip(hinges, slopes, strict=True)
                ]  # fmt: skip
                values.append(min(parts))
            size = max(abs(value) for value in values)
            columns.append([value / size for value in values])
        w = [mpmath.mpf(float(v)) for v in weight]
        target = [mpmath.mpf(float(v)) for v in y]
        gram = mpmath.matrix(len(columns), len(columns))
        moment = mpmath.matrix(len(columns), 1)
        for i, a in enumerate(columns):
            moment[i] = mpmath.fsum(p * q * r for p, q, r in zip(a, w, target, strict=True))
            for j, b in enumerate(columns[: i + 1]):
                gram[i, j] = gram[j, i] = mpmath.fsum(p * q * r for p, q, r in zip(a, w, b, strict=True))
        beta = mpmath.lu_solve(gram, moment)
        fitted = [mpmath.fsum(beta[i] * c[n] for i, c in enumerate(columns)) for n in range(len(rows))]
        return np.array([float(value - target[n]) for n, value in enumerate(fitted)])


NASTY = {
    "near-collinear": lambda X, w: (X @ [[1, 1, 0], [0, 1e-6, 0], [0, 0, 1]], w),
    "far": lambda X, w: (X + np.array([1e12, -1e9, 1e6]), w),
    "tied": lambda X, w: (np.round(2 * X) / 2, w),
    "weights over twenty orders": lambda X, w: (X, 10.0 ** np.linspace(-10, 10, len(w))),
    "units": lambda X, w: (X * np.array([1e100, 1e-100, 1.0]), w),
}


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("name", NASTY)
@pytest.mark.filterwarnings("ignore::knotwork.errors.WeightWarning")
def test_splines_are_exact_least_squares_on_nasty_data(name, degree):
    X, y, weight = make_data(n=120)
    X, weight = NASTY[name](X, weight)
    model = kw.MarsRegressor(max_degree=degree, max_terms=9).fit(X, y, sample_weight=weight)
    assert model.spline_.terms
    residual = exact_fit(model, X, y, weight)
    # Measured by what the fit minimises: rows of small weight hardly count.
    share = np.sqrt(weight / weight.sum())
    fitted = replace(model.spline_, output_limits=None)(X)  # rows that hardly count may lie where they are held
    difference = np.linalg.norm(share * (fitted - y - residual)) / np.std(y)
    assert difference < (1e-3 if name == "far" else 1e-9)


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30).filter(lambda v: np.ptp(v) > 1e-3),
    st.integers(-200, 200),
    st.floats(-1e9, 1e9),
)
def test_means_and_stds_against_many_digits(values, power, offset):
    column = (np.array(values) + offset) * 2.0**power
    with mpmath.workdps(60):
        exact = [mpmath.mpf(float(v)) for v in column]
        mean = mpmath.fsum(exact) / len(exact)
        std = mpmath.sqrt(mpmath.fsum((v - mean) ** 2 for v in exact) / len(exact))
        found_mean, found_std = (float(v[0]) for v in mean_and_std(column[:, None]))
        if std > 1e-12 * abs(mean):
            assert abs(found_mean - mean) <= 4e-16 * max(abs(v) for v in exact) * (1 + 1e-9)
            assert abs(found_std - std) <= 1e-13 * std
            assert value_and_std(column[:, None])[0][0] in column


def test_original_responses_round_once():
    c = Coordinates(np.zeros(1), np.ones(1), np.array([1e12]), 3.0)
    y = np.array([[1e12 + 0.25]])
    np.testing.assert_array_equal(c.original_responses(c.responses(y)), y)


def test_ties_go_to_the_first():
    assert first_maximum(np.array([[0.3, 0.1 + 0.2], [0.1 + 0.2, 0.3]])).tolist() == [0, 0]


def test_explanations_of_data_at_the_ends_of_the_range():
    X, y, _ = make_data()
    for x_unit, y_unit in ((1e100, 1e-100), (1e-100, 1e100)):
        model = kw.MarsRegressor(max_degree=2).fit(X * x_unit, y * y_unit)
        plain = kw.explain(kw.MarsRegressor(max_degree=2).fit(X, y), X, y)
        explanation = kw.explain(model, X * x_unit, y * y_unit)
        parts = explanation.contributions(X[:5] * x_unit).to_frame().to_numpy(dtype=float)
        expected = plain.contributions(X[:5]).to_frame().to_numpy(dtype=float)
        np.testing.assert_allclose(parts / y_unit, expected, rtol=1e-6, atol=1e-9)


def test_responses_too_small_to_be_squared_are_fitted():
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.abs(X[:, 0]) * 1e-200
    model = kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=2, random_state=0).fit(X, y)
    assert 1 - np.mean(((model.predict(X) - y) / 1e-200) ** 2) / np.var(y / 1e-200) > 0.5
