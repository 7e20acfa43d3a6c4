"""Knots that pay: apart unless a closer one explains much, and at neighbouring values only if held-out rows say so."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import knotwork as kw
from knotwork.compute.workers import Workers
from knotwork.spline import fit as fit_module
from knotwork.spline.fit import FitOptions, fit_spline
from knotwork.spline.host import HostTable
from knotwork.spline.knots import Spans
from knotwork.spline.model import knots_by_feature
from knotwork.spline.rules import APART, OWN
from knotwork.spline.spacing import Spacing


def _knots(X, y, **options):
    spline = fit_spline(X, y.reshape(len(y), -1), options=FitOptions(**options)).spline
    return {f: sorted(set(knots)) for f, knots in knots_by_feature(spline.terms).items()}


def _zigzag(noise, n=600, seed=0):
    """Whole numbers from 0 to 4, and a response with a peak at 2: it takes knots at 1, 2 and 3."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 5, n).astype(float)
    other = rng.normal(size=n)  # so that rows differ, and a part of them can be held out
    return np.column_stack([x, other]), np.array([0.0, 0, 5, 0, 0])[x.astype(int)] + noise * rng.normal(size=n)


def test_neighbouring_values_stay_where_they_pay():
    X, y = _zigzag(noise=0.3)
    assert _knots(X, y)[0] == [1.0, 2.0, 3.0]
    assert _knots(X, y, spacing="paying")[0] == [1.0, 2.0, 3.0]
    apart = _knots(X, y, spacing="apart")[0]
    assert all(b - a >= 2 for a, b in itertools.pairwise(apart))


def test_held_out_rows_decide(monkeypatch):
    """Neighbours that only the training rows like go: here those say that nothing pays."""
    X, y = _zigzag(noise=0.3)
    monkeypatch.setattr(fit_module, "held_out", lambda X, share, seed: y > 4)  # no peak is left to train on
    found = _knots(X, y)[0]
    assert all(b - a >= 2 for a, b in itertools.pairwise(found))


def test_noise_gets_no_second_knot_beside_the_first():
    """A bend at 30 in whole years: without this rule some samples have knots at consecutive years."""
    close = {"auto": 0, "free": 0}
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x = rng.integers(20, 40, 400).astype(float)[:, None]
        y = 0.3 * np.abs(x[:, 0] - 30) + rng.normal(size=400)
        for rule in close:
            close[rule] += any(b - a < 2 for a, b in itertools.pairwise(_knots(x, y, spacing=rule).get(0, [])))
    assert close["free"] >= 2
    assert close["auto"] == 0


def test_close_candidates_are_those_within_a_twelfth_of_rows_and_range():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(1000, 1)), rng.normal(size=(1000, 1))
    with Workers(1) as workers:
        table = HostTable(X, y, None, workers)
        grid = table.candidates(Spans(5, 5), None, clip=False)
        opening = table.sums(grid, 10, "passes").opening()
    spacing = Spacing(grid, opening, OWN)
    middle = grid.knots.size // 2
    spacing.take(0)  # the feature itself bends nowhere
    assert not spacing.close.any()
    spacing.take(middle)
    values = np.sort(X[:, 0])
    raw = grid.knots / table.x_scaling.scale[0] + table.x_scaling.centre[0] / table.x_scaling.scale[0]
    rank = np.searchsorted(values, raw, side="right") / 1000
    share = (raw - raw[1]) / (raw[-1] - raw[1])
    place = (rank + share) / 2
    clear = np.abs(np.abs(place - place[middle]) - OWN.distance) > 2e-3
    expected = np.abs(place - place[middle]) < OWN.distance
    expected[0] = False
    np.testing.assert_array_equal(spacing.close[clear], expected[clear])
    assert not spacing.never.any()
    assert spacing.pays(middle + 1, drop=1e9, rss=1.0, terms=3)
    assert not spacing.pays(middle + 1, drop=1e-9, rss=1.0, terms=3)


def test_neighbours_are_values_with_none_between():
    X = np.repeat([0.0, 1, 2, 3, 7, 8], 30)[:, None]
    with Workers(1) as workers:
        table = HostTable(X, X**2, None, workers)
        grid = table.candidates(Spans(1, 1), None, clip=False)
        opening = table.sums(grid, 10, "passes").opening()
    spacing = Spacing(grid, opening, APART)
    spacing.take(grid.knots.size - 1)
    assert np.flatnonzero(spacing.never).tolist() == [grid.knots.size - 2]


@pytest.mark.parametrize("shift", [1.0, 1e-6, 1e6])
def test_units_order_threads_and_weights_decide_nothing(shift):
    X, y = kw.datasets.load_wine_quality("red")
    X, y = X.to_numpy(float)[:, :6], y.to_numpy(float)
    rng = np.random.default_rng(0)
    base = kw.MarsRegressor(n_jobs=1).fit(X, y)
    scaled = kw.MarsRegressor(n_jobs=2).fit(X * 2.0 ** np.round(np.log2(shift)), y)
    factor = 2.0 ** np.round(np.log2(shift))
    assert [k.value for k in scaled.knots_] == [k.value * factor for k in base.knots_]
    order = rng.permutation(len(y))
    moved = kw.MarsRegressor(n_jobs=1).fit(X[order], y[order])
    assert sorted(k.value for k in moved.knots_) == sorted(k.value for k in base.knots_)
    if shift == 1.0:
        weights = rng.integers(1, 3, len(y))
        repeated = kw.MarsRegressor(n_jobs=1).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
        weighted = kw.MarsRegressor(n_jobs=1).fit(X, y, sample_weight=weights)
        assert [k.value for k in repeated.knots_] == [k.value for k in weighted.knots_]


def test_earth_has_no_such_rule():
    X, y = _zigzag(noise=0.3)
    same = fit_spline(X, y[:, None], options=FitOptions(compat="earth", spacing="apart")).spline
    assert same == fit_spline(X, y[:, None], options=FitOptions(compat="earth")).spline
