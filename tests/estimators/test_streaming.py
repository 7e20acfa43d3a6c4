"""partial_fit and forget: the fit of all rows so far, from sums."""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import knotwork as kw
from knotwork.errors import DataError


def make(seed=0, n=700, outputs=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1, 1e3, 1] + [0, 2000, 0]
    X[:, 2] = np.round(X[:, 2], 1)
    y = np.stack([np.abs(X[:, 0] - 0.3 * k) + X[:, 1] / 1e3 + np.sin(X[:, 2]) for k in range(outputs)], axis=1)
    y += 0.3 * rng.normal(size=y.shape)
    return X, y if outputs > 1 else y[:, 0]


def knots_of(X):
    return [np.unique(np.quantile(column, np.arange(1, 30) / 30, method="nearest")) for column in X.T]


def check_equal(stream, fitted, X, y):
    assert stream.spline_.terms == fitted.spline_.terms
    basis = np.column_stack([np.ones(len(X)), fitted.spline_.basis(X)])
    condition = np.linalg.cond(basis / np.linalg.norm(basis, axis=0))
    tolerance = (1e-9 if condition < 1e3 else 1e-6) * np.std(y)
    assert np.abs(stream.predict(X) - fitted.predict(X)).max() <= tolerance
    assert stream.rss_ == pytest.approx(fitted.rss_, rel=1e-9)
    assert stream.gcv_ == pytest.approx(fitted.gcv_, rel=1e-9)
    np.testing.assert_allclose(stream.feature_importances_, fitted.feature_importances_, atol=1e-9)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from([1, 2]), st.booleans())
def test_any_batches_in_any_order_give_the_fit_of_all_rows(seed, batches, outputs, weighted):
    X, y = make(seed % 7, outputs=outputs)
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 4, len(X)).astype(float) if weighted else None
    options = {"knots": knots_of(X), "extrapolate": "linear", "max_terms": 21, "threshold": 0.0}
    stream = kw.MarsRegressor(**options)
    for rows in np.array_split(rng.permutation(len(X)), batches):
        stream.partial_fit(X[rows], y[rows], None if weights is None else weights[rows])
    assert stream.n_samples_seen_ == (len(X) if weights is None else np.count_nonzero(weights))
    check_equal(stream, kw.MarsRegressor(**options).fit(X, y, weights), X, y)


def test_what_was_forgotten_is_gone():
    X, y = make(1)
    options = {"knots": knots_of(X), "extrapolate": "linear"}
    stream = kw.MarsRegressor(**options).partial_fit(X, y)
    odd = np.arange(0, 700, 3)
    stream.partial_fit(X[odd] + 0.5, 100 * y[odd]).forget(X[odd] + 0.5, 100 * y[odd]).forget(X[500:], y[500:])
    assert stream.n_samples_seen_ == 500
    check_equal(stream, kw.MarsRegressor(**options).fit(X[:500], y[:500]), X[:500], y[:500])


def test_the_first_batch_settles_the_knots_and_later_rows_may_lie_beyond_it():
    X, y = make(2)
    order = np.argsort(X[:, 0])  # the first batch sees the low end only
    stream = kw.MarsRegressor()
    for rows in np.array_split(order, 7):
        stream.partial_fit(X[rows], y[rows])
        assert np.isfinite(stream.predict(X)).all()
        assert stream.limits_.upper[0] == X[rows, 0].max()
    assert {t.knot for t in stream.spline_.terms if getattr(t, "feature", 0) == 0 and hasattr(t, "knot")} <= set(
        X[order[:100], 0]
    )
    assert all(knot.count == 0 and knot.rows.size == 0 for knot in stream.knots_)
    assert stream.score(X, y) > 0.5
    # One batch is a fit, where no values lie far out.
    once = kw.MarsRegressor(extrapolate="linear").partial_fit(X, y)
    check_equal(once, kw.MarsRegressor(extrapolate="linear").fit(X, y), X, y)


def test_tables_single_rows_and_rows_of_weight_zero():
    X, y = make(3)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=np.array(["u", "v"])[np.arange(700) % 2])
    y = y + np.where(frame["kind"] == "u", 2.0, 0.0)
    knots = dict(zip("abc", knots_of(X), strict=True))
    options = {"knots": knots, "extrapolate": "linear"}
    weights = (np.arange(700) % 5).astype(float)
    stream = kw.MarsRegressor(**options).partial_fit(frame[:600], y[:600], weights[:600])
    for row in range(600, 640):
        if weights[row]:
            stream.partial_fit(frame[row : row + 1], y[row : row + 1], weights[row : row + 1])
    stream.partial_fit(frame[640:], y[640:], weights[640:])
    fitted = kw.MarsRegressor(**options).fit(frame, y, weights)
    np.testing.assert_allclose(stream.predict(frame), fitted.predict(frame), atol=1e-9)


