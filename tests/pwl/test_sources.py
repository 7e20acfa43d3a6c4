"""Each source of piecewise-linear functions, on real data, all the way into a network."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.interpolate import CubicSpline, LinearNDInterpolator
from sklearn.ensemble import BaggingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)
from sklearn.svm import SVR, LinearSVR
from sklearn.tree import DecisionTreeRegressor

import knotwork as kw
from knotwork.errors import DataError, NetworkError
from knotwork.pwl.interpolation import table_spline


@pytest.fixture(scope="module")
def wine():
    X, y = kw.datasets.load_wine_quality("red")
    return X, y.astype(float)


def check(model, X, expected, rtol=1e-9):
    """The function and its network are what the model predicts."""
    f = kw.as_pwl(model)
    rows = np.asarray(X, dtype=float)
    size = np.abs(expected).max() * 10
    np.testing.assert_allclose(f(rows).reshape(expected.shape), expected, atol=rtol * size)
    net = kw.to_network(model, dtype=torch.float64)
    with torch.no_grad():
        found = net(torch.from_numpy(rows.copy())).numpy().reshape(expected.shape)
    np.testing.assert_allclose(found, expected, atol=rtol * size)
    return f


@pytest.mark.parametrize("model", [LinearRegression(), Ridge(), Lasso(alpha=0.01), LinearSVR(max_iter=20)])
@pytest.mark.parametrize("scaler", [None, StandardScaler(), MinMaxScaler((-1, 2)), MaxAbsScaler(), RobustScaler()])
@pytest.mark.filterwarnings("ignore:Liblinear failed")
def test_linear_models_and_pipelines_of_scalers(wine, model, scaler):
    X, y = wine
    pipeline = make_pipeline(scaler, StandardScaler(with_mean=False), model) if scaler else model
    pipeline.fit(X, y)
    f = check(pipeline, X, pipeline.predict(X))
    assert isinstance(f, kw.Spline)
    assert f.feature_names == tuple(X.columns)


@pytest.mark.parametrize("extrapolation", ["constant", "linear", "continue", "error"])
@pytest.mark.parametrize("options", [{"knots": "quantile"}, {"n_knots": 3, "include_bias": False}])
def test_spline_transformers_of_degree_one(wine, extrapolation, options):
    X, y = wine
    bends = SplineTransformer(degree=1, extrapolation=extrapolation, **options)
    for steps in ((bends,), (StandardScaler(), bends, StandardScaler())):
        model = make_pipeline(*steps, Ridge(0.1)).fit(X, y)
        f = check(model, X, model.predict(X), rtol=1e-8)
        far = X.to_numpy() * 3 - 5
        if extrapolation != "error":
            beyond = model.predict(pd.DataFrame(far, columns=X.columns))
            np.testing.assert_allclose(f(far), beyond, atol=1e-7 * np.abs(beyond).max())


def test_several_responses(wine):
    X, y = wine
    both = np.column_stack([y, X["pH"]])
    model = make_pipeline(SplineTransformer(degree=1), Ridge()).fit(X, both)
    check(model, X, model.predict(X), rtol=1e-8)


@pytest.mark.parametrize("bounds", ["nan", "clip", "raise"])
def test_isotonic_regression(wine, bounds):
    X, y = wine
    x = X[["alcohol"]].to_numpy()
    model = IsotonicRegression(out_of_bounds=bounds).fit(x, y)
    f = check(model, x, model.predict(x))
    assert all(term.sign == 1 for term in f.terms)
    scaled = make_pipeline(StandardScaler(), IsotonicRegression(out_of_bounds="clip")).fit(x, y)
    check(scaled, np.linspace(0, 30, 99)[:, None], scaled.predict(np.linspace(0, 30, 99)[:, None]))


def test_tables_as_numpy_reads_them(wine):
    X, y = wine
    means = y.groupby(X["alcohol"].round(1)).mean()
    xp, fp = means.index.to_numpy(), means.to_numpy()
    grid = np.linspace(5, 20, 500)
    check((xp, fp), grid[:, None], np.interp(grid, xp, fp))
    two = table_spline(xp, np.column_stack([fp, -fp]))
    np.testing.assert_allclose(two(grid[:, None])[:, 1], -np.interp(grid, xp, fp), atol=1e-9)
    assert table_spline([3.0], [7.0])([[1.0], [5.0]]).tolist() == [7.0, 7.0]


@pytest.mark.parametrize("rescale", [False, True])
def test_interpolation_on_a_triangulation(wine, rescale):
    X, y = wine
    table = X[["alcohol", "volatile acidity"]]
    corners = [(table.iloc[:, 0].agg(a), table.iloc[:, 1].agg(b)) for a in ("min", "max") for b in ("min", "max")]
    chosen = table.drop_duplicates().sample(14, random_state=0)
    points = np.concatenate([np.array(corners), chosen.to_numpy()])
    values = np.concatenate([np.full(4, y.mean()), y[chosen.index]])
    model = LinearNDInterpolator(points, values, rescale=rescale)
    f = check(model, table, model(table.to_numpy()))
    assert isinstance(f, kw.LatticePWL)
    assert np.isnan(model([[0.0, 0.0]])).all()
    assert np.isfinite(f([[0.0, 0.0]])).all()  # a lattice is defined everywhere


def test_estimators_of_knotwork_are_functions(wine):
    X, y = wine
    for model in (
        kw.MarsRegressor(),
        kw.MaxAffineRegressor(n_pieces=4, random_state=0),
        kw.DCMaxAffineRegressor(n_pieces=3, random_state=0),
        kw.HingingHyperplanesRegressor(n_hinges=3, random_state=0),
    ):
        check(model.fit(X, y), X, model.predict(X))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            DecisionTreeRegressor(max_depth=2),
            "a DecisionTreeRegressor jumps: it is not continuous.*fit kw.MarsRegressor",
        ),
        (RandomForestRegressor(n_estimators=2), "not continuous"),
        (HistGradientBoostingRegressor(max_iter=2), "not continuous"),
        (KNeighborsRegressor(), "not continuous"),
        (PoissonRegressor(), "link function.*so it is not piecewise linear; fit kw.MarsRegressor"),
        (SVR(kernel="rbf"), "has no coef_"),
        (MLPRegressor(hidden_layer_sizes=(4,), max_iter=5), "has no coef_"),
        (LogisticRegression(max_iter=5), "must be a regressor that is piecewise linear, got LogisticRegression"),
        (make_pipeline(PolynomialFeatures(2), Ridge()), "scale and shift single features.*got PolynomialFeatures"),
        (make_pipeline(QuantileTransformer(n_quantiles=9), Ridge()), "got QuantileTransformer"),
        (make_pipeline(MinMaxScaler(clip=True), Ridge()), "does not predict|got MinMaxScaler"),
        (make_pipeline(SplineTransformer(degree=3), Ridge()), "degree 1 to be piecewise linear, got 3; set degree=1"),
        (make_pipeline(SplineTransformer(degree=1, extrapolation="periodic"), Ridge()), "infinitely many knots"),
        (make_pipeline(SplineTransformer(degree=1), SplineTransformer(degree=1), Ridge()), "bend its features once"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_is_not_piecewise_linear_is_refused_with_the_nearest_thing(wine, model, message):
    X, y = wine
    model.fit(X[:200].to_numpy(), y[:200].astype(int))
    with pytest.raises(DataError, match=message):
        kw.as_pwl(model)
    with pytest.raises(NetworkError, match=message):
        kw.to_network(model)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LinearRegression(), "not fitted; fit it first"),
        (CubicSpline([0, 1, 2], [0, 1, 0]), "LinearNDInterpolator is continuous.*got CubicSpline"),
        (([0.0, 0.0, 1.0], [1.0, 2.0, 3.0]), "xp must rise, got 0 and then 0: equal points would be a jump"),
        (([0.0, 1.0], [1.0]), r"one fp per xp, got shapes \(2,\) and \(1, 1\)"),
        (([0.0, np.nan], [1.0, 2.0]), "finite"),
        (("a", "b"), "two sequences of numbers"),
        (kw.MaxAffineRegressor(), "this MaxAffineRegressor is not fitted; fit it first"),
        ([], "got list"),
        (lambda x: x, "got function"),
    ],
)
def test_other_things_are_refused(model, message):
    with pytest.raises(DataError, match=message):
        kw.as_pwl(model)


def test_large_triangulations_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match=r"up to 200 simplices, got \d+; use fewer points"):
        kw.as_pwl(LinearNDInterpolator(rng.normal(size=(300, 2)), rng.normal(size=300)))


def test_an_average_of_continuous_models_is_not_said_to_jump():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    bag = BaggingRegressor(kw.MarsRegressor(), n_estimators=2, random_state=0).fit(X, np.abs(X[:, 0]))
    with pytest.raises(DataError, match=r"of a BaggingRegressor is not converted, its members are: kw.to_network"):
        kw.as_pwl(bag)
    assert len(kw.to_network(bag.estimators_[0])) == 5
