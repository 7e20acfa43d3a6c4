"""What the estimators of piecewise-linear functions share: reading tables, coordinates, held-out rows, prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state

from knotwork.arrays import CHUNK, Floats
from knotwork.data.coordinates import Coordinates, value_and_std
from knotwork.data.limits import range_of
from knotwork.data.split import held_out, row_numbers
from knotwork.data.training_rows import TrainingRows
from knotwork.estimators.base import Estimator
from knotwork.estimators.inputs import read_regression, read_table
from knotwork.pwl.lattice import LatticePWL
from knotwork.pwl.maxaffine import FitRules, Rows
from knotwork.pwl.maxsum import MaxSum
from knotwork.pwl.selection import PiecewiseFit
from knotwork.pwl.through import in_coordinates


class PiecewiseRegressor(MultiOutputMixin, RegressorMixin, Estimator):
    """Base of the regressors whose function is a lattice or a sum of maxima, ``pwl_``."""

    max_rounds: int
    n_init: int
    random_state: Any
    ridge: float
    validation_fraction: float

    def _fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        matrix, response, weight, _, encoder = read_regression(self, X, y, sample_weight)
        targets = response.reshape(len(response), -1)
        coordinates = Coordinates.at_data(matrix, targets, weight)
        Z = np.column_stack([np.ones(len(matrix)), coordinates.features(matrix)])
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        # Rows are drawn by the ranks of their values: those are the same in every unit of measurement.
        ranks = np.empty(matrix.shape)
        for k, column in enumerate(matrix.T):
            ranks[:, k] = np.unique(column, return_inverse=True)[1]
        orders = _orders(ranks, seed + 1, self.n_init)
        held = held_out(ranks, self.validation_fraction, seed)
        rules = FitRules(ridge=float(self.ridge), max_rounds=int(self.max_rounds))
        functions: list[Any] = []
        standardised: list[Any] = []
        sizes, errors = [], []
        for target in targets.T[:, :, None]:  # each in coordinates of its own
            y_centre, y_scale = value_and_std(target, weight)
            c = replace(coordinates, y_centre=y_centre, y_scale=y_scale)
            fitted, tried, error = self._fit_output(Rows(Z, c.responses(target)[:, 0], weight, orders), held, rules)
            own = self._function(fitted)
            functions.append(in_coordinates(own, c.inverse))
            standardised.append(own)
            sizes.append(tuple(tried))
            errors.append(tuple(error))
        self.pwl_ = functions[0] if len(functions) == 1 else functions[0].stack(functions)
        self._standardised = standardised[0] if len(functions) == 1 else standardised[0].stack(standardised)
        self.fit_ = PiecewiseFit(coordinates, tuple(sizes), tuple(errors))
        self.encoder_ = encoder.with_means(coordinates.x_centre)
        self.limits_ = range_of(matrix)
        self.training_rows_ = TrainingRows.of(matrix, response, encoder)
        self._flat_output = response.ndim == 1

    def _fit_output(self, rows: Rows, held: NDArray[np.bool_], rules: FitRules) -> tuple[Any, list[int], list[float]]:
        """Fit one output in standardised coordinates: return the function and what was tried."""
        raise NotImplementedError

    def _function(self, fitted: Any) -> LatticePWL | MaxSum:
        """Return what was fitted as a function of the standardised features."""
        raise NotImplementedError

    def predict(self, X: Any) -> Floats:
        """Evaluate the function: (N, d) → (N,) or (N, p), as y was.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.HingingHyperplanesRegressor(n_hinges=2, random_state=0).fit(X, y)
        >>> model.predict(X.head(3)).shape
        (3,)
        """
        matrix = np.asarray(read_table(self, X), dtype=np.float64)
        c = self.fit_.coordinates
        # In standardised coordinates: far from zero, large parts of the affine functions would cancel. Models that were
        # saved by earlier versions have no function in these coordinates.
        function = self._standardised if hasattr(self, "_standardised") else in_coordinates(self.pwl_, c)
        values = np.empty((len(matrix), len(c.y_centre)))
        for start in range(0, len(matrix), CHUNK):
            rows = slice(start, start + CHUNK)
            found = function(c.features(matrix[rows])).reshape(-1, values.shape[1])
            values[rows] = c.original_responses(found)
        return values[:, 0] if self._flat_output else values


def _orders(matrix: Floats, seed: int, starts: int) -> list[NDArray[np.intp]]:
    """Order distinct rows by what they hold, for every start: not by their place or by how often one is repeated."""
    return [np.unique(row_numbers(matrix, seed + k), return_index=True)[1] for k in range(starts)]


def part_of(rows: Rows, chosen: NDArray[np.bool_]) -> Rows:
    """Return some of the rows, with the starts that are among them."""
    place = np.cumsum(chosen) - 1
    orders = [place[order[chosen[order]]] for order in rows.orders]
    return replace(rows, Z=rows.Z[chosen], y=rows.y[chosen], weight=rows.weight[chosen], orders=orders)
