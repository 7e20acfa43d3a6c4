"""cv=: sizes chosen by held-out rows, out-of-fold predictions, and the path of models."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupKFold, KFold, RepeatedKFold, ShuffleSplit, TimeSeriesSplit
from sklearn.utils.estimator_checks import parametrize_with_checks

import knotwork as kw
from knotwork.data.target_encoding import Response
from knotwork.errors import DataError
from knotwork.estimators.folds import fold_labels
from knotwork.spline import folds as folds_module
from knotwork.spline.rules import gcv


@parametrize_with_checks([kw.MarsRegressor(cv=3), kw.MarsClassifier(cv=3, max_terms=5)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    return X, np.abs(X[:, 0]) + np.sin(2 * X[:, 1]) + 0.5 * rng.normal(size=400)


def by_hand(X, y, folds, sizes, weights=None, **options):
    """Held-out squared errors of every size, from models of the public interface: fit, path_, predict."""
    weights = np.ones(len(y)) if weights is None else weights
    loss = np.zeros(sizes)
    for train, test in folds:
        path = kw.MarsRegressor(**options).fit(X[train], y[train], sample_weight=weights[train]).path_
        for size in range(1, sizes + 1):
            spline = path[min(size, len(path)) - 1].spline
            loss[size - 1] += weights[test] @ (spline(X[test]) - y[test]) ** 2
    return loss / sum(weights[test].sum() for _, test in folds)


def test_the_size_is_the_one_that_is_best_on_rows_held_out(data):
    X, y = data
    folds = list(KFold(4, shuffle=True, random_state=1).split(X))
    model = kw.MarsRegressor(cv=folds).fit(X, y)
    found = model.cv_results_
    expected = by_hand(X, y, folds, len(found["size"]))
    np.testing.assert_allclose(found["mean_error"], expected, rtol=1e-9)
    assert found["size"].tolist() == list(range(1, len(expected) + 1))
    assert len(model.spline_.terms) + 1 == 1 + int(np.argmin(expected))
    errors = found["fold_errors"]
    np.testing.assert_allclose(found["standard_error"], errors.std(axis=1, ddof=1) / 2)
    # Out of fold: each row by the fold that held it out, whose spline never saw it.
    for spline, rows, (train, test) in zip(model.fold_splines_, model.fold_rows_, folds, strict=True):
        assert rows.tolist() == test.tolist()
        np.testing.assert_allclose(model.oof_prediction_[test], spline(X[test]), rtol=1e-12)
        assert len(spline.terms) <= len(model.spline_.terms)
        again = kw.MarsRegressor().fit(X[train], y[train]).path_[len(spline.terms)].spline
        np.testing.assert_allclose(again(X[test]), spline(X[test]), atol=1e-9)
    assert np.mean((model.oof_prediction_ - y) ** 2) == pytest.approx(found["mean_error"].min())
    # The model is fitted to all rows.
    assert model.spline_ == kw.MarsRegressor().fit(X, y).path_[len(model.spline_.terms)].spline or np.allclose(
        model.predict(X), kw.MarsRegressor().fit(X, y).path_[len(model.spline_.terms)].spline(X), atol=1e-9
    )


def test_penalties_are_those_at_which_gcv_would_choose_the_size(data):
    X, y = data
    model = kw.MarsRegressor(cv=4).fit(X, y)
    rss, n = np.array([m.rss for m in model.path_]), len(y)
    for size, penalty in zip(model.cv_results_["size"], model.cv_results_["penalty"], strict=True):
        if np.isnan(penalty) or size > len(rss):
            continue
        charged = [gcv(rss[k], n, k + 1, penalty * (1 + 1e-9) + 1e-9) for k in range(len(rss))]
        assert int(np.argmin(charged)) + 1 == size
    # And every size that GCV chooses at some penalty has one.
    for penalty in (0.0, 1.0, 2.0, 5.0, 50.0):
        size = 1 + int(np.argmin([gcv(rss[k], n, k + 1, penalty) for k in range(len(rss))]))
        assert model.cv_results_["penalty"][size - 1] <= penalty


def test_weights_and_rows_of_weight_zero(data):
    X, y = data
    weights = np.arange(len(y)) % 3.0
    model = kw.MarsRegressor(cv=KFold(3)).fit(X, y, sample_weight=weights)
    kept = weights > 0
    assert np.isnan(model.oof_prediction_[~kept]).all()
    assert not np.isnan(model.oof_prediction_[kept]).any()
    assert np.concatenate(model.fold_rows_).tolist() == np.flatnonzero(kept).tolist()
    error = np.average((model.oof_prediction_ - y)[kept] ** 2, weights=weights[kept])
    assert model.cv_results_["mean_error"].min() == pytest.approx(error)
    # A weight is that many rows.
    twice = np.repeat(np.arange(len(y)), weights.astype(int))
    a = kw.MarsRegressor(cv=4).fit(X, y, sample_weight=weights)
    b = kw.MarsRegressor(cv=4).fit(X[twice], y[twice])
    np.testing.assert_allclose(a.oof_prediction_[twice], b.oof_prediction_, atol=1e-9)


def test_folds_by_content_do_not_depend_on_the_order_of_rows(data):
    X, y = data
    order = np.random.default_rng(1).permutation(len(y))
    X = np.concatenate([X, X[:50]])  # copies
    y = np.concatenate([y, y[:50] + 0.1])
    order = np.random.default_rng(1).permutation(len(y))
    a, b = kw.MarsRegressor(cv=5).fit(X, y), kw.MarsRegressor(cv=5).fit(X[order], y[order])
    np.testing.assert_allclose(a.oof_prediction_[order], b.oof_prediction_, atol=1e-9)
    label = fold_labels(X, Response(y[:, None]), 5)
    assert (label[:50] == label[400:]).all()
    assert np.bincount(label[:400]).tolist() == [80] * 5
    # Few different rows: spread, whatever their order.
    few = np.arange(60.0)[:, None] % 4
    label = fold_labels(few, Response(y[:60, None]), 5)
    assert np.bincount(label).tolist() == [12] * 5
    turned = fold_labels(few[::-1], Response(y[:60, None][::-1]), 5)
    assert (turned[::-1] == label).all()


def test_folds_of_classes_have_their_share_and_keep_the_only_row_of_a_class():
    X = np.arange(101.0)[:, None]
    codes = np.repeat([0, 1, 2], [80, 20, 1])
    label = fold_labels(X, Response(codes, ("a", "b", "c")), 4)
    assert [np.bincount(label[codes == k]).tolist() for k in (0, 1)] == [[20] * 4, [5] * 4]
    assert label[100] == -1


def test_splitters_groups_and_several_responses(data):
    X, y = data
    groups = np.arange(len(y)) // 40
    model = kw.MarsRegressor(cv=GroupKFold(5)).fit(X, y, groups=groups)
    assert all(len(set(groups[rows])) == 2 for rows in model.fold_rows_)
    both = np.stack([y, 100 * np.cos(X[:, 2])], axis=1)
    for scale in (False, True):
        two = kw.MarsRegressor(cv=3, scale_responses=scale).fit(X, both)
        assert two.oof_prediction_.shape == (400, 2)
        # Without a scale, the response in small units hardly counts.
        assert ((np.mean((two.oof_prediction_ - both) ** 2, axis=0) < 0.6 * both.var(axis=0)) == [scale, True]).all()
    series = kw.MarsRegressor(cv=TimeSeriesSplit(3)).fit(X, y)
    assert np.isnan(series.oof_prediction_[:100]).all()
    assert np.isfinite(series.oof_prediction_[100:]).all()
    repeated = kw.MarsRegressor(cv=RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)).fit(X, y)
    assert len(repeated.fold_splines_) == 6
    assert np.isfinite(repeated.oof_prediction_).all()
    rows = repeated.fold_rows_
    expected = sum(
        np.where(np.isin(np.arange(400), r), s(X), 0.0) for s, r in zip(repeated.fold_splines_, rows, strict=True)
    )
    np.testing.assert_allclose(repeated.oof_prediction_, expected / 2, atol=1e-12)


def test_the_degree_is_chosen_by_held_out_rows(data):
    X, _ = data
    rng = np.random.default_rng(2)
    pair = 3 * np.minimum(np.maximum(X[:, 0], 0), np.maximum(X[:, 1], 0)) + 0.1 * rng.normal(size=400)
    model = kw.MarsRegressor(max_degree="auto", cv=4).fit(X, pair)
    found = model.cv_results_
    best = int(np.argmin(found["mean_error"]))
    assert found["degree"][best] >= 2
    assert set(found["degree"]) >= {1, 2}
    assert max(len(t.features) for t in model.spline_.terms) == 2
    assert len(model.spline_.terms) + 1 == found["size"][best]
    assert np.isnan(found["penalty"][found["degree"] == 1]).all()
    assert model.path_[len(model.spline_.terms)].held_out == found["mean_error"][best]


def test_columns_learned_from_the_response_are_learned_by_each_fold_alone():
    """Categories that say nothing about y must not look as if they did on held-out rows."""
    rng = np.random.default_rng(0)
    n = 600
    town = rng.integers(60, size=n)
    means = rng.normal(size=60)
    frame = pd.DataFrame({"town": [f"t{k}" for k in town], "x": rng.normal(size=n)})
    y = 2 * means[town] + rng.normal(size=n)
    model = kw.MarsRegressor(cv=3).fit(frame, y)
    assert len(model.fold_encoders_) == 3
    for encoder, spline, rows in zip(model.fold_encoders_, model.fold_splines_, model.fold_rows_, strict=True):
        np.testing.assert_allclose(spline(encoder.encode(frame.iloc[rows])), model.oof_prediction_[rows], rtol=1e-12)
        # What a level becomes is what the training rows alone say: the held-out responses may be anything.
        changed = y.copy()
        changed[rows] = rng.normal(size=len(rows))
        train = np.setdiff1d(np.arange(n), rows)
        other = kw.MarsRegressor(cv=[(train, rows)]).fit(frame, changed)
        np.testing.assert_array_equal(other.fold_encoders_[0].encode(frame), encoder.encode(frame))
    assert model.encoder_.encode(frame).shape[1] == 2
    plain = kw.MarsRegressor(cv=3).fit(frame[["x"]], y)
    assert plain.fold_encoders_ is None


def test_many_rows_share_a_pass_and_agree_with_folds_on_their_own(monkeypatch):
    rng = np.random.default_rng(3)
    X = np.round(rng.normal(size=(3000, 4)), 2) * [1, 1e3, 1, 1] + [0, 2000, 0, 0]
    y = np.abs(X[:, 0]) + np.sin(X[:, 1] / 500) + 0.5 * rng.normal(size=3000)
    both, weights = np.stack([y, 10 * X[:, 2] ** 2], axis=1), rng.integers(1, 4, 3000).astype(float)
    # The same knots: folds on their own would choose them from their own rows.
    knots = [np.unique(np.quantile(column, np.arange(1, 20) / 20, method="nearest")) for column in X.T]
    built = []
    for rows in (10**9, 100):
        monkeypatch.setattr(folds_module, "MIN_SHARED_ROWS", rows)
        model = kw.MarsRegressor(cv=5, max_terms=15, threshold=0.0, knots=knots, extrapolate="linear")
        built.append(model.fit(X, both, sample_weight=weights))
    alone, shared = built
    np.testing.assert_allclose(shared.cv_results_["mean_error"], alone.cv_results_["mean_error"], rtol=1e-9)
    assert shared.fit_.selection.selected.tolist() == alone.fit_.selection.selected.tolist()
    for a, b in zip(alone.fold_splines_, shared.fold_splines_, strict=True):
        assert a.terms == b.terms
    scale = both.std(axis=0)
    np.testing.assert_allclose(shared.oof_prediction_ / scale, alone.oof_prediction_ / scale, atol=1e-9)
    np.testing.assert_allclose(shared.predict(X) / scale, alone.predict(X) / scale, atol=1e-9)


def test_folds_of_many_rows_are_of_about_one_size_and_of_few_different_rows_too(monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr("knotwork.estimators.folds.MANY_ROWS", 1000)
    X = rng.normal(size=(5000, 2))
    X[1000:2000] = X[:1000]
    label = fold_labels(X, Response(X), 5)
    assert (label[1000:2000] == label[:1000]).all()
    assert np.bincount(label).min() > 900
    order = rng.permutation(5000)
    assert (fold_labels(X[order], Response(X[order]), 5) == label[order]).all()
    few = np.round(X[:, :1]).clip(-1, 1)
    assert np.bincount(fold_labels(few, Response(X), 5)).tolist() == [1000] * 5


def test_classes_are_judged_by_log_loss():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(500, 3))
    three = np.digitize(X[:, 0] + 0.3 * rng.normal(size=500), [-0.5, 0.5])
    for y in (three > 0, np.array(["a", "b", "c"])[three]):
        model = kw.MarsClassifier(cv=4).fit(X, y)
        assert model.oof_prediction_.shape == (500, len(model.classes_))
        np.testing.assert_allclose(model.oof_prediction_.sum(axis=1), 1)
        loss = log_loss(y, model.oof_prediction_)
        assert model.cv_results_["mean_error"].min() == pytest.approx(loss, rel=1e-3)
        best = model.cv_results_["size"][np.argmin(model.cv_results_["mean_error"])]
        assert len(model.spline_.terms) + 1 == best
        for spline, rows in zip(model.fold_splines_, model.fold_rows_, strict=True):
            assert spline.intercept.size == model.spline_.intercept.size
            assert len(rows) in (124, 125, 126)
        path = model.path_
        assert path[best - 1].spline == model.spline_
        assert path[best - 1].held_out == model.cv_results_["mean_error"].min()
        assert path[0].spline is None or best == 1


@pytest.mark.parametrize(("loss", "quantile"), [("poisson", None), ("quantile", 0.8), ("huber", None)])
def test_other_losses_are_judged_by_themselves(data, loss, quantile):
    X, y = data
    y = np.random.default_rng(5).poisson(np.exp(y)).astype(float)
    model = kw.MarsRegressor(loss=loss, quantile=quantile, cv=3, max_terms=9).fit(X, y)
    found = model.cv_results_
    best = int(np.argmin(found["mean_error"]))
    assert len(model.spline_.terms) + 1 == found["size"][best]
    deviances = []
    for spline, rows in zip(model.fold_splines_, model.fold_rows_, strict=True):
        np.testing.assert_allclose(model.oof_prediction_[rows], model.loss_.predict(spline(X[rows])), rtol=1e-12)
        deviances.append(model.loss_.deviance(spline(X[rows]), y[rows]).mean())
    # Huber's width is each fold's own.
    assert np.mean(deviances) == pytest.approx(found["mean_error"][best], rel=0.1 if loss == "huber" else 2e-3)
    if loss == "poisson":
        assert (model.oof_prediction_ > 0).all()
    if loss == "quantile":
        assert np.mean(y <= model.oof_prediction_) == pytest.approx(0.8, abs=0.06)
    assert model.path_[best].spline == model.spline_ or found["size"][best] != best + 1
    assert model.path_[-1].spline is None or best == len(model.path_) - 1


@pytest.mark.parametrize(
    ("options", "groups", "message"),
    [
        ({"cv": 1}, None, "cv"),
        ({"cv": "five"}, None, "cv must be a splitter"),
        ({"cv": [3]}, None, "cv must be a splitter of scikit-learn or an iterable of .* pairs"),
        ({"cv": [(np.arange(5), np.arange(5))]}, None, "cv=list has 5 of 400 rows on both sides"),
        ({"cv": [(np.arange(5), [400])]}, None, "cv=list has row 400"),
        ({"cv": []}, None, "cv must give at least one split"),
        ({"cv": GroupKFold(3)}, None, "cv=GroupKFold must split the rows, it refused them.*groups"),
        ({"cv": [([0], [1])]}, None, "at least 2 rows of positive weight to train on, fold 0 of cv has 1"),
        ({"cv": [([0, 1], [])]}, None, "cv must hold out rows of positive weight"),
        ({}, np.arange(400), "groups are for a splitter"),
        ({"cv": 3}, np.arange(400), "groups are for a splitter"),
        ({"cv": 3, "backend": "torch"}, None, "folds are fitted in memory"),
    ],
)
def test_bad_folds_are_refused_in_a_sentence(data, options, groups, message):
    model = kw.MarsRegressor(**options)
    with pytest.raises(ValueError, match=message):
        model.fit(*data, groups=groups)
    assert not hasattr(model, "fit_")


def test_a_fold_without_a_class_is_refused(data):
    X, _y = data
    labels = np.where(np.arange(400) < 100, "a", "b")
    with pytest.raises(DataError, match="fold 0 of cv has none of 'a'"):
        kw.MarsClassifier(cv=KFold(4)).fit(X, labels)


def test_a_fit_without_folds_forgets_them_and_a_failed_one_does_not(data):
    X, y = data
    model = kw.MarsRegressor(cv=3).fit(X, y)
    kept = model.oof_prediction_
    with pytest.raises(DataError, match="cv must be"):
        model.set_params(cv=[3]).fit(X, y)
    assert model.oof_prediction_ is kept
    model.set_params(cv=None).fit(X, y)
    assert not any(hasattr(model, name) for name in ("oof_prediction_", "fold_splines_", "fold_rows_", "cv_results_"))


@pytest.mark.parametrize(
    "cv", [3, ShuffleSplit(2, test_size=0.3, random_state=0), [(np.arange(200), np.arange(200, 400))]]
)
def test_saved_pickled_and_cloned(data, cv, tmp_path):
    X, y = data
    model = kw.MarsRegressor(cv=cv).fit(X, y)
    kw.save(model, tmp_path / "m")
    for again in (kw.load(tmp_path / "m"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.oof_prediction_, model.oof_prediction_)
        assert again.fold_splines_ == model.fold_splines_
        assert all((a == b).all() for a, b in zip(again.fold_rows_, model.fold_rows_, strict=True))
        assert again.path_ == model.path_
        for key, value in model.cv_results_.items():
            np.testing.assert_array_equal(again.cv_results_[key], value)
    assert type(clone(model).cv) is type(model.cv)


def test_the_path_has_the_model_of_every_size(data):
    X, y = data
    model = kw.MarsRegressor().fit(X, y)
    path = model.path_
    assert [m.terms for m in path] == list(range(1, len(path) + 1))
    assert path[len(model.spline_.terms)].spline == model.spline_
    assert [m.held_out for m in path] == [None] * len(path)
    for m in path:
        assert len(m.spline.terms) + 1 == m.terms
        assert m.rss == pytest.approx(np.sum((m.spline(X) - y) ** 2), rel=1e-9)
        assert m.gcv == pytest.approx(gcv(m.rss, len(y), m.terms, 2.5))
        # Least squares on its terms.
        basis = np.column_stack([np.ones(len(y)), m.spline.basis(X)])
        assert m.rss == pytest.approx(np.linalg.lstsq(basis, y, rcond=None)[1].sum() or m.rss, rel=1e-9)
    assert model.gcv_ == pytest.approx(min(m.gcv for m in path))
    both = np.stack([y, 1e3 * y + X[:, 0]], axis=1)
    for m in kw.MarsRegressor(scale_responses=True).fit(X, both).path_:
        basis = np.column_stack([np.ones(len(y)), m.spline.basis(X)])
        expected = basis @ np.linalg.lstsq(basis, both, rcond=None)[0]
        np.testing.assert_allclose(m.spline(X), expected, atol=1e-9 * 1e3)


def test_a_plot_of_the_path(data):
    pytest.importorskip("matplotlib").use("Agg")
    for cv in (None, 3):
        ax = kw.MarsRegressor(cv=cv).fit(*data).plot_path()
        labels = [line.get_label() for line in ax.get_lines()]
        assert "GCV" in labels
        assert ("rows held out" in labels) == (cv is not None)
        ax.figure.clear()


def test_axes_that_are_none_are_refused():
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(TypeError, match="ax must be matplotlib axes or None, got 3"):
        kw.MarsRegressor().fit(X, X[:, 0]).plot_path(3)
