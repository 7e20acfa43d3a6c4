import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import knotwork as kw
from knotwork.errors import DataError, WeightWarning


@parametrize_with_checks(
    [
        kw.MarsRegressor(),
        kw.MarsRegressor(compat="earth"),
        kw.MarsRegressor(max_degree=2),
        kw.MarsRegressor(max_degree="auto"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    return X, np.abs(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=300)


def test_attributes_are_floats_and_shapes_are_as_promised(data):
    X, y = data
    model = kw.MarsRegressor().fit(X, y)
    for name in ("gcv_", "grsq_", "rss_", "rsq_"):
        assert isinstance(getattr(model, name), float)
    assert model.rss_ == pytest.approx(np.sum((y - model.predict(X)) ** 2))
    assert model.rsq_ == pytest.approx(model.score(X, y))
    assert model.feature_importances_.shape == (4,)
    assert model.feature_importances_.sum() == pytest.approx(1)
    assert model.feature_importances_.argmax() in (0, 1)
    basis = model.transform(X)
    assert basis.shape == (300, len(model.spline_.terms)) == (300, len(model.get_feature_names_out()))
    np.testing.assert_allclose(basis @ model.spline_.coef[:, 0] + model.spline_.intercept, model.predict(X))
    assert model.predict(X).shape == (300,)
    assert kw.MarsRegressor().fit(X, y[:, None]).predict(X).shape == (300, 1)
    assert kw.MarsRegressor().fit(X, np.stack([y, -y], axis=1)).predict(X).shape == (300, 2)


def test_the_importance_of_a_category_is_that_of_its_column():
    X, y = kw.datasets.load_abalone()
    model = kw.MarsRegressor().fit(X, y)
    assert model.feature_importances_.shape == (8,)
    assert model.feature_importances_[0] > 0


def test_a_summary_has_what_a_statistician_expects(data):
    X, y = data
    text = kw.MarsRegressor().fit(pd.DataFrame(X, columns=["len[0]", "b", "c", "d"]), y).summary()
    for expected in (
        "h(len[0]",
        "(intercept)",
        "GCV",
        "RSS",
        "GRSq",
        "R²",
        "terms kept",
        "forward pass stopped because",
    ):
        assert expected in text
    two = kw.MarsRegressor().fit(X, np.stack([y, -y], axis=1)).summary()
    assert "coef y1" in two


def test_verbose_shows_progress(data, capsys):
    kw.MarsRegressor(verbose=1).fit(*data)
    assert "forward pass" in capsys.readouterr().out


def test_knot_rows_are_rows_of_the_table_also_with_weights_of_zero(data):
    X, y = data
    X = np.round(X, 1)
    weights = np.ones(300)
    weights[:50] = 0
    model = kw.MarsRegressor().fit(X, y, sample_weight=weights)
    assert model.knots_
    for knot in model.knots_:
        assert knot.rows.min() >= 50
        assert (X[knot.rows, knot.feature] == knot.value).all()


def test_unfitted_attributes_do_not_exist():
    model = kw.MarsRegressor()
    assert not hasattr(model, "spline_")
    assert not hasattr(model, "feature_importances_")


# Bad input: a clear error, or the right answer.


def test_constant_and_duplicated_columns_are_harmless(data):
    X, y = data
    odd = np.column_stack([np.full(300, 7.0), X, X[:, 0]])
    model = kw.MarsRegressor().fit(odd, y)
    assert model.rsq_ == pytest.approx(kw.MarsRegressor().fit(X, y).rsq_, abs=1e-3)
    assert model.feature_importances_[0] == 0


@pytest.mark.parametrize("value", [0.0, 3.0, -1e150])
def test_a_constant_response(data, value):
    model = kw.MarsRegressor().fit(data[0], np.full(300, value))
    assert model.predict(data[0]).tolist() == [value] * 300
    assert (model.rsq_, model.grsq_, model.rss_) == (0.0, 0.0, 0.0)
    assert model.spline_.terms == ()
    assert "response is constant" in model.summary()
    assert model.feature_importances_.tolist() == [0, 0, 0, 0]


def test_all_columns_constant(data):
    model = kw.MarsRegressor().fit(np.ones((300, 3)), data[1])
    np.testing.assert_allclose(model.predict(np.ones((2, 3))), data[1].mean())


@pytest.mark.parametrize(("n", "d"), [(2, 1), (3, 1), (5, 40), (30, 100)])
def test_few_rows_and_many_columns(n, d):
    rng = np.random.default_rng(n)
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    for compat in (None, "earth"):
        model = kw.MarsRegressor(compat=compat).fit(X, y)
        assert np.isfinite(model.predict(X)).all()
        assert np.isfinite(model.gcv_)


def test_values_at_the_edge_of_floats():
    X = np.array([[-1.7e308], [1.7e308], [0.0], [1e308], [-1e308]] * 10)
    assert np.isfinite(kw.MarsRegressor().fit(X, np.arange(50.0)).predict(X)).all()
    tiny = np.array([[5e-324], [1e-323], [0.0], [2e-323], [3e-323]] * 10)
    assert np.isfinite(kw.MarsRegressor().fit(tiny, np.arange(50.0)).predict(tiny)).all()


X2 = np.arange(20.0).reshape(10, 2)
Y2 = np.arange(10.0) ** 2


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.where(X2 == 5, -np.inf, X2), Y2, "column 'x1' contains inf"),
        (X2, np.where(Y2 == 9, np.nan, Y2), "response 'y' contains NaN"),
        (X2, np.stack([Y2, np.where(Y2 == 9, np.inf, Y2)], axis=1), "response 'y1' contains inf"),
        (np.empty((0, 2)), np.empty(0), "0 sample"),
        (pd.DataFrame({"a": []}, dtype=float), np.empty(0), "at least 2 rows, got a table with 0"),
        (X2[:1], Y2[:1], "1 sample"),
        (np.arange(5.0), np.arange(5.0), "Expected 2D array"),
        (X2, Y2[:4], "same number of rows, got inconsistent 10 and 4"),
        (X2, np.zeros((10, 0)), "0 feature"),
        (X2, np.zeros((10, 1, 1)), r"shape \(N,\) or \(N, outputs\), got \(10, 1, 1\)"),
        (X2, np.array(list("abcdefghij")), "target of a regression must be numeric.*'a'"),
        (X2.astype(str).astype(object) + "cm", Y2, "an array must hold numbers.*pass a data frame"),
        (pd.DataFrame({"a": ["x", 1] * 5}), Y2, "column 'a' mixes int and str"),
        (X2, None, "target y is None"),
    ],
)
def test_bad_data_is_refused_with_its_name_and_a_remedy(X, y, message):
    model = kw.MarsRegressor()
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "fit_")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full(10, -1.0), "must not be negative, got -1 in row 0; use 0"),
        (np.full(10, np.nan), "contains NaN"),
        (np.full(10, np.inf), "infinity"),
        (
            np.zeros(10),
            "at least one non-zero number|at least 2 rows of positive weight, got 0",
        ),  # by scikit-learn's version
        (np.eye(10)[0], "at least 2 rows of positive weight, got 1"),
        (np.full(10, 1e308), r"sum to at most 2\*\*53 .*, got inf; divide them by their mean"),
        (np.ones(3), r"sample_weight.shape == \(3,\)"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        kw.MarsRegressor().fit(X2, Y2, sample_weight=weights)


def test_weights_that_sum_to_one_are_warned_about():
    with pytest.warns(WeightWarning, match="divide the weights by their mean"):
        kw.MarsRegressor().fit(X2, Y2, sample_weight=np.full(10, 0.1))


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("max_terms", 1), ("max_terms", 2.5), ("max_degree", 0), ("max_degree", "all"), ("penalty", -2),
        ("penalty", "two"), ("threshold", -0.1), ("threshold", 1.0), ("minspan", 0), ("endspan", 0),
        ("max_knots", 0), ("max_knots", "all"), ("compat", "mars"),
        ("backend", "cuda"), ("n_jobs", 0), ("interaction", "sum"), ("max_parents", 0), ("verbose", -1),
    ],
)  # fmt: skip
def test_parameters_out_of_range_are_refused_by_name(parameter, value):
    with pytest.raises(ValueError, match=f"'{parameter}' parameter of MarsRegressor must be"):
        kw.MarsRegressor(**{parameter: value}).fit(X2, Y2)


