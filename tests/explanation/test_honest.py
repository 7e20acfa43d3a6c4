"""What is not there is not drawn, and errors say which rows they are on."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.metrics import average_precision_score, confusion_matrix, log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import knotwork as kw
from knotwork.explanation.bands import fits_of
from knotwork.explanation.content import page_content
from knotwork.explanation.diagnostics import calibration


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({
        "used": rng.normal(size=400), "noise": rng.normal(size=400), "race": rng.choice(list("abc"), 400),
        "flag": rng.integers(0, 2, 400), "year": rng.integers(1990, 2020, 400),
    })  # fmt: skip
    return X, pd.Series(1e3 + 3 * np.abs(X["used"]) + 2 * X["flag"] + 0.01 * rng.normal(size=400), name="price")


MODELS = [
    kw.MarsRegressor(),
    kw.MarsRegressor(max_degree=2),
    kw.SplineNetRegressor(n_members=1, hidden=(32, 16), max_degree=1, epochs=0, random_state=0),
    kw.SplineNetRegressor(n_members=1, hidden=(32,), max_degree=1, epochs=0, activation="leaky_relu", random_state=0),
]


@pytest.mark.parametrize("model", MODELS, ids=repr)
@pytest.mark.parametrize("curves", ["partial", "accumulated"])
def test_a_column_that_is_not_used_is_exactly_zero(model, curves, table):
    X, y = table
    model.fit(X, y)
    explanation = kw.explain(model, X, y, curves=curves)
    unused = [name for name, effect in explanation.effects.items() if not effect.used]
    assert {"used", "flag"}.isdisjoint(unused)
    assert "race" in unused
    parts = explanation.contributions(X)
    page = page_content(explanation)
    records = {record["column"]: record for record in page["effects"]["curves"]}
    for name in unused:
        effect = explanation.effects[name]
        for values in (effect.spline, effect.network):
            assert values is None or (values == 0).all()
        assert (parts.values[:, list(X.columns).index(name)] == 0).all()
        assert (explanation.importances.loc[name, ["permutation", "coefficient"]] == 0).all()
        assert records[name]["note"] == "not used"
        assert "grid" not in records[name]
        assert not next(c for c in page["model"]["columns"] if c["name"] == name)["used"]
    assert (explanation.importances.loc[["used", "flag"], "permutation"] > 0).all()
    assert list(records)[-len(unused) :] == [name for name in records if name in unused]


def test_parts_that_cancel_are_no_effect():
    # The network of a spline whose terms cancel: every path has weight, the sum has none.
    spline = kw.Spline((kw.Linear(0), kw.Hinge(1, 0.0, 1)), [1e6], [[1.0], [1.0]], ("a", "b"))
    net = kw.to_network(spline)
    import torch

    with torch.no_grad():
        for layer in net:
            if isinstance(layer, torch.nn.Linear) and layer.out_features == 1:
                layer.weight[:, :2] = torch.tensor([0.5, 0.5])  # |a| / 2 where it was a: still an effect
    X = np.random.default_rng(0).normal(size=(300, 2))
    explanation = kw.explain(net, X)
    assert explanation.effects["a"].size > 1
    rest = explanation.contributions(X).interactions["interaction"]
    assert (rest == 0).all()  # additive: what is left is rounding, and is shown as nothing


def test_training_that_changed_nothing_says_so(table):
    X, y = table
    still = kw.SplineNetRegressor(n_members=1, hidden=(32,), epochs=3, learning_rate=1e-30, random_state=0).fit(X, y)
    explanation = kw.explain(still, X, y)
    assert not explanation.drift.changed
    assert (explanation.drift.inputs["strength_before"] == explanation.drift.inputs["strength_after"]).all()
    page = page_content(explanation)
    assert page["meta"]["unchanged"].startswith("Training changed nothing")
    assert page["drift"] == {"lead": page["meta"]["unchanged"], "changed": False}
    moved = kw.SplineNetRegressor(n_members=1, hidden=(32,), start="random", epochs=5, random_state=0).fit(X, y)
    assert moved.history_.best_epoch > 0
    explanation = kw.explain(moved, X, y)
    assert explanation.drift.changed
    assert page_content(explanation)["meta"]["unchanged"] is None


def test_binary_columns_have_two_points_and_years_do_not(table):
    X, y = table
    effects = kw.explain(kw.MarsRegressor().fit(X, y), X, y).effects
    assert effects["flag"].binary
    assert effects["flag"].grid.tolist() == [0, 1]
    assert effects["flag"].counts.tolist() == [(X["flag"] == 0).sum(), (X["flag"] == 1).sum()]
    assert np.diff(effects["flag"].spline[:, 0]) == pytest.approx(2, abs=0.1)
    assert not effects["year"].binary


def wrapped(model):
    return {
        "plain": model,
        "pipeline": make_pipeline(StandardScaler(), model),
        "target": TransformedTargetRegressor(model, func=np.log, inverse_func=np.exp),
        "both": make_pipeline(StandardScaler(), TransformedTargetRegressor(model, transformer=StandardScaler())),
        "search": GridSearchCV(model, {"max_terms": [5]}, cv=2),
    }


@pytest.mark.parametrize("how", ["plain", "pipeline", "target", "both", "search"])
def test_rows_of_the_fit_are_known_again(how):
    X, y = kw.datasets.load_wine_quality("red")
    model = wrapped(kw.MarsRegressor())[how].fit(X[:800], y[:800])
    kinds = {
        "training": (X[:800], y[:800]),
        "held-out": (X[1400:].drop_duplicates(), None),
        "mixed": (X[600:1000], y[600:1000]),
    }
    assert kw.explain(model, *kinds["training"]).basis.kind == "training"
    assert kw.explain(model, X[100:300][::-1], y[100:300][::-1]).basis.kind == "training"
    mixed = kw.explain(model, *kinds["mixed"]).basis
    assert mixed.kind == "mixed"
    assert 0.45 < mixed.seen < 0.75  # a half, and rows of the rest that have copies among the first
    other = kw.explain(model, X[800:], y[800:] + 0.5)
    assert other.basis.kind == "held-out"
    assert set(other.quality["rows"]) == {"test rows"}
    assert kw.explain(model, X[:800]).basis is None
    assert kw.explain(model, X[:800], y[:800], held_out=True).basis.kind == "held-out"
    assert kw.explain(model, X[800:], y[800:], held_out=False).basis.kind == "training"


def test_what_nobody_knows_is_said():
    X, y = kw.datasets.load_wine_quality("red")
    spline = kw.MarsRegressor().fit(X, y).spline_
    explanation = kw.explain(spline, X, y)
    assert explanation.basis.kind == "unknown"
    assert "maybe training rows" in str(explanation)
    assert "held_out=True" in page_content(explanation)["quality"]["lead"]
    model = kw.MarsRegressor().fit(X, y)
    numbers = X.to_numpy()
    assert kw.explain(model.partial_fit(numbers, y), numbers, y).basis.kind == "unknown"  # a stream keeps no rows


def test_out_of_fold_predictions_are_what_a_model_is_judged_by():
    X, y = kw.datasets.load_wine_quality("red")
    model = kw.MarsRegressor().fit(X, y)
    model.oof_prediction_ = cross_val_predict(kw.MarsRegressor(), X, y, cv=KFold(5, shuffle=True, random_state=0))
    explanation = kw.explain(model, X, y)
    assert explanation.basis.kind == "out-of-fold"
    honest = np.sqrt(np.mean((model.oof_prediction_ - y) ** 2))
    assert explanation.quality.loc["out-of-fold prediction", "RMSE"] == pytest.approx(honest)
    assert explanation.quality.loc["spline", "rows"] == "training rows"
    page = page_content(explanation)
    assert page["meta"]["figures"][-2] == {"label": "RMSE, out-of-fold", "value": pytest.approx(honest)}
    shown = page["quality"]["numbers"][0]
    np.testing.assert_allclose(shown["predicted"], model.oof_prediction_[shown["rows"]], rtol=1e-5)
    # Rows without a prediction are not judged; other rows, or another order, have none.
    model.oof_prediction_[::2] = np.nan
    half = kw.explain(model, X, y)
    assert half.basis.name == "validation rows"
    assert half.quality.loc["out-of-fold prediction", "RMSE"] == pytest.approx(
        np.sqrt(np.nanmean((model.oof_prediction_ - y) ** 2))
    )
    assert set(page_content(half)["quality"]["numbers"][0]["rows"]) <= set(range(1, len(X), 2))
    assert kw.explain(model, X[::-1], y[::-1]).basis.kind == "training"
    assert kw.explain(model, X[:100], y[:100]).basis.kind == "training"


@pytest.mark.parametrize("classes", [2, 3])
def test_pictures_of_classes_are_scikit_learns_numbers(classes):
    X, y = kw.datasets.load_wine_quality("red")
    y = pd.cut(y, [0, 5, 6, 10], labels=["low", "mid", "high"]).astype(str) if classes == 3 else y > 5
    model = kw.MarsClassifier().fit(X[::2], y[::2])
    rows, truth = X[1::2], y[1::2]
    explanation = kw.explain(model, rows, truth, held_out=True)
    found = page_content(explanation)["quality"]
    chances = model.predict_proba(rows)
    np.testing.assert_array_equal(found["classes"]["confusion"], confusion_matrix(truth, model.predict(rows)))
    for k, curves in zip(range(classes) if classes > 2 else [1], found["classes"]["curves"], strict=True):
        is_it = truth == model.classes_[k]
        assert curves["auc"] == pytest.approx(roc_auc_score(is_it, chances[:, k]), rel=1e-6)
        assert curves["ap"] == pytest.approx(average_precision_score(is_it, chances[:, k]), rel=1e-6)
        mean, share, counts = curves["calibration"]
        assert np.dot(mean, counts) / len(rows) == pytest.approx(chances[:, k].mean(), rel=1e-3)
        assert np.dot(share, counts) / len(rows) == pytest.approx(is_it.mean(), rel=1e-3)
    quality = explanation.quality
    assert quality.loc["spline", "log loss"] == pytest.approx(log_loss(truth, chances))
    shares = np.tile([np.mean(truth == label) for label in model.classes_], (len(rows), 1))
    assert quality.loc["class shares alone", "log loss"] == pytest.approx(
        log_loss(truth, shares, labels=model.classes_)
    )


def test_a_class_that_no_row_has_draws_no_curve():
    X, y = kw.datasets.load_wine_quality("red")
    model = kw.MarsClassifier().fit(X, y > 5)
    some = y[y > 5].index
    curves = page_content(kw.explain(model, X.loc[some], y[some] > 5))["quality"]["classes"]["curves"][0]
    assert curves["roc"] == [[], []]
    assert calibration(np.full(5, 0.3), np.zeros(5, dtype=bool))[2].tolist() == [5]


def test_bands_are_the_range_over_folds():
    X, y = kw.datasets.load_wine_quality("red")
    model = kw.MarsRegressor().fit(X, y)
    assert kw.explain(model, X).effects["alcohol"].band is None
    model.fold_splines_ = tuple(kw.MarsRegressor().fit(X[k::3], y[k::3]).spline_ for k in range(3))
    explanation = kw.explain(model, X)
    effect = explanation.effects["alcohol"]
    single = [kw.explain(spline, X).effects["alcohol"] for spline in model.fold_splines_]
    at = np.stack([np.interp(effect.grid, e.grid, e.spline[:, 0]) for e in single])
    np.testing.assert_allclose(effect.band.lower[:, 0], at.min(axis=0), atol=0.02)
    np.testing.assert_allclose(effect.band.upper[:, 0], at.max(axis=0), atol=0.02)
    assert (effect.band.lower <= effect.band.upper).all()
    page = page_content(explanation)["effects"]
    assert "Bands are the range over 3 folds" in page["lead"]
    assert next(e for e in page["curves"] if e["column"] == "alcohol")["band"]["what"] == "3 folds"
    behind = make_pipeline(StandardScaler(), model).fit(X, y)
    assert fits_of(kw.explain(behind, X).subject) is None


def test_folds_of_cv_judge_and_have_bands():
    X, y = kw.datasets.load_wine_quality("red")
    explanation = kw.explain(kw.MarsRegressor(cv=3).fit(X[:600], y[:600]), X[:600], y[:600])
    assert explanation.basis.name == "out-of-fold"
    assert explanation.effects["alcohol"].band.what == "3 folds"
    classes = kw.explain(kw.MarsClassifier(cv=3).fit(X[:600], y[:600] > 5), X[:600], y[:600] > 5)
    assert classes.basis.name == "out-of-fold"
    honest, flattering = classes.quality.loc[["out-of-fold prediction", "spline"], "log loss"]
    assert honest > flattering


def test_members_are_judged_out_of_fold_and_have_bands():
    X, y = kw.datasets.load_wine_quality("red")
    X, y = X[:500], y[:500]
    model = kw.SplineNetRegressor(hidden=(12, 6), n_members=3, epochs=2, random_state=0).fit(X, y)
    explanation = kw.explain(model, X, y)
    assert explanation.basis.name == "out-of-fold"
    honest = np.sqrt(np.mean((model.oof_prediction_ - y) ** 2))
    assert explanation.quality.loc["out-of-fold prediction", "RMSE"] == pytest.approx(honest)
    fits = fits_of(explanation.subject)
    assert (fits.count, fits.what) == (3, "3 members")
    each = fits.function(explanation.rows.matrix)
    np.testing.assert_allclose(each.mean(axis=1), model.predict(X), atol=1e-9)
    assert (np.ptp(each, axis=1) > 0).all()
    effect = explanation.effects["alcohol"]
    assert (effect.band.lower <= effect.network + 1e-12).all()
    assert (effect.network <= effect.band.upper + 1e-12).all()
    assert effect.band.lower.min() < effect.band.upper.min()
    page = page_content(explanation)
    assert [layer["blocks"] for layer in page["model"]["network"]["layers"]] == [1, 3, 1]


@pytest.mark.parametrize(
    "model",
    [
        kw.MarsRegressor(loss="poisson"),
        kw.SplineNetRegressor(n_members=1, loss="poisson", hidden=(8,), epochs=2, random_state=0),
    ],
    ids=["spline", "network"],
)
def test_counts_are_compared_with_counts_and_effects_named_after_their_link(model):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"size": rng.uniform(0, 2, 400), "noise": rng.normal(size=400)})
    y = pd.Series(rng.poisson(np.exp(X["size"])), name="claims")
    explanation = kw.explain(model.fit(X[:300], y[:300]), X[300:], y[300:], held_out=True)
    page = page_content(explanation)
    assert page["meta"]["outputs"] == ("log(claims)",)
    assert page["quality"]["responses"] == ("claims",)
    shown = page["quality"]["numbers"][0]
    np.testing.assert_allclose(shown["predicted"], model.predict(X[300:])[shown["rows"]], rtol=1e-4)
    np.testing.assert_allclose(shown["actual"], y[300:].to_numpy()[shown["rows"]])
    assert kw.explain(model, X[:300], y[:300]).basis.kind in ("training", "out-of-fold")


def test_intervals_say_how_many_rows_they_hold():
    X, y = kw.datasets.load_wine_quality("red")
    model = kw.MarsRegressor().fit(X[:800], y[:800])
    model.predict_interval = lambda X, coverage: np.stack([model.predict(X) - 1, model.predict(X) + 1], axis=1)
    # Intervals are made from training rows: their coverage there says nothing.
    assert page_content(kw.explain(model, X[:800], y[:800]))["quality"]["interval"] is None
    X, y = X[800:], y[800:]
    page = page_content(kw.explain(model, X, y, held_out=True))
    inside = np.mean(np.abs(model.predict(X) - y) <= 1)
    assert page["quality"]["interval"] == {"nominal": 0.9, "covered": inside, "width": pytest.approx(2)}
    row = page["rows"]["numbers"][0]
    assert page["rows"]["intervals"][0] == pytest.approx(model.predict(X)[row] + np.array([-1, 1]), rel=1e-4)


def test_plots_say_what_they_show(table):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    X, y = table
    model = kw.MarsRegressor().fit(X, y)
    model.fold_splines_ = (model.spline_, model.spline_)
    explanation = kw.explain(model, X, y)
    try:
        ax = explanation.plot_importances()
        assert "rise in RMSE, training rows" in ax.get_xlabel()
        assert "importance 0 not shown" in ax.get_xlabel()
        assert len(ax.texts) == len(ax.patches) > 0  # a number on every bar
        unused, flag, used = explanation.plot_effects(["race", "flag", "used"])[0]
        assert [t.get_text() for t in unused.texts] == ["not used"]
        assert not unused.patches
        assert [t.get_text() for t in flag.get_xticklabels()] == ["0", "1"]
        assert len(flag.patches) == len(flag.texts) == 2
        assert used.get_ylabel() == "effect on price"
        assert used.get_xlabel() == "used"
        assert "range over 2 folds" in used.get_legend_handles_labels()[1]
        scatter, residual = explanation.plot_quality()
        assert scatter.get_ylabel() == "actual price"
        assert residual.get_xlabel() == "predicted price"
        assert "training rows" in scatter.figure.get_suptitle()
        classes = kw.explain(kw.MarsClassifier().fit(X, y > 1003), X, y > 1003).plot_quality()
        assert len(classes) == 4
    finally:
        plt.close("all")


@pytest.mark.parametrize("step", [1.0, 0.1, 250.0, None])
def test_histograms_have_no_teeth_that_the_data_do_not_have(step):
    rng = np.random.default_rng(0)
    places = rng.integers(18, 90, 20_000)
    values = rng.uniform(0, 1, 20_000) if step is None else step * places
    X = pd.DataFrame({"age": values, "other": rng.normal(size=len(values))})
    effect = kw.explain(kw.MarsRegressor().fit(X, X["other"] + values / values.max()), X).effects["age"]
    assert effect.counts.sum() == len(values)
    density = effect.counts / np.diff(effect.edges)
    # 20 000 rows in at most 30 bins: an even column is even to within a few standard errors.
    assert density.max() / density.min() < 1.35
    if step is not None:  # every bin but the last has the same number of possible values
        possible = np.histogram(np.unique(values), effect.edges)[0]
        assert len(set(possible[:-1])) == 1


def test_units_of_a_network_are_named_with_dates_and_whole_ids():
    rng = np.random.default_rng(0)
    n = 600
    days = rng.integers(0, 900, n)
    X = pd.DataFrame({"when": pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D"),
                      "id": rng.integers(10_000_000, 99_999_999, n)})  # fmt: skip
    y = np.abs(days - 400) / 100 + np.abs(X["id"] - 5e7) / 1e7
    model = kw.SplineNetRegressor(hidden=(32,), n_members=1, epochs=1, random_state=0).fit(X, y)
    terms = set(kw.explain(model).drift.units["term"]) - {""}
    assert terms
    number = model.spline_.feature_names.index("id")
    for hinge in model.spline_.terms:
        knot = f"{hinge.knot:.0f}" if hinge.feature == number else str(
            (pd.Timestamp("2020-01-01") + pd.Timedelta(days=hinge.knot - days.min())).date())  # fmt: skip
        name = model.spline_.feature_names[hinge.feature]
        assert (f"h({name} - {knot})" if hinge.sign > 0 else f"h({knot} - {name})") in terms


def test_epochs_that_were_undone_are_said():
    X, y = kw.datasets.load_wine_quality("red")
    model = kw.SplineNetRegressor(hidden=(16,), n_members=1, epochs=3, learning_rate=3.0, random_state=0)
    model.fit(X[:400], y[:400])
    assert model.history_.undone
    lead = page_content(kw.explain(model, X[:400], y[:400]))["history"]["lead"]
    assert f"Training undid {len(model.history_.undone)} epoch" in lead


def test_errors_of_the_largest_and_smallest_responses_are_numbers():
    X = np.linspace(-1, 1, 50)[:, None]
    for size in (1e200, 1e-200, 1.0):
        y = size * (np.abs(X[:, 0]) + 0.1 * np.sin(50 * X[:, 0]))
        model = kw.MarsRegressor().fit(X, y)
        found = kw.explain(model, X, y).quality.loc["spline"]
        gap = (model.predict(X) - y) / size
        assert found["RMSE"] == pytest.approx(size * np.sqrt(np.mean(gap**2)), rel=1e-12)
        assert found["R²"] == pytest.approx(1 - np.sum(gap**2) / np.sum((y / size - np.mean(y / size)) ** 2), rel=1e-9)
