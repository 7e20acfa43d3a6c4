import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knotwork.data.split import held_out
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