def test_a_failed_fit_leaves_the_model_as_it_was(data):
    X, y = data
    model = kw.MarsRegressor().fit(X, y)
    before = model.predict(X)
    with pytest.raises(DataError):
        model.fit(np.where(X > 2, np.inf, X)[:, :2], y)
    assert np.array_equal(model.predict(X), before)
    assert clone(model).get_params() == model.get_params()


class TestInteractions:
    def test_columns_that_may_interact_by_name_or_number(self):
        X, y = kw.datasets.load_abalone()
        names = list(X.columns)
        by_name = kw.MarsRegressor(max_degree=2, interacting=[names[0], names[7]]).fit(X, y)
        by_number = kw.MarsRegressor(max_degree=2, interacting=[0, 7]).fit(X, y)
        assert by_name.spline_ == by_number.spline_
        source = by_name.encoder_.source
        pairs = [t for t in by_name.spline_.terms if isinstance(t, kw.Min)]
        assert pairs
        assert {source[f] for t in pairs for f in t.features} <= {0, 7}

    @pytest.mark.parametrize("column", ["weight of the moon", 99, -1])
    def test_a_column_that_is_not_there(self, column):
        X, y = kw.datasets.load_abalone()
        with pytest.raises(ValueError, match="interacting must hold columns of X, by name or by number from 0 to 7"):
            kw.MarsRegressor(max_degree=2, interacting=[column]).fit(X, y)

    def test_the_rules_of_earth_are_of_first_order(self):
        X, y = kw.datasets.load_abalone()
        with pytest.raises(ValueError, match="compat='earth' holds for max_degree=1, got 2"):
            kw.MarsRegressor(max_degree=2, compat="earth").fit(X, y)

    def test_interactions_help_where_they_are(self):
        X, y = kw.datasets.load_abalone()
        additive, pairs = kw.MarsRegressor().fit(X, y), kw.MarsRegressor(max_degree=2).fit(X, y)
        assert pairs.gcv_ < additive.gcv_
        assert "min(h(" in pairs.summary()
        assert np.isclose(pairs.feature_importances_.sum(), 1)

    def test_the_summary_says_which_degree_was_chosen_and_why(self):
        X, y = kw.datasets.load_abalone()
        text = kw.MarsRegressor(max_degree="auto").fit(X, y).summary()
        why = r"Degree [123] was chosen by the mean loss of held-out rows: [\d.]+ \(degree 1\), [\d.]+ \(degree 2\)"
        assert re.search(why, text)

    @pytest.mark.parametrize("interaction", ["min", "product"])
    def test_saved_and_loaded(self, interaction, tmp_path):
        X, y = kw.datasets.load_abalone()
        model = kw.MarsRegressor(max_degree=3, interaction=interaction).fit(X, y)
        kw.save(model, tmp_path / "model")
        loaded = kw.load(tmp_path / "model")
        assert loaded.spline_ == model.spline_
        assert np.array_equal(loaded.predict(X), model.predict(X))
        assert kw.Spline.from_dict(model.spline_.to_dict()) == model.spline_

    def test_threads_change_no_bit(self):
        X, y = kw.datasets.load_abalone()
        one, two = (kw.MarsRegressor(max_degree=2, n_jobs=n).fit(X, y) for n in (1, 2))
        assert one.spline_ == two.spline_


