"""Coordinates: long tails by median and interquartile range; parts of a table measured like the whole."""

import numpy as np
import pytest

from knotwork.data.coordinates import Coordinates, Measured, mean_and_std, robust


def test_only_columns_with_long_tails_are_scaled_otherwise() -> None:
    rng = np.random.default_rng(0)
    normal, tailed, two = rng.normal(size=500), np.exp(2 * rng.normal(size=500)), (rng.random(500) < 0.3) * 7.0
    mostly = np.where(rng.random(500) < 0.9, 0.0, rng.normal(size=500))  # no interquartile range
    X = np.column_stack([normal, tailed, two, mostly])
    c = Coordinates.of(X, X[:, :1])
    found = robust(c, X)
    np.testing.assert_array_equal(found.x_scale[[0, 2, 3]], c.x_scale[[0, 2, 3]])
    np.testing.assert_array_equal(found.x_centre[[0, 2, 3]], c.x_centre[[0, 2, 3]])
    assert found.x_centre[1] == np.quantile(tailed, 0.5, method="inverted_cdf")
    low, high = np.quantile(tailed, [0.25, 0.75], method="inverted_cdf")
    assert found.x_scale[1] == max((high - low) / 1.349, 0.2 * c.x_scale[1]) < 0.9 * c.x_scale[1]
    np.testing.assert_array_equal(found.y_scale, c.y_scale)


def test_a_weight_is_a_repetition() -> None:
    rng = np.random.default_rng(1)
    X = np.exp(2 * rng.normal(size=(60, 2)))
    times = rng.integers(1, 4, size=60)
    c = Coordinates.of(X, X, times.astype(float))
    one, other = robust(c, X, times.astype(float)), robust(c, np.repeat(X, times, axis=0))
    np.testing.assert_array_equal(one.x_scale, other.x_scale)
    np.testing.assert_array_equal(one.x_centre, other.x_centre)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("centre", "scale"), [(0.0, 1.0), (1e12, 1.0), (-3e5, 1e-4), (0.0, 1e200), (0.0, 1e-200)])
def test_parts_of_a_table_are_measured_like_the_whole(centre: float, scale: float, weighted: bool) -> None:
    data = np.random.default_rng(0)
    values = centre + scale * np.column_stack([data.normal(size=90), np.arange(90) // 45, np.ones(90)])
    weight = data.uniform(0.1, 3, size=90) if weighted else None
    cuts = [slice(0, 1), slice(1, 45), slice(45, 90)]  # the second column is constant in each, the third in all
    parts = [Measured.of(values[cut], None if weight is None else weight[cut]) for cut in cuts]
    mean, std = Measured.pooled(parts).mean_and_std()
    expected_mean, expected_std = mean_and_std(values, weight)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-14, atol=1e-14 * scale)
    np.testing.assert_allclose(std, expected_std, rtol=1e-9 if centre == 0 else 1e-4)
    assert std[2] == 1.0
