"""Explanations of classifiers: the outputs are log-odds, or logits around their mean; the rest is as for numbers."""

import numpy as np
import pytest
from sklearn.datasets import load_wine

import knotwork as kw


@pytest.fixture(scope="module")
def wines():
    X, y = load_wine(return_X_y=True, as_frame=True)
    return X, y.map({0: "barolo", 1: "grignolino", 2: "barbera"})


@pytest.mark.parametrize(
    "estimator",
    [kw.MarsClassifier(max_degree=2), kw.SplineNetClassifier(n_members=1, hidden=(32, 32), epochs=3, random_state=0)],
    ids=lambda e: type(e).__name__,
)
def test_contributions_add_up_to_the_log_odds(estimator, wines, tmp_path):
    X, y = wines
    model = estimator.fit(X, y)
    explanation = kw.explain(model, X, y)
    parts = explanation.contributions(X.head(4))
    logits = model.decision_function(X.head(4))
    logits = logits - logits.mean(axis=1, keepdims=True)  # which changes no probability
    assert parts.outputs == tuple(f"centred logit of {label}" for label in model.classes_)
    for k in range(len(model.classes_)):
        frame = parts.to_frame(output=k)
        np.testing.assert_allclose(frame.drop(columns="prediction").sum(axis=1), logits[:, k], atol=1e-6)
    assert set(explanation.importances.index) == set(X.columns)
    explanation.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert all(str(label) in page for label in model.classes_)
