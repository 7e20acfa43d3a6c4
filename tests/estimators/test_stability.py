"""stability(): fits to blocks of rows drawn with replacement, from sums."""

import numpy as np
import pandas as pd
import pytest

import knotwork as kw
from knotwork.errors import DataError, KnotworkError
from knotwork.spline.fit import FitOptions, fit_spline
from knotwork.spline.stability import draw_splines


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    return X, np.abs(X[:, 0]) + 0.15 * X[:, 1] + 0.7 * rng.normal(size=600)


def test_a_draw_is_the_fit_to_rows_as_often_as_their_block_was_drawn(data):
    X, y = data
    both, weights = np.stack([y, y**2], axis=1), np.arange(600) % 3 + 1.0
    knots = tuple(np.quantile(column, np.arange(1, 15) / 15) for column in X.T)
    options = FitOptions(max_terms=13, threshold=0.0, knots=knots)
    names = ["a", "b", "c", "d"]
    found = draw_splines(X, both, weights, names, options, blocks=7, draws=3, generator=np.random.default_rng(5))
    generator = np.random.default_rng(5)
    for spline in found:
        times = np.bincount(generator.integers(7, size=7), minlength=7)
        own = np.repeat(times, np.diff([600 * b // 7 for b in range(8)])) * weights
        kept = own > 0
        expected = fit_spline(X[kept], both[kept], weights=own[kept], names=names, options=options).spline
        assert spline.terms == expected.terms
        np.testing.assert_allclose(spline(X), expected(X), atol=1e-8)


def test_columns_that_matter_enter_and_bands_hold_the_curve(data):
    X, y = data
    model = kw.MarsRegressor().fit(X, y)
    before = model.predict(X)
    found = model.stability(X, y, draws=60)
    assert list(found.frequencies) == ["x0", "x1", "x2", "x3"]
    assert found.frequencies["x0"] == 1.0
    assert 0.3 < found.frequencies["x1"] <= 1.0
    assert found.frequencies["x2"] < found.frequencies["x0"]
    assert found.sizes.shape == (60,)
    band = found.bands["x0"]
    assert (band.lower <= band.middle).all()
    assert (band.middle <= band.upper).all()
    inner = (band.grid > -1.5) & (band.grid < 1.5)
    truth = np.abs(band.grid) - np.abs(X[:, 0]).mean()
    inside = (band.lower[:, 0] - 0.05 <= truth) & (truth <= band.upper[:, 0] + 0.05)
    assert inside[inner].mean() > 0.8
    wide = model.stability(X, y, draws=60, coverage=0.99).bands["x0"]
    assert (wide.upper - wide.lower >= band.upper - band.lower - 1e-12).all()
    np.testing.assert_array_equal(model.predict(X), before)
    again = model.stability(X, y, draws=60)
    assert again.frequencies == found.frequencies
    np.testing.assert_array_equal(again.bands["x0"].upper, band.upper)


def test_tables_weights_folds_and_responses(data):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcd")).assign(kind=np.array(["u", "v", "w"])[np.arange(600) % 3])
    weights = np.arange(600) % 4.0
    both = np.stack([y + (frame["kind"] == "u") * 3, 100 * y], axis=1)
    model = kw.MarsRegressor(cv=3, scale_responses=True).fit(frame, both, sample_weight=weights)
    found = model.stability(frame, both, weights, draws=10, blocks=5, points=11)
    assert set(found.frequencies) == {"a", "b", "c", "d", "kind"}
    assert found.frequencies["kind"] == 1.0
    assert found.bands["a"].lower.shape[1] == 2
    assert (found.sizes <= len(model.spline_.terms) + 1).all()


def test_bad_calls_are_refused(data):
    X, y = data
    model = kw.MarsRegressor().fit(X, y)
    for arguments, options, message in [
        ((X, y), {"draws": 1}, "draws must be a whole number of at least 2 and at most 10000, got 1"),
        ((X, y), {"draws": 2**31}, "draws must be a whole number of at least 2 and at most 10000, got 2147483648"),
        ((X, y), {"points": 2**31}, "points must be a whole number of at least 2 and at most 1000, got 2147483648"),
        ((X, y), {"coverage": 1.5}, "coverage must be"),
        ((X, np.stack([y, y], axis=1)), {}, "y must have 1 responses, got 2"),
        ((X[:30], y[:30]), {}, "blocks must have at least 2 rows each, got 20 blocks of 30 rows"),
    ]:
        with pytest.raises(KnotworkError, match=message):
            model.stability(*arguments, **options)
    rng = np.random.default_rng(1)
    pair = np.maximum(X[:, 0], 0) * np.maximum(X[:, 1], 0) + 0.1 * rng.normal(size=600)
    with pytest.raises(DataError, match="stability is that of additive models"):
        kw.MarsRegressor(max_degree=2).fit(X, pair).stability(X, pair)
