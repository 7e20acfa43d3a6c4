import itertools

import numpy as np
import pytest
from scipy.stats import chi2

from knotwork.spline.pair_test import interacting_features


def rows(seed, n=500, d=6):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4, size=d), rng


def test_noise_is_seldom_worth_a_search():
    found = 0
    for seed in range(200):
        X, rng = rows(seed)
        p = 1 / (1 + np.exp(-X[:, 0] / X[:, 0].std()))
        found += interacting_features(X, (rng.random(500) < p) - p, p * (1 - p), np.ones(500)) != ()
    assert found <= 10


@pytest.mark.parametrize(
    "joint",
    [
        lambda a, b: a * b,
        lambda a, b: np.minimum(np.maximum(a, 0), np.maximum(b, 0)),
        lambda a, b: np.abs(a) * np.abs(b),
        lambda a, b: np.sign(a * b),
    ],
)
def test_pairs_are_found_in_any_two_columns(joint):
    X, rng = rows(1)
    left = joint(X[:, 2] / X[:, 2].std(), X[:, 5] / X[:, 5].std())
    residual = 2 * (left - left.mean()) + rng.normal(size=500)
    assert {2, 5} <= set(interacting_features(X, residual, np.ones(500), np.ones(500)))


def test_a_weight_counts_like_so_many_rows():
    X, rng = rows(2, n=200)
    left = 0.3 * X[:, 0] * X[:, 1] / (X[:, 0] * X[:, 1]).std()
    residual, one = left + rng.normal(size=200), np.ones(200)
    weight = rng.integers(1, 4, size=200)
    again = np.repeat(np.arange(200), weight)
    for size in (0.5, 1.0, 2.0):
        weighted = interacting_features(X, size * residual, one, weight.astype(float))
        assert weighted == interacting_features(
            X[again], size * residual[again], np.ones(len(again)), np.ones(len(again))
        )


def test_constants_and_single_features_have_no_pairs():
    X, rng = rows(3)
    noise, one = 100 * rng.normal(size=500), np.ones(500)
    assert not interacting_features(X[:, :1], noise, one, one)
    assert not interacting_features(np.column_stack([X[:, 0], one]), noise, one, one)
    assert not interacting_features(X, np.zeros(500), np.zeros(500), one)


def test_a_balanced_indicator_does_not_make_a_pair_of_a_single_feature():
    X, rng = rows(4)
    indicator = np.arange(500) % 2
    residual = 0.3 * X[:, 0] / X[:, 0].std() + rng.normal(size=500)
    assert not interacting_features(np.column_stack([X[:, 0], indicator]), residual, np.ones(500), np.ones(500))


def design(d, copies):
    """All combinations of d values of ±1, so that products of two columns are orthogonal."""
    return np.tile(np.array(list(itertools.product([-1.0, 1.0], repeat=d))), (copies, 1))


def found(X, **statistics):
    """The features found where products of two columns have the given score statistics and the others none."""
    residual = sum(np.sqrt(t / len(X)) * X[:, int(pair[1])] * X[:, int(pair[2])] for pair, t in statistics.items())
    return interacting_features(X, residual, np.ones(len(X)), np.ones(len(X)))


@pytest.mark.parametrize("d", [3, 5, 8])
def test_a_pair_is_found_if_the_best_of_so_many_is_as_strong_by_chance_once_in_a_hundred(d):
    X = design(d, copies=512 // 2**d + 1)
    pairs = d * (d - 1) // 2
    # The bound on the tail is not sharp, so that somewhat stronger ones than needed are asked for.
    assert found(X, p02=chi2.isf(0.001 / pairs, 1)) == (0, 2)
    assert found(X, p02=chi2.isf(0.011 / pairs, 1)) == ()


def test_pairs_that_are_weak_beside_the_strongest_do_not_count():
    X = design(6, copies=8)
    assert found(X, p01=100.0, p23=60.0) == (0, 1, 2, 3)
    assert found(X, p01=100.0, p23=40.0) == (0, 1)
    assert found(X, p23=40.0) == (2, 3)
    # Nor does a strong one make a weak one of what noise would be.
    assert found(X, p01=18.0, p23=10.0) == (0, 1)


def test_a_modest_interaction_is_found_in_every_draw():
    """It explains a twentieth of what is left: nothing by chance in a thousand rows."""
    for seed in range(20):
        X, rng = rows(seed, n=1000)
        z = X / X.std(axis=0)
        residual = 0.23 * z[:, 1] * z[:, 4] + rng.normal(size=1000)
        assert {1, 4} <= set(interacting_features(X, residual, np.full(1000, residual.var()), np.ones(1000)))
