import numpy as np
import pytest

from knotwork.spline.fit import FitOptions, fit_spline
from knotwork.spline.model import Hinge, Linear


def problem(n=500, d=5, seed=0, outputs=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.stack([np.abs(X[:, 0] - 0.3 * k) + X[:, 1] for k in range(outputs)], axis=1)
    return X, y + 0.1 * rng.normal(size=y.shape)


def test_knots_are_values_of_the_rows_they_name():
    X, y = problem()
    X = np.round(X, 2)
    fit = fit_spline(X, y)
    assert {(k.feature, k.value) for k in fit.knots} == {
        (t.feature, t.knot) for t in fit.spline.terms if isinstance(t, Hinge)
    }
    for knot in fit.knots:
        assert knot.rows.tolist() == np.flatnonzero(X[:, knot.feature] == knot.value).tolist()
        assert knot.count == knot.rows.size > 0


def test_linear_truth_enters_linearly():
    X, _ = problem()
    fit = fit_spline(X, 2 * X[:, [3]] - 1)
    assert fit.spline.terms == (Linear(3),)
    np.testing.assert_allclose(fit.spline(X), 2 * X[:, 3] - 1, atol=1e-12)


@pytest.mark.parametrize("x_unit", [1e-150, 1e-6, 1.0, 1e6, 1e150])
@pytest.mark.parametrize("y_unit", [1e-150, 1.0, 1e150])
def test_units_do_not_matter(x_unit, y_unit):
    X, y = problem()
    plain = fit_spline(X, y)
    # Units differ between columns too.
    units = np.array([x_unit, 1.0, 1 / x_unit, x_unit, 1.0])
    scaled = fit_spline(X * units, y * y_unit)
    assert [type(t) for t in scaled.selection.forward_terms] == [type(t) for t in plain.selection.forward_terms]
    assert [t.feature for t in scaled.selection.forward_terms] == [t.feature for t in plain.selection.forward_terms]
    np.testing.assert_allclose(scaled.spline(X * units), plain.spline(X) * y_unit, rtol=1e-9, atol=1e-9 * y_unit)
    assert scaled.quality.rsq == pytest.approx(plain.quality.rsq, rel=1e-9)
    assert scaled.quality.rss == pytest.approx(plain.quality.rss * y_unit * y_unit, rel=1e-6)


def test_a_large_offset_does_not_matter():
    X, y = problem()
    fit = fit_spline(X + 1e9, y + 1e9)
    assert fit.quality.rsq == pytest.approx(fit_spline(X, y).quality.rsq, rel=1e-5)


def test_responses_share_a_basis_and_scores_add():
    X, y = problem(outputs=3)
    fit = fit_spline(X, y)
    assert fit.spline.coef.shape == (len(fit.spline.terms), 3)
    assert fit.quality.rss == pytest.approx(np.sum((y - fit.spline(X)) ** 2), rel=1e-9)
    # A response in large units decides the search.
    heavy = fit_spline(X, y * [1.0, 1.0, 1e6])
    alone = fit_spline(X, y[:, 2:] * 1e6)
    assert heavy.selection.forward_terms == alone.selection.forward_terms


def test_many_rows_of_ties_and_threads():
    rng = np.random.default_rng(4)
    n = 300_000
    X = np.column_stack([rng.integers(0, 50, n), rng.normal(size=(n, 3)), rng.integers(0, 2, n)]).astype(float)
    y = np.abs(X[:, [0]] - 20) + X[:, [4]] * 3 + rng.normal(size=(n, 1))
    one, three = (fit_spline(X, y, options=FitOptions(threads=threads)) for threads in (1, 3))
    assert one.spline == three.spline  # to the last bit
    assert 20.0 in {t.knot for t in one.spline.terms if isinstance(t, Hinge)}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_layout_and_precision_of_the_table(order, dtype):
    X, y = problem()
    X = X.astype(np.float32)
    fit = fit_spline(np.asarray(X, dtype=dtype, order=order), y)
    assert fit.spline == fit_spline(X.astype(np.float64), y).spline


def test_steps_are_reported_as_they_happen():
    X, y = problem()
    seen = []
    fit = fit_spline(X, y, report=seen.append)
    assert [s.terms for s in seen] == [s.terms for s in fit.selection.steps[1:]]


def test_max_terms_is_kept_exactly():
    X, y = problem()
    for maximum in range(2, 12):
        fit = fit_spline(X, y, options=FitOptions(max_terms=maximum, threshold=0.0))
        assert len(fit.selection.forward_terms) + 1 == maximum


def test_costs_equal_refits_without():
    X, y = problem()
    fit = fit_spline(X, y)
    basis = np.column_stack([np.ones(len(X)), fit.spline.basis(X)])

    def rss_without(columns):
        kept = np.delete(basis, columns, axis=1)
        return np.sum((y - kept @ np.linalg.lstsq(kept, y, rcond=None)[0]) ** 2)

    for m, cost in enumerate(fit.term_costs):
        assert cost == pytest.approx(rss_without([m + 1]) - fit.quality.rss, rel=1e-6)
    for f, cost in enumerate(fit.feature_costs):
        columns = [m + 1 for m, t in enumerate(fit.spline.terms) if t.feature == f]
        assert cost == pytest.approx(rss_without(columns) - fit.quality.rss if columns else 0.0, rel=1e-6)
