"""Functions that are no splines are explained through the network that computes them."""

import numpy as np
import pytest

import knotwork as kw


@pytest.mark.parametrize("estimator", [kw.HingingHyperplanesRegressor(n_hinges=3), kw.MaxAffineRegressor(n_pieces=3)])
def test_estimators_of_pieces(estimator, tmp_path):
    X, y = kw.datasets.load_wine_quality("red")
    model = estimator.set_params(random_state=0).fit(X[:400], y[:400])
    explanation = kw.explain(model, X[:400], y[:400])
    parts = explanation.contributions(X.head())
    frame = parts.to_frame()
    np.testing.assert_allclose(frame.drop(columns="prediction").sum(axis=1), model.predict(X.head()), atol=1e-9)
    assert type(estimator).__name__ in str(explanation)
    explanation.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 1e6


def test_a_lattice():
    tent = kw.LatticePWL([[0.0, 1.0], [4.0, -1.0]], [(0,), (1,)])
    x = np.linspace(0, 4, 41)[:, None]
    explanation = kw.explain(tent, x, tent(x))
    effect = explanation.effects["x0"]
    curve = np.interp(x[:, 0], effect.grid, effect.network[:, 0])
    np.testing.assert_allclose(curve - curve[0], tent(x) - tent(x)[0], atol=0.05)
