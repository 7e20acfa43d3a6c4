"""Errors of an average: the ratio is its oracle's, and that of rows which no member saw; coverage is nominal by it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

from knotwork.estimators.averaging import Ensemble, error_of_average
from knotwork.estimators.intervals import calibrate_intervals
from tests.reference import share_in_common


def linear_members(rows: int, members: int, seed: int, noise: float = 1.0) -> tuple:
    """Linear models, each of random features of its own and without a fold: they overfit, and they differ."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows + 2000, 12))
    y = X @ rng.normal(size=12) + noise * rng.normal(size=len(X))
    fold = np.arange(rows) % members
    maps = [rng.normal(size=(12, 8)) for _ in range(members)]
    fits = [Ridge(1e-6).fit(X[:rows][fold != k] @ maps[k], y[:rows][fold != k]) for k in range(members)]

    def predict(table: np.ndarray) -> np.ndarray:
        return np.stack([fit.predict(table @ own) for fit, own in zip(fits, maps, strict=True)])

    return X[:rows], y[:rows], Ensemble(fold, predict), X[rows:], y[rows:]


@given(st.integers(3, 6), st.integers(5, 30), st.integers(0, 10_000))
def test_the_ratio_is_that_of_the_pairs_written_out(members, rows, seed):
    rng = np.random.default_rng(seed)
    residuals = rng.normal(size=rows) + rng.exponential() * rng.normal(size=(members, rows))
    left_out, weights = rng.integers(0, members, size=rows), rng.integers(1, 4, size=rows).astype(float)
    scale = rng.exponential(size=rows) + 0.1
    common = min(max(share_in_common(residuals / scale, left_out, weights), 0), 1)
    found = error_of_average(residuals, left_out, scale, weights)
    assert found**2 == pytest.approx(common + (1 - common) / members)
    assert members**-0.5 - 1e-12 <= found <= 1
    repeated = np.repeat(np.arange(rows), weights.astype(int))
    again = error_of_average(residuals[:, repeated], left_out[repeated], scale[repeated], np.ones(len(repeated)))
    assert again == pytest.approx(found)


@pytest.mark.parametrize("members", [2, 3, 8])
@pytest.mark.parametrize("rows", [60, 300])
@pytest.mark.parametrize("noise", [0.5, 5.0])
def test_the_ratio_is_that_of_rows_that_no_member_saw(members, rows, noise):
    """In tables that differ by chance, on average; half the errors of a member may be its own, or nearly none."""
    found, true = [], []
    for seed in range(30):
        X, y, ensemble, rest, truth = linear_members(rows, members, seed, noise)
        residuals = y - ensemble.predict(X)
        found.append(error_of_average(residuals, ensemble.left_out, np.ones(rows), np.ones(rows)))
        own = truth - ensemble.predict(rest)
        true.append(np.sqrt(np.mean(own.mean(axis=0) ** 2) / np.mean(own**2)))
    assert np.mean(found) == pytest.approx(np.mean(true), abs=0.03)


def test_members_that_are_always_right_need_no_ratio():
    assert error_of_average(np.zeros((4, 9)), np.arange(9) % 4, np.ones(9), np.ones(9)) == 1
    assert error_of_average(np.zeros((2, 9)), np.arange(9) % 2, np.ones(9), np.ones(9)) == 1


def never() -> np.ndarray:
    raise AssertionError("all rows have out-of-fold predictions")


def test_coverage_around_an_average_is_nominal():
    """Over 60 tables; by scores of single members, as they are, it is more than nominal."""
    nominal = np.array([0.8, 0.9, 0.95])
    names, covered = [f"x{k}" for k in range(12)], {True: [], False: []}
    for seed in range(60):
        X, y, ensemble, rest, truth = linear_members(200, 8, seed)
        each = ensemble.predict(X)
        unseen = each[ensemble.left_out, np.arange(len(X))]
        errors = np.abs(truth - ensemble.predict(rest).mean(axis=0))
        for corrected in (True, False):
            calibration = calibrate_intervals(
                X, y, unseen, never, np.ones(len(X)), names, ensemble=ensemble if corrected else None
            )
            covered[corrected].append([np.mean(errors <= calibration.widths(rest, c)) for c in nominal])
    np.testing.assert_allclose(np.mean(covered[True], axis=0), nominal, atol=0.01)
    assert (np.mean(covered[False], axis=0) > nominal + 0.02).all()
