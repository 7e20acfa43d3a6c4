"""Effects, contributions, knots: what they say is what the model does."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knotwork as kw
from knotwork.errors import DataError
from knotwork.explanation.subject import codes_of, matrix_of

finite = st.floats(-50, 50).map(lambda v: round(v, 3))


@st.composite
def splines(draw, features=4, interactions=True):
    kinds = st.sampled_from(["linear", "hinge", "hinge", "min"] if interactions else ["linear", "hinge"])
    feature = st.integers(0, features - 1)
    hinge = st.builds(kw.Hinge, feature, finite, st.sampled_from([-1, 1]))
    terms = []
    for kind in draw(st.lists(kinds, min_size=1, max_size=8)):
        if kind == "linear":
            terms.append(kw.Linear(draw(feature)))
        elif kind == "hinge":
            terms.append(draw(hinge))
        else:
            both = draw(st.tuples(hinge, hinge).filter(lambda pair: pair[0].feature != pair[1].feature))
            terms.append(kw.Min(both, (1.0, draw(st.floats(0.1, 10)))))
    outputs = draw(st.integers(1, 3))
    coef = draw(
        st.lists(st.lists(finite, min_size=outputs, max_size=outputs), min_size=len(terms), max_size=len(terms))
    )
    names = tuple(f"c{k}" for k in range(features))
    return kw.Spline(tuple(terms), draw(st.lists(finite, min_size=outputs, max_size=outputs)), coef, names)


def table(seed, rows=60, features=4):
    return np.random.default_rng(seed).uniform(-60, 60, (rows, features)).round(2)


def size_of(spline, X):
    """Of the parts, which may be large and cancel."""
    return np.abs(spline.intercept).max() + (np.abs(spline.basis(X)) @ np.abs(spline.coef)).max() + 1


@given(splines(), st.integers(0, 1000), st.booleans())
def test_a_splines_contributions_add_up(spline, seed, with_rows):
    X = table(seed)
    parts = kw.explain(spline, X if with_rows else None).contributions(X)
    total = parts.base + parts.values.sum(axis=1) + sum(parts.interactions.values(), 0.0)
    truth = spline(X).reshape(len(X), -1)
    assert np.abs(total - truth).max() <= 1e-9
    np.testing.assert_array_equal(parts.prediction, truth)
    if not any(isinstance(t, kw.Min) for t in spline.terms):
        assert parts.interactions == {}
    for name in parts.interactions:
        assert name.count(" × ") == 1


@given(splines(interactions=False), st.integers(0, 1000))
def test_an_additive_splines_curves_are_its_parts(spline, seed):
    X = table(seed)
    explanation = kw.explain(spline, X)
    parts = explanation.contributions(X)
    size = size_of(spline, X)
    for c, (name, effect) in enumerate(explanation.effects.items()):
        assert name == f"c{c}"
        knots = sorted({t.knot for t in spline.terms if isinstance(t, kw.Hinge) and t.feature == c})
        assert effect.knots.tolist() == knots
        assert {k for k in knots if X[:, c].min() < k < X[:, c].max()} <= set(effect.grid)
        for k in range(spline.intercept.size):
            # All knots are on the grid, so that between its points the curve is a line.
            at = np.interp(X[:, c], effect.grid, effect.spline[:, k])
            assert np.abs(at - parts.values[:, c, k]).max() <= 1e-10 * size
            assert abs(at.mean()) <= 1e-10 * size


@given(splines(interactions=False), st.integers(0, 1000))
def test_accumulated_effects_of_an_additive_spline_go_through_its_quantiles(spline, seed):
    X = table(seed)
    partial, accumulated = (kw.explain(spline, X, curves=c).effects for c in ("partial", "accumulated"))
    for c, name in enumerate(partial):
        edges = np.unique(np.quantile(X[:, c], np.linspace(0, 1, 41)))
        one, two = np.array([np.interp(edges, e[name].grid, e[name].spline[:, 0]) for e in (partial, accumulated)])
        # Differences between quantiles are the spline's own, up to the grid's lines between them.
        grid = partial[name].grid
        slack = np.abs(np.diff(partial[name].spline[:, 0])).max() if len(grid) > 1 else 0
        assert np.abs(np.diff(one - two)).max() <= 2 * slack + 1e-9 * size_of(spline, X)


def test_a_surface_is_what_the_pair_adds():
    pair = kw.Min((kw.Hinge(0, 1.0, 1), kw.Hinge(2, 5.0, -1)), (1.0, 2.0))
    spline = kw.Spline((kw.Linear(1), pair), [1.0], [[2.0], [3.0]], ("a", "b", "c"))
    X = table(0, features=3)
    (surface,) = kw.explain(spline, X).interactions.values()
    assert surface.columns == ("a", "c")
    i, j = 20, 7
    row = np.array([[surface.grids[0][i], 0.0, surface.grids[1][j]]])
    assert surface.values[i, j, 0] == pytest.approx(3 * pair(row)[0])
    frame = kw.explain(spline, X).contributions(X).to_frame()
    assert list(frame.columns) == ["(mean prediction)", "a", "b", "c", "a × c", "prediction"]
    assert (frame["a"] == 0).all()


@pytest.fixture(scope="module")
def abalone():
    X, y = kw.datasets.load_abalone()
    return kw.SplineNetRegressor(n_members=1, hidden=(64, 16), epochs=3, random_state=0).fit(X, y), X, y


def test_a_networks_contributions_add_up(abalone):
    model, X, y = abalone
    rows = X.iloc[::500]
    parts = kw.explain(model, X, y).contributions(rows)
    total = parts.base + parts.values.sum(axis=1) + parts.interactions["interaction"]
    assert np.abs(total[:, 0] - model.predict(rows)).max() < 1e-9
    frame = parts.to_frame()
    np.testing.assert_allclose(frame.drop(columns="prediction").sum(axis=1), frame["prediction"], atol=1e-9)


def test_an_untrained_network_has_the_splines_curves_and_no_interaction():
    X, y = kw.datasets.load_abalone()
    model = kw.SplineNetRegressor(n_members=1, hidden=(64,), epochs=0, random_state=0).fit(X, y)
    explanation = kw.explain(model, X, y)
    for effect in explanation.effects.values():
        np.testing.assert_allclose(effect.network, effect.spline, atol=1e-4)  # the network is single precision
    parts = explanation.contributions(X.head())
    assert np.abs(parts.interactions["interaction"]).max() < 1e-3


def test_categories_are_bars_under_their_column(abalone):
    model, X, y = abalone
    effect = kw.explain(model, X, y).effects["Sex"]
    assert effect.categories == ("F", "I", "M")
    assert effect.counts.tolist() == [(X["Sex"] == s).sum() for s in "FIM"]
    # The mean over rows with everybody's sex set, by hand.
    assert list(kw.explain(model, X, y).effects) == list(X.columns)
    half = X.sample(200, random_state=0)
    small = kw.explain(model, half).effects["Sex"]
    means = [model.predict(half.assign(Sex=s)).mean() for s in "FIM"]
    np.testing.assert_allclose(np.diff(small.network[:, 0]), np.diff(means), atol=1e-9)
    assert list(small.to_frame().index) == ["F", "I", "M"]


def test_codes_and_back():
    X, y = kw.datasets.load_abalone()
    encoder = kw.MarsRegressor().fit(X, y).encoder_
    matrix = encoder.encode(X)
    np.testing.assert_array_equal(matrix_of(encoder.parts, codes_of(encoder.parts, matrix)), matrix)
    nobody = np.zeros((1, 10))  # a category never seen has no indicator
    np.testing.assert_array_equal(matrix_of(encoder.parts, codes_of(encoder.parts, nobody)), nobody)


def test_knots_rows_carry_the_value(abalone):
    net, X, y = abalone
    encoded = pd.DataFrame(net.encoder_.encode(X), columns=list(net.encoder_.feature_names))
    mars = kw.MarsRegressor().fit(X, y)
    for explanation in (kw.explain(mars), kw.explain(mars, X), kw.explain(net, X, y)):
        frame = explanation.knots
        assert len(frame) > 3
        for feature, knot, count, rows in frame[["feature", "knot", "count", "rows"]].itertuples(index=False):
            column = encoded[feature].to_numpy()
            assert len(rows) == min(count, 1000) > 0
            assert (column[rows] == knot).all()
            assert count == (column == knot).sum()
    pd.testing.assert_frame_equal(kw.explain(mars).knots, kw.explain(mars, X).knots)
    assert kw.explain(net, X, y).knots["mean Rings"].between(1, 29).all()


def test_a_fit_alone_knows_its_curves():
    X, y = kw.datasets.load_abalone()
    model = kw.MarsRegressor().fit(X, y)
    alone, full = kw.explain(model).effects["Shell weight"], kw.explain(model, X).effects["Shell weight"]
    between = np.linspace(0.1, 0.4, 20)
    one, two = (np.interp(between, e.grid, e.spline[:, 0]) for e in (alone, full))
    np.testing.assert_allclose(np.diff(one), np.diff(two), atol=1e-9)
    assert alone.counts is None


@pytest.mark.parametrize("frame", ["polars", "pyarrow"])
def test_other_frames(abalone, frame):
    import polars

    model, X, y = abalone
    other = polars.from_pandas(X) if frame == "polars" else polars.from_pandas(X).to_arrow()
    ours, theirs = kw.explain(model, X, y), kw.explain(model, other, y)
    pd.testing.assert_frame_equal(ours.importances, theirs.importances)


def test_a_bare_network_and_several_responses():
    X, y = kw.datasets.load_wine_quality("red")
    both = np.stack([y, X["alcohol"]], axis=1)
    model = kw.MarsRegressor().fit(X, both)
    explanation = kw.explain(kw.to_network(model), X, both)
    assert list(explanation.effects) == list(X.columns)  # a converted network remembers them
    assert explanation.effects["alcohol"].network.shape[1] == 2
    assert explanation.importances.index[0] == "alcohol"
    assert list(explanation.effects["alcohol"].to_frame().columns) == ["network y0", "network y1"]
    assert explanation.quality.loc["network", "R²"] > 0.5
    lattice = kw.LatticePWL(np.eye(12)[1:], [tuple(range(11))])
    assert list(kw.explain(kw.to_network(lattice), X).effects) == [f"x{k}" for k in range(11)]


class Classes:
    """Stands for a fitted classifier: outputs are log-odds."""

    def __init__(self, model, classes):
        self.encoder_, self.spline_, self.fit_ = model.encoder_, model.spline_, model.fit_
        self.feature_names_in_, self.classes_ = model.feature_names_in_, np.array(classes)

    def get_params(self, deep=True):
        return {}


def test_outputs_of_a_classifier_are_log_odds(tmp_path):
    X, y = kw.datasets.load_wine_quality("red")
    good = (y > 5).map({True: "good", False: "bad"})
    model = Classes(kw.MarsRegressor().fit(X, 4.0 * (y > 5) - 2), ["bad", "good"])
    explanation = kw.explain(model, X, good)
    assert explanation.subject.output_names == ("log-odds of good",)
    chance = 1 / (1 + np.exp(-model.spline_(X)))
    loss = -np.log(np.where(good == "good", chance, 1 - chance)).mean()
    assert explanation.quality.loc["spline", "log loss"] == pytest.approx(loss)
    assert explanation.quality.loc["spline", "accuracy"] == pytest.approx(((chance > 0.5) == (good == "good")).mean())
    assert explanation.importances["permutation"].iloc[0] > 0
    explanation.to_html(tmp_path / "page.html")
    with pytest.raises(DataError, match="classes that the model knows, got 'ugly'"):
        kw.explain(model, X, ["ugly"] * len(X))


SENTENCES = [
    (lambda m, X, y: kw.explain(m, None, y), "y without X"),
    (lambda m, X, y: kw.explain(m, X.drop(columns="Sex")), "no 'Sex'"),
    (lambda m, X, y: kw.explain(m, X[list(X.columns)[::-1]]), "another order"),
    (lambda m, X, y: kw.explain(m, X.assign(more=1)), "'more' as well"),
    (lambda m, X, y: kw.explain(m, X, y[:-1]), "same number of rows, got 4177 and 4176"),
    (lambda m, X, y: kw.explain(m, X, np.stack([y, y], axis=1)), "must have 1 output"),
    (lambda m, X, y: kw.explain(m, X, ["a"] * len(X)), "y must hold numbers"),
    (lambda m, X, y: kw.explain(m, X.head(0)), "at least one row"),
    (lambda m, X, y: kw.explain(m, X, y, curves="round"), "curves must be one of partial, accumulated, got 'round'"),
    (lambda m, X, y: kw.explain(m).effects, "pass explain\\(model, X\\)"),
    (lambda m, X, y: kw.explain(m).knots, "pass explain\\(model, X\\)"),
    (lambda m, X, y: kw.explain(m).contributions(X), "pass explain\\(model, X\\)"),
    (lambda m, X, y: kw.explain(m, X).prune(-1.0), "threshold must not be negative"),
    (lambda m, X, y: kw.explain(m.spline_, X.iloc[:, 1:]), "X must have 10 columns, got 7"),
    (lambda m, X, y: kw.explain(m.spline_).drift, "this Spline has none"),
    (lambda m, X, y: kw.explain(m.spline_).sparsity, "a Spline has none"),
    (lambda m, X, y: kw.explain(m.spline_).prune(0.1), "prune takes a network"),
    (lambda m, X, y: kw.explain(kw.MarsRegressor()), "this MarsRegressor is not fitted; fit it first"),
    (lambda m, X, y: kw.explain("model"), "got str"),
    (lambda m, X, y: kw.explain(m, random_start=True), "with the X and y"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "sentence"), SENTENCES)
def test_what_cannot_be_had_says_why(abalone, ask, sentence):
    with pytest.raises(DataError, match=sentence) as raised:
        ask(*abalone)
    assert "\n" not in str(raised.value)


def test_a_column_that_never_moves(tmp_path):
    X = pd.DataFrame({"still": np.ones(40), "moves": np.arange(40.0), "same": ["a"] * 40})
    y = pd.DataFrame({"name": np.abs(X["moves"] - 15)})
    for curves in ("partial", "accumulated"):
        model = kw.SplineNetRegressor(n_members=1, hidden=(8,), epochs=1, random_state=0).fit(X, y)
        explanation = kw.explain(model, X, y, curves=curves)
        assert (explanation.effects["still"].network == 0).all()
        assert (explanation.effects["same"].network == 0).all()
        assert explanation.importances.index[0] == "moves"
        explanation.to_html(tmp_path / "page.html")


def test_a_random_start_is_trained_on_request():
    X, y = kw.datasets.load_wine_quality("red")
    model = kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=2, random_state=0).fit(X, y)
    explanation = kw.explain(model, X, y, random_start=True)
    lines = ["spline", "trained network", "random start", "mean of quality"]
    assert list(explanation.quality.index) == ["out-of-fold prediction", *lines]
    again = kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=2, random_state=0, start="random").fit(X, y)
    error = np.sqrt(np.mean((again.predict(X) - y) ** 2))
    assert explanation.quality.loc["random start", "RMSE"] == pytest.approx(error)
    assert set(explanation.quality.loc[lines, "rows"]) == {"training rows"}
    assert explanation.quality["rows"].iloc[0] == "validation rows"
    half = kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=1, random_state=0).fit(X[:800], y[:800])
    with pytest.raises(DataError, match="must then be training rows"):
        kw.explain(half, X[800:], y[800:] + 0.5, random_start=True)
    # Each model is judged by its own rows: the other one has seen these.
    rows = kw.explain(half, X[800:], y[800:] + 0.5, random_start=again.fit(X[800:], y[800:] + 0.5)).quality["rows"]
    assert rows[["spline", "random start"]].tolist() == ["test rows", "training rows"]


def test_an_effect_is_shown_in_one_line():
    spline = kw.Spline((kw.Hinge(0, 10.0, 1), kw.Hinge(0, 20.0, -1)), [0.0], [[1.0], [-1.0]], ("used", "idle"))
    rows = np.column_stack([np.linspace(0.0, 30.0, 40), np.linspace(0.0, 1.0, 40)])
    effects = kw.explain(spline, rows).effects
    assert repr(effects["used"]) == "Effect('used', 2 knots, 40 from lowest to highest)"
    assert repr(effects["idle"]) == "Effect('idle', not used)"
