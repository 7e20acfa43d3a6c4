import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.utils.estimator_checks import parametrize_with_checks

import knotwork as kw
from knotwork.errors import DataError


@parametrize_with_checks([kw.MarsClassifier(), kw.MarsClassifier(max_degree=2)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def three_waves(n, seed):
    """Three classes by the size of a sum of symmetric effects: no class's probability rises or falls with a feature."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-np.pi, np.pi, size=(n, 4))
    wave = np.cos(2 * X[:, 0]) + np.cos(X[:, 1])
    return X, np.digitize(wave, np.quantile(wave, [1 / 3, 2 / 3]))


def test_symmetric_effects_are_found():
    X, y = three_waves(1500, 0)
    X_test, y_test = three_waves(1500, 1)
    model = kw.MarsClassifier().fit(X, y)
    assert np.mean(model.predict(X) != y) < 0.1
    assert np.mean(model.predict(X_test) != y_test) < 0.12
    assert model.feature_importances_[:2].sum() > 0.95


def test_shapes_and_the_spline_of_logits(iris):
    X, y = iris
    model = kw.MarsClassifier().fit(X, y)
    logits = model.decision_function(X)
    assert logits.shape == (150, 3)
    np.testing.assert_array_equal(logits, model.spline_(X))
    np.testing.assert_allclose(logits.sum(axis=1), 0, atol=1e-9)
    np.testing.assert_allclose(model.predict_log_proba(X), log_softmax(logits, axis=1), atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert model.deviance_ == pytest.approx(-2 * model.predict_log_proba(X)[np.arange(150), y].sum())
    assert model.null_deviance_ == pytest.approx(2 * 150 * np.log(3))
    assert model.transform(X).shape == (150, len(model.spline_.terms))
    assert model.feature_importances_.sum() == pytest.approx(1)
    for name in ("gcv_", "grsq_", "rss_", "rsq_"):
        assert isinstance(getattr(model, name), float)
    two = kw.MarsClassifier().fit(X[y > 0], y[y > 0])
    assert two.decision_function(X).shape == (150,)
    assert two.spline_.intercept.shape == (1,)
    assert two.classes_.tolist() == [1, 2]
    odds = two.predict_proba(X)
    np.testing.assert_allclose(np.log(odds[:, 1] / odds[:, 0]), two.decision_function(X), atol=1e-9)
    assert not hasattr(kw.MarsClassifier(), "deviance_")


def test_the_order_of_the_classes_does_not_matter(iris):
    X, y = iris
    first = kw.MarsClassifier().fit(X, y).predict_proba(X)
    second = kw.MarsClassifier().fit(X, 2 - y).predict_proba(X)
    np.testing.assert_allclose(first, second[:, ::-1], atol=1e-6)


@pytest.mark.parametrize(
    "label", [np.array(["no", "yes"]), np.array(["no", "yes"], dtype=object), np.array([False, True]), [-1.0, 7.0]]
)
def test_labels_of_any_kind(iris, label):
    X, y = iris
    labels = np.asarray(label)[(y > 0).astype(int)]
    model = kw.MarsClassifier().fit(X, labels)
    assert (model.predict(X) == labels).all()
    assert model.classes_.tolist() == sorted(set(labels.tolist()))


def test_a_frame_with_categories_and_a_series_of_labels():
    X, rings = kw.datasets.load_abalone()
    young = pd.Series(np.where(rings < 10, "young", "old"))
    model = kw.MarsClassifier().fit(X, young)
    assert model.score(X, young) > 0.75
    assert model.feature_importances_.shape == (8,)
    text = model.summary()
    for expected in ("log-odds of young", "deviance", "terms kept", "forward pass stopped because"):
        assert expected in text


def test_separable_classes_stay_finite():
    x = np.linspace(-1, 1, 400)[:, None]
    for codes in ((x[:, 0] > 0).astype(int), np.digitize(x[:, 0], [-0.5, 0, 0.5])):
        model = kw.MarsClassifier().fit(x, codes)
        # Knots keep a distance, so that a boundary may be off by a row or two.
        assert model.score(x, codes) > 0.98
        assert np.isfinite(model.decision_function(x)).all()
        assert np.abs(model.decision_function(x)).max() < 1e3


def test_a_class_with_one_row(iris):
    X, y = iris
    labels = y.copy()
    labels[0] = 7
    model = kw.MarsClassifier().fit(X, labels)
    assert model.classes_.tolist() == [0, 1, 2, 7]
    assert np.isfinite(model.predict_log_proba(X)).all()
    assert np.mean(model.predict(X)[1:] == labels[1:]) > 0.95


def test_a_hundred_and_twenty_classes():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(120, 6)) * 4
    y = np.repeat(np.arange(120), 12)
    X = centres[y] + rng.normal(size=(len(y), 6)) * 0.5
    model = kw.MarsClassifier(max_terms=30).fit(X, y)
    assert model.spline_.coef.shape[1] == 120
    assert model.score(X, y) > 0.9
    assert "largest coefficient" in model.summary()


def test_class_weights_are_sample_weights(iris):
    X, y = iris
    y = y[:120]
    X = X[:120]
    by_class = kw.MarsClassifier(class_weight={0: 1.0, 1: 2.0, 2: 3.0}).fit(X, y)
    by_row = kw.MarsClassifier().fit(X, y, sample_weight=1.0 + y)
    np.testing.assert_array_equal(by_class.decision_function(X), by_row.decision_function(X))
    balanced = kw.MarsClassifier(class_weight="balanced").fit(X, y)
    shares = np.bincount(y) / len(y)
    by_row = kw.MarsClassifier().fit(X, y, sample_weight=1 / (3 * shares[y]))
    np.testing.assert_allclose(balanced.decision_function(X), by_row.decision_function(X))


def test_rows_of_no_weight_are_not_there(iris):
    X, y = iris
    weight = np.where(y == 2, 0.0, 1.0)
    model = kw.MarsClassifier().fit(X, y, sample_weight=weight)
    assert model.classes_.tolist() == [0, 1]
    for knot in model.knots_:
        assert (X[knot.rows, knot.feature] == knot.value).all()


def test_the_ridge_shrinks(iris):
    X, y = iris
    sizes = [np.abs(kw.MarsClassifier(ridge=r).fit(X, y).decision_function(X)).max() for r in (0.001, 0.1, 10.0)]
    assert sizes[0] > sizes[1] > sizes[2]


X2 = np.arange(20.0).reshape(10, 2)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(10), "at least 2 classes, got only class"),
        (np.array([0.0, np.nan] * 5), r"y contains NaN or None in 5 of 10 rows, first 1; leave"),
        (np.array(["a", None] * 5, dtype=object), "y contains NaN or None"),
        (np.linspace(0, 1, 10), "Unknown label type.*use the regressor for a continuous target"),
        (np.array([0, 1]), "same number of rows, got inconsistent 10 and 2"),
        (None, "target y is None"),
    ],
)
def test_bad_labels_are_refused_with_a_remedy(y, message):
    model = kw.MarsClassifier()
    with pytest.raises(ValueError, match=message):
        model.fit(X2, y)
    assert not hasattr(model, "fit_")


@pytest.mark.parametrize(
    ("parameter", "value"), [("class_weight", "even"), ("ridge", -1.0), ("threshold", 1.0), ("max_terms", 1)]
)
def test_parameters_out_of_range_are_refused_by_name(parameter, value):
    with pytest.raises(ValueError, match=f"'{parameter}' parameter of MarsClassifier must be"):
        kw.MarsClassifier(**{parameter: value}).fit(X2, np.arange(10) % 2)


def test_negative_class_weights_are_refused():
    with pytest.raises(DataError, match="class weights must be finite and not negative"):
        kw.MarsClassifier(class_weight={0: -1.0, 1: 1.0}).fit(X2, np.arange(10) % 2)


def test_a_failed_fit_leaves_the_model_as_it_was(iris):
    X, y = iris
    model = kw.MarsClassifier().fit(X, y)
    before = model.predict_proba(X)
    with pytest.raises(DataError):
        model.fit(X, np.zeros(150))
    assert np.array_equal(model.predict_proba(X), before)
    assert clone(model).get_params() == model.get_params()


def test_interactions_tell_apart_what_no_additive_model_can():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = np.where(X[:, 0] * X[:, 1] > 0, "same", "different")
    additive, pairs = kw.MarsClassifier().fit(X, y), kw.MarsClassifier(max_degree=2).fit(X, y)
    X_new = rng.normal(size=(2000, 3))
    y_new = np.where(X_new[:, 0] * X_new[:, 1] > 0, "same", "different")
    assert additive.score(X_new, y_new) < 0.65
    assert pairs.score(X_new, y_new) > 0.9
    assert any(isinstance(term, kw.Min) for term in pairs.spline_.terms)