def test_pickled_saved_and_begun_anew(tmp_path):
    X, y = make(4)
    stream = kw.MarsRegressor().partial_fit(X[:300], y[:300])
    again = pickle.loads(pickle.dumps(stream)).partial_fit(X[300:], y[300:])
    np.testing.assert_array_equal(again.predict(X), stream.partial_fit(X[300:], y[300:]).predict(X))
    kw.save(stream, tmp_path / "m")
    loaded = kw.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(X), stream.predict(X))
    assert not hasattr(loaded, "n_samples_seen_")
    with pytest.raises(DataError, match="forget takes rows out of a stream"):
        loaded.forget(X, y)
    assert loaded.partial_fit(X[:300], y[:300]).n_samples_seen_ == 300
    stream.fit(X, y)
    assert not hasattr(stream, "n_samples_seen_")
    assert stream.partial_fit(X[:300], y[:300]).n_samples_seen_ == 300


@pytest.mark.parametrize(
    "options",
    [
        {"max_degree": 2},
        {"max_degree": "auto"},
        {"compat": "earth"},
        {"cv": 3},
        {"scale_responses": True},
        {"backend": "torch"},
        {"loss": "poisson"},
    ],
)
def test_models_that_sums_do_not_fit_have_no_partial_fit(options):
    model = kw.MarsRegressor(**options)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError) as error:
        model.partial_fit(*make(5))
    assert f"{next(iter(options))}=" in str(error.value.__cause__)
    assert model.set_params(**{name: getattr(kw.MarsRegressor(), name) for name in options}).partial_fit(*make(5))


@pytest.mark.parametrize(
    ("knots", "message"),
    [
        ([[0.0]], "knots must have an entry for each of 3 columns.*got 1"),
        ({"x7": [0.0]}, "knots must be those of columns of X, got 'x7'"),
        ([[0.0, np.nan], None, None], "knots of a column must be finite"),
        (3, "knots"),
    ],
)
def test_knots_that_are_none_are_refused(knots, message):
    model = kw.MarsRegressor(knots=knots)
    for call in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match=message):
            call(*make(5))
    assert not hasattr(model, "fit_")


def test_bad_batches_change_nothing():
    X, y = make(6)
    stream = kw.MarsRegressor().partial_fit(X, y)
    before, seen = stream.predict(X), stream.n_samples_seen_
    for call, arguments, message in [
        (stream.partial_fit, (X[:, :2], y), "2 features"),
        (stream.partial_fit, (X, y[:5]), "same number of rows"),
        (stream.partial_fit, (X, np.stack([y, y], axis=1)), re.escape("shape of the first batch, (N,), got (700, 2)")),
        (stream.partial_fit, (X, np.full(700, np.nan)), "contains NaN"),
        (stream.partial_fit, (X, y, -np.ones(700)), "must not be negative"),
        (
            stream.partial_fit,
            (np.full((2, 3), 1e308), y[:2]),
            r"less than 1e\+100 times those of the first one, its X is not",
        ),
        (stream.forget, (X, y), "forget takes out rows that were fitted, and leaves at least two"),
        (stream.forget, (X[:2], y[:2] + 1e9), "forget takes out rows that were fitted"),
    ]:
        with pytest.raises(ValueError, match=message):
            call(*arguments)
        assert stream.n_samples_seen_ == seen
        np.testing.assert_array_equal(stream.predict(X), before)
    many = pd.DataFrame({"town": [f"t{k % 60}" for k in range(700)], "x": X[:, 0]})
    with pytest.raises(DataError, match="column 'town' has too many categories"):
        kw.MarsRegressor().partial_fit(many, np.arange(700) % 60 + 0.1 * y)


def test_too_many_lost_digits_are_refused():
    X, y = make(7)
    stream = kw.MarsRegressor().partial_fit(X, y)
    stream.partial_fit(X, 1e8 * y)
    with pytest.raises(DataError, match=r"coefficients from sums may be wrong by 1e-06 stds.*begin a new stream"):
        stream.forget(X, 1e8 * y)
    assert stream.n_samples_seen_ == 1400
    wide = np.random.default_rng(0).normal(size=(600, 120))
    with pytest.raises(DataError, match="keeps the products of all pairs of candidate knots, 3 GB"):
        kw.MarsRegressor(minspan=1, endspan=1).partial_fit(wide, wide[:, 0])


def test_forget_checks_the_parameters_and_says_which_do_not_stream():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = kw.MarsRegressor().partial_fit(X, X[:, 0]).set_params(max_terms="banana")
    with pytest.raises(ValueError, match="max_terms"):
        model.forget(X[:10], X[:10, 0])
    odd = kw.MarsRegressor(max_degree=np.array([1, 2]))
    assert not hasattr(odd, "partial_fit")


def test_monotone_effects_are_for_one_response():
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ValueError, match="monotonic_cst is for one response, got 2"):
        kw.MarsRegressor(monotonic_cst=[1, 0]).partial_fit(X, X)
