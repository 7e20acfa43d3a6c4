import numpy as np
import pytest

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
