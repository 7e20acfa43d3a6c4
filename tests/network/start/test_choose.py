"""Starts from splines with interactions. The search is replaced: what matters here is what becomes of its result."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from knotwork import Hinge, Linear, Min, Spline, SplineNetRegressor, init_
from knotwork.data.coordinates import Coordinates
from knotwork.data.sample import Sample
from knotwork.errors import KnotworkError, NetworkError
from knotwork.network.activations import activation_rule
from knotwork.network.chain import build, evaluate
from knotwork.network.compile.units import count_units
from knotwork.network.start import choose as starts
from knotwork.network.start.choose import fit_classes_to_width, fit_spline_to_width
from knotwork.network.start.initial import spline_start
from knotwork.network.start.ridge import RIDGES, cancels, ridge_refits
from knotwork.network.start.task import StartOptions, StartTask
from knotwork.network.train.losses import LogLoss, SquaredError
from knotwork.spline.fit import FitOptions

FEATURES = 4


def all_terms(X, degree):
    """Hinges at the quartiles, and the least of those of two and three features, in turn."""
    knots = np.quantile(X, [0.25, 0.6], axis=0).T.tolist()
    hinges = [[Hinge(f, t, s) for t in knots[f] for s in (-1, 1)] for f in range(FEATURES)]
    std = X.std(axis=0).tolist()

    def mins(d):
        for features in itertools.combinations(range(FEATURES), d):
            for chosen in itertools.product(*(hinges[f] for f in features)):
                yield Min(chosen, tuple(std[chosen[0].feature] / std[h.feature] for h in chosen))

    kinds = [list(itertools.chain(*hinges)), *map(mins, range(2, degree + 1))]
    turns = itertools.chain(*itertools.zip_longest(*kinds))
    return [term for term in turns if term is not None]


class Search:
    """Fits as many of these terms as it may by least squares."""

    def __init__(self):
        self.asked = []

    def __call__(self, X, y, *, weights, names, options):
        self.asked.append((options.max_degree, options.max_terms))
        terms = tuple(all_terms(X, options.max_degree)[: options.max_terms - 1])
        blank = Spline(terms, np.zeros(y.shape[1]), np.zeros((len(terms), y.shape[1])), tuple(names))
        columns = np.column_stack([np.ones(len(X)), blank.basis(X)])
        coef, *_ = np.linalg.lstsq(columns, y, rcond=None)
        spline = Spline(terms, coef[0], coef[1:], tuple(names))
        gcv = float(np.square(y - columns @ coef).sum()) / len(X)
        return SimpleNamespace(spline=spline, quality=SimpleNamespace(gcv=gcv))


@pytest.fixture
def search(monkeypatch):
    monkeypatch.setattr(starts, "fit_spline", search := Search())
    return search


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, FEATURES)) * [1.0, 30.0, 0.01, 2.0] + [0.0, 100.0, 1.0, 0.0]
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.minimum(np.maximum(Z[:, 0], 0), np.maximum(0.5 - Z[:, 1], 0)) + np.abs(Z[:, 2])
    return X, np.stack([50 + 3 * y, -Z[:, 3]], axis=1) + 0.05 * rng.normal(size=(400, 2))


def task(X, y, widths=(128,), activation="relu", loss=None, names="abcd"):
    rows, loss = Sample(X, y, np.ones(len(X))), loss or SquaredError()
    coordinates = loss.coordinates(X, y, rows.weight)
    return StartTask(rows, None, False, tuple(names), widths, activation_rule(activation), coordinates, loss)


def fit(X, y, widths, degree, activation="relu", max_terms=40):
    return fit_spline_to_width(task(X, y, widths, activation), FitOptions(max_terms=max_terms, max_degree=degree))


def degree_of(spline):
    return max(len(t.features) for t in spline.terms)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "silu"])
@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("widths", [(128,), (128, 128), (128, 128, 128), (128, 64, 128, 4)])
def test_no_more_degrees_than_layers(search, rows, widths, degree, activation):
    spline = fit(*rows, widths, degree, activation)
    assert degree_of(spline) == min(degree, len(widths)) == search.asked[0][0]
    assert all(need <= width for need, width in zip(count_units(spline, activation), widths, strict=False))


def test_a_spline_that_fits_is_taken_as_it_is(search, rows):
    spline = fit(*rows, (128, 128), 2)
    assert search.asked == [(2, 40)]
    assert len(spline.terms) == 39


@pytest.mark.parametrize("widths", [(128, 10), (128, 5), (12, 128), (8, 8), (20, 16, 12), (20, 20, 7)])
@pytest.mark.parametrize("degree", [2, 3])
def test_layers_that_are_narrow_limit_the_spline(search, rows, widths, degree):
    spline = fit(*rows, widths, degree)
    assert all(need <= width for need, width in zip(count_units(spline), widths, strict=False))
    X, y = rows
    best = np.inf
    asked = search.asked.copy()
    degree = min(degree, len(widths))
    if [d for d, _ in asked].count(degree) > 1:  # cut down, so that a lower degree may be better
        assert degree - 1 in {d for d, _ in asked}
    for d, maximum in asked:  # the best of those tried that can be held
        tried = search(X, y, weights=None, names=list("abcd"), options=FitOptions(max_degree=d, max_terms=maximum))
        if all(need <= width for need, width in zip(count_units(tried.spline), widths, strict=False)):
            best = min(best, tried.quality.gcv)
    assert np.square(y - spline(X)).sum() / len(X) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize(("width", "room"), [(64, True), (14, False)])
@pytest.mark.parametrize("classes", [2, 4])
def test_logits_have_a_line_in_every_feature_that_varies_if_there_is_room(width, room, classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8))
    X[:, 5] = 3.0
    codes = np.digitize(np.abs(X[:, 0]) + 0.1 * X[:, 1], np.linspace(0.3, 1.2, classes - 1))
    start = task(X, codes, (width,), loss=LogLoss(1 if classes == 2 else classes), names="abcdefgh")
    splines = list(fit_classes_to_width(start, FitOptions(max_degree=1), [1.0, 0.1]))
    assert splines[0].terms == splines[1].terms
    assert np.abs(splines[1].coef).sum() > np.abs(splines[0].coef).sum()
    assert count_units(splines[0])[0] <= width
    lines = [term.feature for term in splines[0].terms if isinstance(term, Linear)]
    assert (sorted(lines) == [0, 1, 2, 3, 4, 6, 7]) == room
    assert any(isinstance(term, Hinge) and term.feature == 0 for term in splines[0].terms)


def test_a_layer_that_holds_nothing_is_refused(search, rows):
    with pytest.raises(NetworkError, match=r"hidden layers of \(0, 10\) units cannot hold any term"):
        fit(*rows, (0, 10), 2)


@pytest.mark.parametrize("degree", [2, 3])
def test_a_ridge_changes_coefficients_and_nothing_else(search, rows, degree):
    X, y = rows
    spline = fit(X, y, (128, 128, 128), degree)
    same, tiny, *others, huge = ridge_refits(spline, task(X, y), (0.0, 1e-10, 1e-3, 1e-1, 1e3, 1e9))
    assert same is spline
    assert tiny.terms == spline.terms
    np.testing.assert_allclose(tiny(X), spline(X), atol=1e-5 * y.std())
    errors = [np.square(y - refitted(X)).sum() for refitted in (same, *others)]
    assert errors == sorted(errors)
    np.testing.assert_allclose(huge(X), y.mean(axis=0) + np.zeros_like(y), rtol=1e-5)


@pytest.mark.parametrize("slopes", [(1.0, 0.25), (8.0, 3.0)])
def test_a_ridge_keeps_slopes_whatever_the_first_is(rows, slopes):
    X, y = rows
    spline = Spline((Min((Hinge(0, 0.1, 1), Hinge(1, 90.0, 1)), slopes),), y.mean(axis=0), [[1.0, 2.0]], tuple("abcd"))
    (refitted,) = ridge_refits(spline, task(X, y), (1e-12,))
    columns = np.column_stack([np.ones(len(X)), spline.basis(X)])
    expected, *_ = np.linalg.lstsq(columns, y, rcond=None)
    np.testing.assert_allclose(refitted.coef, expected[1:], rtol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "prelu", "silu", "softplus"])
@pytest.mark.parametrize("fill", ["hinge", "random", "zero"])
@pytest.mark.parametrize("widths", [(128, 128), (128, 80, 40, 4)])
def test_a_start_is_the_spline_in_standardised_coordinates(search, rows, widths, fill, activation):
    X, y = rows
    spline = fit(X, y, widths[:2], 2, activation)
    c = Coordinates.of(X, y)
    chain = spline_start(spline, c, X, widths, activation_rule(activation), fill, np.random.default_rng(0))
    assert chain.widths == widths
    error = np.abs(evaluate(chain, c.features(X)) - c.responses(spline(X)))
    if activation in ("silu", "softplus"):  # near the spline, in stds of the response; no bound is known
        assert 0 < np.sqrt(np.square(error).mean()) < 0.2  # of 40 terms that nearly cancel
        assert chain.conversion.bound == np.inf
    else:
        assert error.max() <= 1e-11
    layers = [m for m in build(chain) if isinstance(m, nn.Linear)]
    if fill != "zero" and activation == "relu":
        assert all(layer.weight.any(dim=1).all() for layer in layers)


@pytest.mark.parametrize("activation", [nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.SiLU])
@pytest.mark.parametrize(("widths", "degree"), [((128, 128), 2), ((128, 128, 64, 8), 3), ((128, 64, 32), 2)])
def test_a_module_becomes_a_spline_with_interactions(search, rows, widths, degree, activation):
    X, y = rows
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    sizes = (FEATURES, *widths, 2)
    modules = []
    for a, b in itertools.pairwise(sizes):
        modules += [nn.Linear(a, b, dtype=torch.float64), activation()]
    net = nn.Sequential(*modules[:-1]).double()
    report = init_(net, X, y, max_degree=degree, max_terms=30, random_state=0)
    assert degree_of(report.spline) == degree
    assert report.units == (*count_units(report.spline, activation()), *(4,) * (len(widths) - degree))
    assert report.max_difference < (0.5 if activation is nn.SiLU else 1e-9)


def test_a_module_without_enough_layers_becomes_an_additive_spline(search, rows):
    X, y = rows
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    report = init_(nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2)), X, y, max_degree=3)
    assert degree_of(report.spline) == 1
    for degree in (0, "auto"):
        with pytest.raises(KnotworkError, match=f"max_degree must be (at least 1|a whole number), got {degree!r}"):
            init_(nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2)), X, y, max_degree=degree)


def test_an_estimator_trains_on_from_interactions(search, rows):
    X, y = rows
    model = SplineNetRegressor(n_members=1, hidden=(64, 64), max_degree=2, max_terms=20, epochs=3, random_state=0).fit(
        X, y
    )
    assert degree_of(model.spline_) == 2
    history = model.history_
    assert history.validation_loss[history.best_epoch] <= history.validation_loss[0]
    start = SplineNetRegressor(n_members=1, hidden=(64, 64), max_degree=2, max_terms=20, epochs=0, random_state=0).fit(
        X, y
    )
    np.testing.assert_allclose(start.predict(X), start.spline_(X), atol=1e-4 * y.std(axis=0).max())


def test_effects_that_bend_steeply_and_often_get_a_smaller_ridge():
    rng = np.random.default_rng(0)
    code = rng.integers(60, size=3000).astype(float)
    X = np.column_stack([code, rng.normal(size=3000)])
    steep = np.repeat(rng.normal(size=15), 4)[code.astype(int)]  # jumps at every fourth code
    smooth = X[:, 1:]
    for effect, expected in ((steep[:, None], True), (smooth, False)):
        y = effect + 0.1 * rng.normal(size=(3000, 1))
        c = Coordinates.of(X, y)
        parts = [Sample(X[part], y[part], np.ones(len(y[part]))) for part in (slice(2000), slice(2000, None))]
        start = replace(task(X, y, (64,)), rows=parts[0], held_out=parts[1], coordinates=c, names=("a", "b"))
        spline = starts.choose_start(start, StartOptions(n_jobs=1))
        first = ridge_refits(spline, start, RIDGES[:1])[0]
        errors = [np.square(parts[1].y[:, 0] - s(parts[1].X)).mean() for s in (spline, first)]
        assert (errors[0] < 0.8 * errors[1]) == expected
        if not expected:
            np.testing.assert_array_equal(spline.coef, first.coef)


def test_effects_that_only_make_sense_together_are_noticed():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    sample = Sample(X, X.sum(axis=1, keepdims=True), np.ones(300))
    terms = tuple(Linear(f) for f in (0, 1))
    assert not cancels(Spline(terms, [0.0], [[1.0], [1.0]], ("a", "b")), sample)
    assert cancels(Spline(terms, [0.0], [[9.0], [-9.0]], ("a", "b")), sample)
    pair = (*terms, Min((Hinge(0, 0.0, 1), Hinge(1, 0.0, 1)), (1.0, 1.0)))
    assert cancels(Spline(pair, [0.0], [[0.5], [0.5], [9.0]], ("a", "b")), sample)
