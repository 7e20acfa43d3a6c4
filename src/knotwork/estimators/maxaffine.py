"""MaxAffineRegressor and DCMaxAffineRegressor: convex, concave and general piecewise-linear regression."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from knotwork.arrays import Floats
from knotwork.estimators.base import MISSING
from knotwork.estimators.piecewise import PiecewiseRegressor, part_of
from knotwork.pwl.lattice import LatticePWL
from knotwork.pwl.maxaffine import FitRules, Rows, fit_difference, fit_max_affine
from knotwork.pwl.maxsum import MaxSum
from knotwork.pwl.selection import best_of, choose_size

# Numbers of pieces that "auto" tries.
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def _sizes(max_pieces: int) -> list[int]:
    return [size for size in SIZES if size <= max_pieces]


class MaxAffineRegressor(PiecewiseRegressor):
    """Convex (or concave) piecewise-linear regression: the maximum of affine functions, by least squares.

    In turn, rows go to the piece with the maximum there, and pieces are fitted to their rows; the best of several
    starts is kept. The number of pieces is chosen on held-out rows.

    Parameters
    ----------
    n_pieces : int or "auto"
        "auto" tries 1, 2, 3, 4, 6, 8, 12, … up to ``max_pieces`` and stops when the held-out error no longer falls.
    max_pieces : int, default 32
    shape : "convex" (a maximum) or "concave" (a minimum)
    n_init : int, default 5
        Starts for every number of pieces, besides the one that grows the smaller fit.
    max_rounds : int, default 50
        Maximum number of rounds of a start.
    ridge : float, default 1e-4
        Pull of every piece towards the affine fit of all rows, in standardised coordinates.
    validation_fraction : float, default 0.2
        Share of the distinct rows held out to choose the number of pieces; the final fit uses all rows.
    random_state : int, RandomState or None
    missing : "indicator" or "error", default "indicator"
        As in MarsRegressor.

    Attributes
    ----------
    pwl_ : LatticePWL of the encoded features; several responses have pieces of their own
    fit_ : PiecewiseFit, sizes tried and their errors
    encoder_ : TableEncoder, from the table to the columns of ``pwl_``

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> model = MaxAffineRegressor(random_state=0).fit(X, np.abs(X[:, 0]) + np.abs(X[:, 1]))
    >>> model.score(X, np.abs(X[:, 0]) + np.abs(X[:, 1])) > 0.999
    True
    >>> len(model.pwl_.theta)
    4
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_pieces": [Interval(Integral, 1, 10_000, closed="both"), StrOptions({"auto"})],
        "max_pieces": [Interval(Integral, 1, None, closed="left")],
        "shape": [StrOptions({"convex", "concave"})],
        "n_init": [Interval(Integral, 1, 10_000, closed="both")],
        "max_rounds": [Interval(Integral, 1, None, closed="left")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
        "missing": MISSING,
    }

    def __init__(
        self,
        n_pieces: int | str = "auto",
        max_pieces: int = 32,
        shape: str = "convex",
        n_init: int = 5,
        max_rounds: int = 50,
        ridge: float = 1e-4,
        validation_fraction: float = 0.2,
        random_state: Any = None,
        missing: str = "indicator",
    ) -> None:
        self.n_pieces = n_pieces
        self.max_pieces = max_pieces
        self.shape = shape
        self.n_init = n_init
        self.max_rounds = max_rounds
        self.ridge = ridge
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.missing = missing

    def _fit_output(
        self, rows: Rows, held: NDArray[np.bool_], rules: FitRules
    ) -> tuple[Floats, list[int], list[float]]:
        if self.shape == "concave":
            rows = Rows(rows.Z, -rows.y, rows.weight, rows.orders)
        if self.n_pieces != "auto":
            return fit_max_affine(rows, int(self.n_pieces), rules)[0], [], []
        training = part_of(rows, ~held) if held.any() else rows
        sizes, errors, fits = choose_size(
            _sizes(self.max_pieces),
            lambda size, before: fit_max_affine(training, size, rules, before)[0],
            lambda theta, Z: (Z @ theta.T).max(axis=1),
            part_of(rows, held) if held.any() else rows,
        )
        best = best_of(errors)
        return fit_max_affine(rows, sizes[best], rules, fits[best])[0], sizes, errors

    def _function(self, fitted: Floats) -> LatticePWL:
        everything = tuple(range(len(fitted)))
        if self.shape == "convex":
            return LatticePWL(fitted, (everything,))
        return LatticePWL(-fitted, tuple((j,) for j in everything))


class DCMaxAffineRegressor(PiecewiseRegressor):
    """General piecewise-linear regression: the difference of two maxima of affine functions, by least squares.

    Every continuous piecewise-linear function is such a difference. In turn, rows go to the piece with the maximum
    there, and all pieces of both maxima are fitted at once; steps that do not lower the error are shortened.

    Parameters
    ----------
    n_pieces : int or "auto"
        Pieces of each of the two maxima; see ``MaxAffineRegressor``.
    max_pieces : int, default 16
    n_init, max_rounds, ridge, validation_fraction, random_state, missing : see ``MaxAffineRegressor``; n_init is 3,
        ridge 1e-3

    Attributes
    ----------
    pwl_ : MaxSum of the encoded features; ``pwl_.to_lattice()`` is its lattice form
    fit_ : PiecewiseFit, sizes tried and their errors
    encoder_ : TableEncoder, from the table to the columns of ``pwl_``

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = np.abs(X[:, 0]) - np.abs(X[:, 1])
    >>> DCMaxAffineRegressor(random_state=0).fit(X, y).score(X, y) > 0.99
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        key: value for key, value in MaxAffineRegressor._parameter_constraints.items() if key != "shape"
    }

    def __init__(
        self,
        n_pieces: int | str = "auto",
        max_pieces: int = 16,
        n_init: int = 3,
        max_rounds: int = 50,
        ridge: float = 1e-3,
        validation_fraction: float = 0.2,
        random_state: Any = None,
        missing: str = "indicator",
    ) -> None:
        self.n_pieces = n_pieces
        self.max_pieces = max_pieces
        self.n_init = n_init
        self.max_rounds = max_rounds
        self.ridge = ridge
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.missing = missing

    def _fit_output(
        self, rows: Rows, held: NDArray[np.bool_], rules: FitRules
    ) -> tuple[tuple[Floats, Floats], list[int], list[float]]:
        if self.n_pieces != "auto":
            return fit_difference(rows, int(self.n_pieces), rules)[0], [], []
        training = part_of(rows, ~held) if held.any() else rows
        sizes, errors, fits = choose_size(
            _sizes(self.max_pieces),
            lambda size, before: fit_difference(training, size, rules, before)[0],
            lambda parts, Z: (Z @ parts[0].T).max(axis=1) - (Z @ parts[1].T).max(axis=1),
            part_of(rows, held) if held.any() else rows,
        )
        best = best_of(errors)
        return fit_difference(rows, sizes[best], rules, fits[best])[0], sizes, errors

    def _function(self, fitted: tuple[Floats, Floats]) -> MaxSum:
        up, down = fitted
        groups = tuple(range(len(up))), tuple(range(len(up), len(up) + len(down)))
        return MaxSum(np.concatenate(fitted), groups, np.array([[1.0], [-1.0]]), np.zeros((1, up.shape[1])))
