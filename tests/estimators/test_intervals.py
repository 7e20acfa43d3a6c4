"""Intervals and sets: the rule is mapie's, widths follow the noise, and shares of rows covered are nominal."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression

import knotwork as kw
from knotwork.data.limits import sampled_rows
from knotwork.errors import DataError
from knotwork.estimators.conformal import Calibration
from knotwork.spline.temperature import calibration_error, fit_temperature


def noisy(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise that grows with the first column."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, size=(rows, 3))
    return X, 3 * np.abs(X[:, 1] - 0.5) + (0.1 + X[:, 0]) * rng.normal(size=rows)


@pytest.fixture(scope="module")
def networks():
    X, y = noisy(900, 0)
    options = {"hidden": (16,), "epochs": 8, "random_state": 0}
    return [kw.SplineNetRegressor(n_members=n, **options).fit(X, y) for n in (1, 3)]


def test_intervals_cover_and_follow_the_noise(networks, tmp_path):
    X, y = noisy(4000, 1)
    for model, rule, slack in zip(networks, ("split", "cross"), (0.06, 0.03), strict=True):
        assert model.calibration_.rule == rule
        widths = []
        for coverage in (0.8, 0.9):
            low, high = model.predict_interval(X, coverage).T
            assert np.mean((low <= y) & (y <= high)) == pytest.approx(coverage, abs=slack)
            widths.append(high - low)
        assert (widths[0] < widths[1]).all()
        quiet, loud = X[:, 0] < 0.2, X[:, 0] > 0.8
        assert widths[0][loud].mean() > 2 * widths[0][quiet].mean()
        kw.save(model, tmp_path / rule)
        np.testing.assert_array_equal(kw.load(tmp_path / rule).predict_interval(X), model.predict_interval(X))


def test_ends_behind_a_log_are_not_negative():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(600, 2))
    y = rng.poisson(np.exp(X[:, 0])).astype(float)
    model = kw.SplineNetRegressor(n_members=1, loss="poisson", hidden=(8,), epochs=2, random_state=0).fit(X, y)
    ends = model.predict_interval(X, 0.9)
    assert (ends >= 0).all()
    assert np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])) > 0.8
    spline = kw.MarsRegressor(cv=3, loss="poisson").fit(X, y)
    for method in ("base", "plus"):
        ends = spline.predict_interval(X, 0.9, method=method)
        assert ends.min() == 0  # counts of zero are in reach


def test_the_quantile_is_that_of_mapie():
    mapie = pytest.importorskip("mapie.regression")
    X, y = noisy(300, 0)
    line = LinearRegression().fit(X[:100], y[:100])
    calibration = Calibration.of("split", np.abs(y[100:] - line.predict(X[100:])), np.ones(200))
    for coverage in (0.8, 0.9, 0.95):
        theirs = mapie.SplitConformalRegressor(line, confidence_level=coverage, prefit=True).conformalize(
            X[100:], y[100:]
        )
        _, ends = theirs.predict_interval(X[:5])
        assert calibration.quantile(coverage) == pytest.approx(float(ends[0, 1, 0] - ends[0, 0, 0]) / 2)


def test_sets_are_those_of_mapie():
    mapie = pytest.importorskip("mapie.classification")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=600), [-0.5, 0.5])
    line = LogisticRegression().fit(X[:200], y[:200])
    from knotwork.estimators.conformal import prediction_sets
    from knotwork.estimators.intervals import calibrate_sets

    calibration = calibrate_sets(line.predict_proba(X[200:500]), y[200:500], np.ones(300))
    for coverage in (0.8, 0.9):
        theirs = mapie.SplitConformalClassifier(line, confidence_level=coverage, prefit=True, conformity_score="lac")
        _, sets = theirs.conformalize(X[200:500], y[200:500]).predict_set(X[500:])
        ours = prediction_sets(line.predict_proba(X[500:]), calibration.quantile(coverage))
        np.testing.assert_array_equal(ours, sets[:, :, 0] | (ours & (sets[:, :, 0].sum(axis=1) == 0)[:, None]))


@given(st.integers(10, 60), st.floats(0.05, 0.9))
def test_the_guarantee_of_split_rules(rows, coverage):
    """Of n + 1 exchangeable scores, each is as likely to be the new one: the share covered is at least nominal."""
    scores = np.random.default_rng(rows).exponential(size=rows + 1)
    if coverage > rows / (rows + 1):
        return
    covered = [
        scores[k] <= Calibration.of("split", np.delete(scores, k), np.ones(rows)).quantile(coverage)
        for k in range(rows + 1)
    ]
    assert coverage - 1e-9 <= np.mean(covered) <= coverage + 1 / (rows + 1) + 1e-9


@given(st.integers(0, 10_000), st.integers(10, 60), st.integers(2, 5), st.floats(0.05, 0.95))
def test_the_guarantee_of_sets(seed, rows, classes, coverage):
    """Of n + 1 exchangeable rows each is as likely to be the new one: sets cover the nominal share of them, no more
    than that where some most probable class is wrong, or the share that is right."""
    from knotwork.estimators.conformal import prediction_sets
    from knotwork.estimators.intervals import calibrate_sets

    if coverage > rows / (rows + 1):
        return
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(classes, rng.exponential() + 0.1), size=rows + 1)
    codes = np.array([rng.choice(classes, p=own) for own in p])
    right = np.mean(p.argmax(axis=1) == codes)
    covered = []
    for k in range(rows + 1):
        rest = np.arange(rows + 1) != k
        calibration = calibrate_sets(p[rest], codes[rest], np.ones(rows))
        found = prediction_sets(p[k : k + 1], calibration.quantile(coverage))[0]
        assert found[p[k].argmax()]
        covered.append(found[codes[k]])
    assert coverage - 1e-9 <= np.mean(covered) <= max(coverage + 1 / (rows + 1), right) + 1e-9


def test_cross_validation_plus_is_the_plain_rule_where_all_folds_agree():
    rng = np.random.default_rng(0)
    X, y = noisy(200, 0)
    spread = kw.Spline((), np.zeros(1), np.zeros((0, 1)), ("a", "b", "c"))
    folds = rng.integers(0, 4, size=200)
    calibration = Calibration.of("cross", np.abs(y), np.ones(200), spread, folds)
    middle = rng.normal(size=10)
    ends = calibration.cross_interval(X[:10], np.repeat(middle[:, None], 4, axis=1), 0.9)
    reach = calibration.quantile(0.9)
    np.testing.assert_allclose(ends, np.stack([middle - reach, middle + reach], axis=1))


def test_base_is_around_the_spline_of_all_rows_and_plus_around_those_of_the_folds():
    X, y = noisy(400, 0)
    rest, _ = noisy(50, 1)
    model = kw.MarsRegressor(cv=5).fit(X, y)
    base, plus = model.predict_interval(rest), model.predict_interval(rest, method="plus")
    np.testing.assert_allclose(base.mean(axis=1), model.predict(rest))
    spreads = model.calibration_.spreads(rest)
    np.testing.assert_allclose((base[:, 1] - base[:, 0]) / 2, model.calibration_.quantile(0.9) * spreads)
    folds = np.stack([spline(rest) for spline in model.fold_splines_], axis=1)
    np.testing.assert_allclose(plus, model.calibration_.cross_interval(rest, folds, 0.9))
    assert not np.allclose(base, plus)


def test_cross_validation_plus_counts_weights():
    """Each end is the first value, from its side, up to which the weights reach the nominal share."""
    rng = np.random.default_rng(0)
    n, rows = 60, rng.normal(size=(5, 3))
    spread = kw.Spline((), np.zeros(1), np.zeros((0, 1)), ("a", "b", "c"))
    weights, folds = rng.exponential(size=n), rng.integers(0, 4, size=n)
    calibration = Calibration.of("cross", rng.exponential(size=n), weights, spread, folds)
    middle = rng.normal(size=(5, 4))
    ends = calibration.cross_interval(rows, middle, 0.8)
    share = 0.8 * (n + 1) / n * calibration.weights.sum()
    for row in range(5):
        for side, end in ((1, ends[row, 1]), (-1, ends[row, 0])):
            own = side * middle[row, calibration.folds] + calibration.scores
            found = next(v for v in np.sort(own) if calibration.weights[own <= v].sum() >= share)
            assert side * end == pytest.approx(found)


def test_weights_decide_the_width_of_both_methods():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 1))
    noisy_rows = rng.random(1200) < 0.5
    y = X[:, 0] + np.where(noisy_rows, 10.0, 0.1) * rng.normal(size=1200)
    weights = np.where(noisy_rows, 9.0, 1.0)
    model = kw.MarsRegressor(cv=5).fit(X, y, sample_weight=weights)
    for method in ("base", "plus"):
        low, high = model.predict_interval(X, method=method).T
        assert np.average((low <= y) & (y <= high), weights=weights) == pytest.approx(0.9, abs=0.03)


def test_methods_that_there_are_not_are_refused(networks):
    X, _ = noisy(5, 2)
    with pytest.raises(DataError, match="method must be 'base' or 'plus', got 'minmax'"):
        networks[0].predict_interval(X, method="minmax")
    with pytest.raises(DataError, match="method must be 'base' or 'plus'"):
        networks[0].predict_interval(X, method=pd.Series(["base"]))
    with pytest.raises(DataError, match="method='plus' needs a model of each fold"):
        networks[1].predict_interval(X, method="plus")


def test_what_cannot_be_covered_is_refused(networks):
    X, _ = noisy(5, 2)
    for wrong in (0.0, 1.0, 90, "0.9", True):
        with pytest.raises(DataError, match="coverage must be greater than 0 and less than 1"):
            networks[0].predict_interval(X, wrong)
    with pytest.raises(DataError, match=r"a coverage of 0.9999 needs at least 9999 rows"):
        networks[0].predict_interval(X, 0.9999)
    several = kw.SplineNetRegressor(n_members=1, hidden=(8,), epochs=0, random_state=0).fit(*[noisy(100, 0)[0]] * 2)
    with pytest.raises(DataError, match="several responses"):
        several.predict_interval(X)
    fresh = kw.MarsClassifier(cv=3)
    with pytest.raises(NotFittedError):
        fresh.predict_set(X)


@pytest.mark.parametrize("wrong", [float("nan"), None, [0.9], 10**400, np.True_, 0.9 + 0j])
def test_what_is_no_share_is_refused_by_intervals_and_sets(networks, wrong):
    X, y = noisy(60, 2)
    sets = kw.MarsClassifier(cv=3).fit(X, y > 1)
    for refuses in (networks[1].predict_interval, sets.predict_set):
        with pytest.raises(DataError, match="coverage must be greater than 0 and less than 1"):
            refuses(X, wrong)
    with pytest.raises(DataError, match=r"a coverage of 0.9999999999999999 needs"):
        sets.predict_set(X, 1 - 1e-16)


@pytest.mark.parametrize(
    "model",
    [
        kw.MarsRegressor(cv=3),
        kw.SplineNetRegressor(n_members=1, hidden=(8,), epochs=2, random_state=0),
        kw.SplineNetRegressor(n_members=3, hidden=(8,), epochs=2, random_state=0),
    ],
    ids=["mars", "one", "members"],
)
def test_intervals_after_all_that_a_model_goes_through(model):
    X, y = noisy(150, 0)
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=np.where(X[:, 2] > 0.5, "u", "v"))
    table.loc[::7, ["b", "kind"]] = np.nan
    with pytest.raises(NotFittedError):
        clone(model).predict_interval(table)
    model = clone(model).fit(table, y)
    ends = model.predict_interval(table)
    for twin in (pickle.loads(pickle.dumps(model)), clone(model).fit(table, y)):
        np.testing.assert_array_equal(twin.predict_interval(table), ends)
    np.testing.assert_array_equal(model.predict_interval(table.head(1)), ends[:1])
    assert model.predict_interval(table.head(0)).shape == (0, 2)
    nowhere = table.head(3).assign(a=1e300, b=np.nan, kind=None)
    assert np.isfinite(model.predict_interval(nowhere)).all()
    for unit in (1e-100, 1e100):  # units of measurement do not matter
        other = clone(model).fit(table, y * unit).predict_interval(table) / unit
        np.testing.assert_allclose(other, ends, rtol=1e-6, atol=1e-6)
    low, high = clone(model).fit(table, np.full(150, 3.0)).predict_interval(table).T
    assert np.allclose(low, 3)
    assert np.allclose(high, 3)
    with pytest.raises(DataError, match="several responses"):
        model.fit(table, np.stack([y, y], axis=1)).predict_interval(table)


def test_a_stream_forgets_the_scores_of_folds():
    X, y = noisy(100, 0)
    model = kw.MarsRegressor(cv=3).fit(X, y)
    model.set_params(cv=None).partial_fit(X, y)
    with pytest.raises(DataError, match=r"got cv=None; fit MarsRegressor\(cv=10\)"):
        model.predict_interval(X)


@pytest.mark.parametrize("classes", [2, 3])
def test_sets_and_temperatures_of_a_network(classes, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    codes = np.digitize(X[:, 0] + rng.normal(size=1500), [0.0, 1.0][: classes - 1])
    labels = np.array(["low", "mid", "top"])[codes]
    options = {"hidden": (16,), "epochs": 5, "random_state": 0}
    plain = kw.SplineNetClassifier(n_members=1, **options).fit(X[:900], labels[:900])
    model = kw.SplineNetClassifier(n_members=1, calibrate=True, **options).fit(X[:900], labels[:900])
    rest, truth = X[900:], codes[900:]
    sets = model.predict_set(rest, 0.9)
    assert sets.shape == (600, classes)
    assert sets[np.arange(600), truth].mean() == pytest.approx(0.9, abs=0.06)
    assert sets[np.arange(600), model.predict_proba(rest).argmax(axis=1)].all()
    # The network is the plain one over the temperature, and so is everything made of it.
    assert plain.temperature_ == 1
    assert model.temperature_ != 1
    np.testing.assert_allclose(
        model.decision_function(rest), plain.decision_function(rest) / model.temperature_, rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(model.predict(rest), plain.predict(rest))
    assert 0 <= model.calibration_error_ < 0.2
    assert "calibration error" in kw.explain(model, rest, labels[900:]).quality
    kw.save(model, tmp_path / "model")
    twin = kw.load(tmp_path / "model")
    np.testing.assert_array_equal(twin.predict_set(rest), model.predict_set(rest))
    assert twin.temperature_ == model.temperature_


def test_calibration_error_is_zero_for_what_is_right_on_average():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1.0, size=200_000)
    codes = (rng.random(200_000) > p).astype(np.intp)
    shares = np.stack([p, 1 - p], axis=1)
    assert calibration_error(shares, codes, np.ones(200_000)) < 0.01
    sure = np.where(shares > 0.5, 0.999, 0.001)
    assert calibration_error(sure, codes, np.ones(200_000)) == pytest.approx(0.25, abs=0.01)
    assert fit_temperature(np.log(shares), codes, np.ones(200_000)) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error"])
def test_splines_with_folds_have_intervals_by_both_rules(loss, tmp_path):
    X, y = noisy(700, 0)
    rest, truth = noisy(3000, 1)
    model = kw.MarsRegressor(cv=5, loss=loss).fit(X, y)
    assert model.calibration_.folds.size == 700
    for method in ("base", "plus"):
        for coverage in (0.8, 0.9):
            low, high = model.predict_interval(rest, coverage, method=method).T
            assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(coverage, abs=0.03)
    widths = high - low
    assert widths[rest[:, 0] > 0.8].mean() > 2 * widths[rest[:, 0] < 0.2].mean()
    # Ten rows of "plus" by the rule as it is written down.
    fold = model.calibration_.folds
    middle = np.stack([spline(rest[:10]) for spline in model.fold_splines_], axis=1)[:, fold]
    reach = model.calibration_.spreads(rest[:10])[:, None] * model.calibration_.scores
    place = int(np.ceil(0.9 * 701))
    np.testing.assert_allclose(high[:10], np.sort(middle + reach, axis=1)[:, place - 1])
    np.testing.assert_allclose(low[:10], np.sort(middle - reach, axis=1)[:, 700 - place])
    kw.save(model, tmp_path / "model")
    np.testing.assert_array_equal(kw.load(tmp_path / "model").predict_interval(rest), model.predict_interval(rest))
    model.set_params(cv=None).fit(X, y)
    with pytest.raises(DataError, match=r"got cv=None; fit MarsRegressor\(cv=10\)"):
        model.predict_interval(rest)


@pytest.mark.parametrize("classes", [2, 3])
def test_splines_of_classes_have_sets_and_temperatures(classes, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 3))
    codes = np.digitize(X[:, 0] + rng.normal(size=1500), [0.0, 1.0][: classes - 1])
    plain = kw.MarsClassifier(cv=4).fit(X[:700], codes[:700])
    model = kw.MarsClassifier(cv=4, calibrate=True).fit(X[:700], codes[:700])
    sets = model.predict_set(X[700:], 0.9)
    assert sets[np.arange(800), codes[700:]].mean() == pytest.approx(0.9, abs=0.04)
    np.testing.assert_allclose(
        model.decision_function(X[700:]), plain.decision_function(X[700:]) / model.temperature_, rtol=1e-9
    )
    assert 0 <= model.calibration_error_ < 0.15
    kw.save(model, tmp_path / "model")
    np.testing.assert_array_equal(kw.load(tmp_path / "model").predict_set(X), model.predict_set(X))
    with pytest.raises(DataError, match="calibrate=True fits a temperature to out-of-fold logits, got cv=None"):
        kw.MarsClassifier(calibrate=True).fit(X, codes)
    with pytest.raises(DataError, match=r"fit MarsClassifier\(cv=10\)"):
        kw.MarsClassifier().fit(X, codes).predict_set(X)


def test_the_smallest_coverage_still_has_an_interval():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = kw.MarsRegressor(cv=5).fit(X, X[:, 0] + np.random.default_rng(1).normal(size=60))
    lower, upper = model.predict_interval(X, coverage=1e-300).T
    wide = model.predict_interval(X, coverage=0.9)
    assert (wide[:, 0] <= lower).all()
    assert (upper <= wide[:, 1]).all()


@pytest.mark.parametrize("loss", ["squared_error", "quantile"])
def test_rows_that_are_all_equal_have_the_quantile_of_their_residuals(loss):
    y = np.random.default_rng(0).normal(size=60)
    X = np.ones((60, 2))
    model = kw.MarsRegressor(cv=3, loss=loss, quantile=0.5 if loss == "quantile" else None).fit(X, y)
    lower, upper = model.predict_interval(X, coverage=0.9).T
    assert np.unique([lower, upper]).size == 2
    assert 0.85 <= ((lower <= y) & (y <= upper)).mean() <= 0.97


def test_many_rows_are_scored_by_a_sample(monkeypatch):
    monkeypatch.setattr("knotwork.estimators.intervals.MAX_SCORES", 500)
    X, y = noisy(1500, 0)
    weights = np.random.default_rng(0).integers(1, 3, size=len(X)).astype(float)
    new, truth = noisy(2000, 1)
    for own in (None, weights):
        model = kw.MarsRegressor(cv=3).fit(X, y, sample_weight=own)
        calibration = model.calibration_
        assert len(calibration.scores) == len(calibration.folds) == len(calibration.weights) == 500
        kept = sampled_rows(len(X), 500)
        assert calibration.weights.sum() == (np.ones(len(X)) if own is None else own)[kept].sum()
        fold_of = np.empty(len(X), np.intp)
        for fold, held in enumerate(model.fold_rows_):
            fold_of[held] = fold
        np.testing.assert_array_equal(np.bincount(calibration.folds), np.bincount(fold_of[kept]))
        low, high = model.predict_interval(new, 0.9).T
        assert np.mean((low <= truth) & (truth <= high)) == pytest.approx(0.9, abs=0.04)
        assert model.oof_prediction_.shape == y.shape
