"""What the estimators of piecewise-linear functions share: reading tables, coordinates, held-out rows, prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, _fit_context
from sklearn.utils import check_random_state

from knotwork.arrays import Floats
from knotwork.data.feature_moments import FeatureMoments
from knotwork.data.split import held_out, row_numbers
from knotwork.estimators.inputs import read_regression, read_table, unchanged_on_failure
from knotwork.pwl.lattice import LatticePWL
from knotwork.pwl.maxaffine import FitRules, Rows
from knotwork.pwl.maxsum import MaxSum
from knotwork.pwl.selection import PiecewiseFit


class PiecewiseRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Base of the regressors whose function is a lattice or a sum of maxima, ``pwl_``."""

    max_rounds: int
    n_init: int
    random_state: Any
    ridge: float
    validation_fraction: float

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit: X (N, d) table or array, y (N,) or (N, p), weights (N,) not negative."""
        with unchanged_on_failure(self):
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        matrix, response, weight, encoder = read_regression(self, X, y, sample_weight)
        targets = response.reshape(len(response), -1)
        centre, scale = _moments(matrix, weight)
        middle, spread = _moments(targets, weight)
        Z = np.column_stack([np.ones(len(matrix)), (matrix - centre) / scale])
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        orders = _orders(matrix, seed + 1, self.n_init)
        held = held_out(matrix, self.validation_fraction, seed)
        rules = FitRules(ridge=float(self.ridge), max_rounds=int(self.max_rounds))
        functions, sizes, errors = [], [], []
        for k in range(targets.shape[1]):
            rows = Rows(Z, (targets[:, k] - middle[k]) / spread[k], weight, orders)
            function, tried, error = self._fit_output(rows, held, rules)
            functions.append(self._in_units(function, middle[k], spread[k]))
            sizes.append(tuple(tried))
            errors.append(tuple(error))
        self.pwl_ = self._together(functions, centre, scale)
        self.fit_ = PiecewiseFit(FeatureMoments(centre, scale), tuple(sizes), tuple(errors))
        self.encoder_ = encoder
        self._flat_output = response.ndim == 1

    def _fit_output(self, rows: Rows, held: NDArray[np.bool_], rules: FitRules) -> tuple[Any, list[int], list[float]]:
        """Fit one output in standardised coordinates: return the function and what was tried."""
        raise NotImplementedError

    def _in_units(self, function: Any, middle: float, spread: float) -> Any:
        """Return spread·function + middle."""
        raise NotImplementedError

    def _together(self, functions: list[Any], centre: Floats, scale: Floats) -> LatticePWL | MaxSum:
        """Return the functions side by side, of the features as they came."""
        raise NotImplementedError

    def predict(self, X: Any) -> Floats:
        """Evaluate the function: (N, d) → (N,) or (N, p), as y was."""
        matrix = np.asarray(read_table(self, X), dtype=np.float64)
        values = self.pwl_(matrix).reshape(len(matrix), -1)
        return values[:, 0] if self._flat_output else values


def _orders(matrix: Floats, seed: int, starts: int) -> list[NDArray[np.intp]]:
    """Order distinct rows by what they hold, for every start: not by their place or by how often one is repeated."""
    return [np.unique(row_numbers(matrix, seed + k), return_index=True)[1] for k in range(starts)]


def part_of(rows: Rows, chosen: NDArray[np.bool_]) -> Rows:
    """Return some of the rows, with the starts that are among them."""
    place = np.cumsum(chosen) - 1
    orders = [place[order[chosen[order]]] for order in rows.orders]
    return replace(rows, Z=rows.Z[chosen], y=rows.y[chosen], weight=rows.weight[chosen], orders=orders)


def _moments(values: Floats, weight: Floats) -> tuple[Floats, Floats]:
    # Scaled by the largest value first: squares of 1e200 do not exist.
    largest = np.maximum(np.abs(values).max(axis=0), np.finfo(float).tiny)
    scaled = values / largest
    mean = np.average(scaled, axis=0, weights=weight)
    deviation = np.sqrt(np.average(np.square(scaled - mean), axis=0, weights=weight))
    # What varies less than rounding is constant.
    deviation = np.where(deviation > 1e-13 * np.abs(mean), deviation, 1.0)
    return mean * largest, deviation * largest


def to_raw(theta: Floats, centre: Floats, scale: Floats) -> Floats:
    """Turn affine functions of (x − centre)/scale into functions of x: (n, d + 1) → (n, d + 1)."""
    weight = theta[:, 1:] / scale
    return np.column_stack([theta[:, 0] - weight @ centre, weight])