def test_responses_may_count_by_their_own_deviation():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    large, small = 1e6 * (np.abs(X[:, 0]) + rng.normal(size=400)), np.abs(X[:, 1]) + 0.1 * rng.normal(size=400)
    y = np.stack([large, small], axis=1)
    plain, scaled = (kw.MarsRegressor(scale_responses=s).fit(X, y) for s in (False, True))
    assert np.corrcoef(plain.predict(X)[:, 1], small)[0, 1] < 0.7
    assert np.corrcoef(scaled.predict(X)[:, 1], small)[0, 1] > 0.95
    # The units of a response then change nothing but its own coefficients.
    other = kw.MarsRegressor(scale_responses=True).fit(X, y * [2.0**-20, 1.0])
    assert other.spline_.terms == scaled.spline_.terms
    np.testing.assert_allclose(other.predict(X) * [2.0**20, 1.0], scaled.predict(X), rtol=1e-9)
    one = kw.MarsRegressor(scale_responses=True).fit(X, small)
    assert one.spline_ == kw.MarsRegressor().fit(X, small).spline_
    constant = kw.MarsRegressor(scale_responses=True).fit(X, np.stack([small, np.full(400, 7.0)], axis=1))
    np.testing.assert_allclose(constant.predict(X)[:, 1], 7.0)
