import numpy as np
import pytest

from knotwork.spline.likelihood import fit_classes, indicators


def test_the_search_scores_a_candidate_by_the_score_statistic_of_the_null_model():
    rng = np.random.default_rng(1)
    codes = np.repeat([0, 1, 2], [10, 30, 60])
    c = rng.normal(size=100)
    shares = np.bincount(codes) / 100
    Y = np.eye(3)[codes]
    score = c @ (Y - shares)
    # Information of a coefficient given the intercept: (diag π − ππᵀ)·‖c − mean‖².
    information = (np.diag(shares) - np.outer(shares, shares)) * np.sum((c - c.mean()) ** 2)
    statistic = score @ np.linalg.pinv(information) @ score
    responses = indicators(codes, shares)
    responses = responses - responses.mean(axis=0)
    drop = np.sum((c @ responses) ** 2) / np.sum((c - c.mean()) ** 2)
    assert drop == pytest.approx(statistic)


def test_a_class_without_rows_is_improbable_and_finite():
    x = np.linspace(-1, 1, 60)[:, None]
    fit = fit_classes(x, (x[:, 0] > 0).astype(np.intp), 3)
    logits = fit.spline(x)
    assert np.isfinite(logits).all()
    assert (logits[:, 2] < logits.max(axis=1) - 5).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_the_order_of_the_rows_decides_nothing(classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4))
    codes = np.digitize(np.abs(X[:, 0]) + X[:, 1] + rng.logistic(size=len(X)), [0.8, 2.0][: classes - 1])
    order = rng.permutation(len(X))
    one, other = fit_classes(X, codes, classes), fit_classes(X[order], codes[order], classes)
    assert one.spline.terms == other.spline.terms
    np.testing.assert_allclose(one.spline(X), other.spline(X), atol=1e-9)
