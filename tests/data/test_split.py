import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knotwork.data.split import folds_of, held_out
from knotwork.errors import NetworkError


@given(st.integers(0, 1000), st.integers(2, 60), st.floats(0.05, 0.95))
def test_copies_stay_together_and_order_does_not_matter(seed, n, share):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 4, size=(n, 2)).astype(float)
    out = held_out(X, share, seed)
    for row in np.unique(X, axis=0):
        same = (row == X).all(axis=1)
        assert len(set(out[same])) == 1
    order = rng.permutation(n)
    assert np.array_equal(held_out(X[order], share, seed), out[order])
    if len(np.unique(X, axis=0)) > 1:
        assert 0 < out.sum() < n


def test_the_share_is_kept_and_the_seed_matters():
    X = np.random.default_rng(0).normal(size=(10_000, 3))
    first, second = held_out(X, 0.15, 1), held_out(X, 0.15, 2)
    assert first.sum() == second.sum() == 1500
    assert 150 < (first & second).sum() < 300


def test_one_distinct_row_is_not_split():
    assert not held_out(np.ones((5, 2)), 0.5, 0).any()


def test_minus_zero_is_zero():
    X = np.array([[0.0], [-0.0], [1.0], [2.0]])
    out = held_out(X, 0.4, 3)
    assert out[0] == out[1]


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_shares_out_of_range_are_refused(share):
    with pytest.raises(NetworkError, match="between 0 and 1"):
        held_out(np.zeros((3, 1)), share, 0)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.integers(0, 12), min_size=1, max_size=40),
    count=st.integers(1, 8),
    classes=st.integers(0, 3),
    seed=st.integers(0, 2**31 - 1),
)
def test_folds_divide_distinct_rows_evenly(values: list[int], count: int, classes: int, seed: int) -> None:
    X = np.array(values, dtype=float)[:, None]
    codes = np.array(values) % classes if classes else None  # copies are of one class
    folds = folds_of(X, count, seed, codes)
    distinct, first = np.unique(X, return_index=True)
    fold_of = dict(zip(X[:, 0], folds, strict=True))
    assert all(fold_of[x] == fold for x, fold in zip(X[:, 0], folds, strict=True))
    rarest = len(distinct) if codes is None else min(np.unique(codes[first], return_counts=True)[1])
    assert set(folds) == set(range(min(count, rarest)))
    for kind in np.unique(codes) if codes is not None else [None]:
        members = folds[first] if kind is None else folds[first][codes[first] == kind]  # type: ignore[index]
        sizes = np.bincount(members, minlength=folds.max() + 1)
        assert sizes.max() - sizes.min() <= 1
    assert np.ptp(np.bincount(folds[first])) <= 1
    order = np.random.default_rng(seed).permutation(len(X))
    again = folds_of(X[order], count, seed, None if codes is None else codes[order])
    np.testing.assert_array_equal(again, folds[order])


def test_a_row_in_two_classes_counts_as_one_of_the_rarer() -> None:
    X = np.array([[0.0], [0.0], [1.0], [2.0], [3.0], [4.0]])
    folds = folds_of(X, 2, 0, np.array([0, 1, 1, 0, 0, 0]))
    assert folds[0] == folds[1] != folds[2]  # both rows of the rare class, in different folds


def test_numbers_of_rows_are_mixed_from_hashes_of_pandas():
    """A compiled loop does what is written here; saved splits, checkpoints and folds depend on it."""
    from pandas.util import hash_array

    from knotwork.data.split import mix, mixed_columns

    X = np.random.default_rng(0).normal(size=(50, 3))
    X[3] = -0.0, np.inf, 5e-324
    expected = np.full(50, (7 * 0x9E3779B97F4A7C15 + 1) % 2**64, dtype=np.uint64)
    for column in X.T:
        expected = mix(expected, hash_array(np.ascontiguousarray(column) + 0.0))
    np.testing.assert_array_equal(mixed_columns(X.T, 7, rows=50), expected)
    before = expected.copy()
    again = mixed_columns([X[:, 0]], 7, before=before)
    np.testing.assert_array_equal(before, expected)
    np.testing.assert_array_equal(again, mix(expected, hash_array(X[:, 0] + 0.0)))
    assert mixed_columns(X.T.astype(np.float32), 7, rows=50).shape == (50,)
