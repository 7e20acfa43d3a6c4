"""Simpler splines: the loss is what the tolerance states."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import knotwork as kw
from knotwork.data.limits import Limits
from knotwork.errors import DataError
from knotwork.spline.model import Hinge, Linear, Spline


def _random_spline(rng, outputs=1):
    terms = tuple(Hinge(int(rng.integers(3)), float(rng.uniform(0, 1)), int(rng.choice([-1, 1]))) for _ in range(8))
    coef = rng.normal(size=(8, outputs)) * 10.0 ** rng.uniform(-3, 1, (8, 1))
    return Spline(terms, rng.normal(size=outputs), coef, ("a", "b", "c"), Limits([0.0] * 3, [1.0] * 3))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.001, 0.05, 0.3, 1.01]), st.integers(1, 3))
def test_the_loss_is_within_the_tolerance(seed, tolerance, outputs):
    rng = np.random.default_rng(seed)
    spline, X = _random_spline(rng, outputs), rng.uniform(0, 1, (300, 3))
    simple = spline.simplify(tolerance, X)
    gap, whole = (values.reshape(len(X), -1) for values in (simple(X) - spline(X), spline(X)))
    assert (np.sqrt(np.mean(gap**2, axis=0)) <= tolerance * whole.std(axis=0) * (1 + 1e-9) + 1e-12).all()
    assert len(simple.terms) <= len(spline.terms)
    assert set(simple.terms) <= set(spline.terms)
    assert simple.limits == spline.limits
    assert simple.feature_names == spline.feature_names
    if tolerance > 1:
        assert len(simple.terms) == 0


def test_terms_fall_as_the_tolerance_rises_and_a_real_model_loses_what_it_says():
    X, y = kw.datasets.load_abalone()
    model = kw.MarsRegressor().fit(X, y)
    rows = model.encoder_.encode(X)
    sizes = [len(model.spline_.simplify(t, rows).terms) for t in (0.0, 0.02, 0.1, 0.3)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0] == len(model.spline_.terms)
    assert len(model.spline_.simplify(0.3).terms) < sizes[0]
    assert model.spline_.simplify(0.1) == model.spline_.simplify(0.1)


def test_a_term_that_others_make_up_for_goes_at_once():
    x = np.linspace(0, 1, 50)[:, None]
    spline = Spline((Linear(0), Hinge(0, -1.0, 1)), [0.0], [[1.0], [2.0]], ("x",))  # the hinge is a line on these rows
    simple = spline.simplify(1e-9, x)
    assert len(simple.terms) == 1
    np.testing.assert_allclose(simple(x), spline(x), atol=1e-12)


def test_one_sentence_for_what_it_cannot_do():
    spline = Spline((Linear(0),), [0.0], [[1.0]], ("x",))
    with pytest.raises(DataError, match="without limits is simplified on rows"):
        spline.simplify(0.1)
    for wrong in (-0.1, "a", None, float("nan")):
        with pytest.raises(DataError, match="tolerance must be a share"):
            spline.simplify(wrong, [[1.0]])
    with pytest.raises(DataError, match="on rows, got none"):
        spline.simplify(0.1, np.empty((0, 1)))
