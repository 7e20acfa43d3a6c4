"""A table as the search sees it: some of its rows, and a second fit to the same columns."""

import numpy as np
import pytest

from knotwork.compute.workers import Workers
from knotwork.spline.fit import FitOptions, fit_spline
from knotwork.spline.host import HostTable
from knotwork.spline.knots import Spans


def table(order="C", dtype=float):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    X[:, 2], X[7, 3] = 5.0, 1e6  # a constant, and a value far beyond the bulk
    y = np.abs(X[:, :1]) + X[:, 1:2] + 0.1 * rng.normal(size=(3000, 1))
    return np.asarray(X, dtype=dtype, order=order), y


@pytest.mark.parametrize("clip", [True, False])
@pytest.mark.parametrize(("order", "dtype"), [("C", np.float64), ("F", np.float64), ("C", np.float32)])
def test_some_rows_are_those_of_the_columns(order, dtype, clip):
    X, y = table(order, dtype)
    rows = np.flatnonzero(np.random.default_rng(1).random(len(X)) < 0.1)
    with Workers(1) as workers:
        whole = HostTable(X, y, None, workers)
        grid = whole.candidates(Spans(5, 9), 31, clip=clip)
        assert (whole.limits.upper[3] < 1e6) == clip
        everything, some = whole.some(grid, None, workers), whole.some(grid, rows, workers)
    np.testing.assert_array_equal(some.columns, everything.columns[:, rows])
    np.testing.assert_array_equal(some.codes, everything.codes[:, rows])


@pytest.mark.parametrize("extrapolate", ["clip", "linear"])
def test_a_table_that_folds_have_had_gives_the_same_fit(extrapolate):
    X, y = table()
    options = FitOptions(extrapolate=extrapolate)
    with Workers(1) as workers:
        opened = HostTable(X, y, None, workers)
        opened.candidates(Spans(5, 9), 31, clip=extrapolate == "clip")
    first, second = fit_spline(X, y, options=options), fit_spline(X, y, options=options, opened=opened)
    assert first.spline == second.spline
    assert first.limits == second.limits
