"""Limits: the range of a column less what lies far beyond its bulk; the same for rows in any order, unit or number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from knotwork.data.limits import MIN_OBSERVATIONS, REACH, SAMPLE, TAIL, Limits, learn_limits, range_of
from knotwork.errors import DataError


def obvious_limits(column, weights=None):
    """The slow and obvious way: a row for every observation."""
    full = np.sort(column if weights is None else np.repeat(column, weights))

    def bulk(values):
        drop = 0 if len(values) < MIN_OBSERVATIONS else max(1, int(TAIL * len(values)))
        return values[drop], values[len(values) - 1 - drop]

    low, high = bulk(full)
    if low == high:
        others = full[full != low]
        if not len(others):
            return low, high
        low, high = min(low, bulk(others)[0]), max(high, bulk(others)[1])
    near = full[(full >= low - REACH * (high - low)) & (full <= high + REACH * (high - low))]
    return near[0], near[-1]


columns = st.lists(st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.5, -4.0, 100.0, -1e6, 1e9]), min_size=1, max_size=80)


@given(columns, st.data())
def test_the_obvious_limits(values, data):
    column = np.array(values)
    weights = np.array(data.draw(st.lists(st.integers(1, 4), min_size=len(column), max_size=len(column))))
    for counts in (None, weights):
        found = learn_limits(column[:, None], None if counts is None else counts.astype(float))
        assert (found.lower[0], found.upper[0]) == obvious_limits(column, counts)


@given(columns, st.randoms(use_true_random=False), st.integers(-20, 20))
def test_order_and_units_do_not_matter(values, random, exponent):
    column = np.array(values)
    shuffled = column.copy()
    random.shuffle(shuffled)
    found = learn_limits(np.ldexp(shuffled, exponent)[:, None])
    expected = learn_limits(column[:, None])
    np.testing.assert_array_equal(found.lower, np.ldexp(expected.lower, exponent))
    np.testing.assert_array_equal(found.upper, np.ldexp(expected.upper, exponent))


@pytest.mark.parametrize("rows", [200, 5000, 3 * SAMPLE])
def test_one_value_far_out_is_no_limit(rows):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=rows), rng.uniform(size=rows), rng.poisson(0.3, rows)]).astype(float)
    usual = learn_limits(X)
    assert usual == range_of(X)
    for f in range(3):
        k = int(X[:, f].argmax())
        moved = X.copy()
        moved[k, f] *= 1000
        assert learn_limits(moved).upper[f] == np.delete(X[:, f], k).max()


def test_what_is_rare_is_kept():
    indicator = np.zeros((1000, 1))
    indicator[0] = 1.0
    assert learn_limits(indicator).upper[0] == 1.0
    assert learn_limits(np.full((50, 1), 7.0)) == Limits([7.0], [7.0])


def test_values_near_the_ends_of_floats():
    X = np.linspace(-1, 1, 101)[:, None] * 1.7e308
    assert learn_limits(X) == range_of(X)


def test_rows_are_held_and_marked():
    limits = Limits([0.0, -np.inf], [1.0, 5.0])
    X = np.array([[0.5, -1e9], [-0.1, 0.0], [0.0, 5.1], [1.0, 5.0]])
    assert limits.outside(X).tolist() == [False, True, True, False]
    assert limits.hold(X).tolist() == [[0.5, -1e9], [0.0, 0.0], [0.0, 5.0], [1.0, 5.0]]


@pytest.mark.parametrize("sides", [([0.0], [1.0, 2.0]), ([1.0], [0.0]), ([np.nan], [1.0]), (0.0, 1.0)])
def test_what_is_no_range_is_refused(sides):
    with pytest.raises(DataError, match="limits must be a minimum and a maximum for every feature"):
        Limits(*sides)


@pytest.mark.parametrize("rows", [[[1.0]], [1.0, 2.0, 3.0], "text", [["a", "b"]], [[1 + 1j, 2]], object()])
@pytest.mark.parametrize("method", ["hold", "outside"])
def test_rows_that_are_none_are_refused_by_a_sentence(method, rows):
    with pytest.raises(DataError, match=r"features of the limits|must hold numbers"):
        getattr(Limits([0.0, 0.0], [1.0, 1.0]), method)(rows)


def test_rows_may_be_lists_and_tensors():
    limits = Limits([0.0, 0.0], [1.0, 1.0])
    assert limits.hold([[2, 0.5]]).tolist() == [[1.0, 0.5]]
    assert limits.hold([2, 0.5]).tolist() == [1.0, 0.5]  # a single row
    assert limits.outside([[2, 0.5], [1, 0]]).tolist() == [True, False]


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_rows_of_numpys_matrix_class():
    assert Limits([0.0, 0.0], [1.0, 1.0]).outside(np.asmatrix([[2.0, 0.5], [1.0, 0.0]])).tolist() == [True, False]
