"""HingingHyperplanesRegressor: oblique hinges, found greedily."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from knotwork.estimators.base import MISSING
from knotwork.estimators.piecewise import PiecewiseRegressor, part_of
from knotwork.pwl.hinging import fit_hinges
from knotwork.pwl.maxaffine import FitRules, Rows
from knotwork.pwl.maxsum import MaxSum
from knotwork.pwl.selection import best_of


class HingingHyperplanesRegressor(PiecewiseRegressor):
    """An affine function plus oblique hinges c·max(0, w·x − t), added one at a time.

    Where ``MarsRegressor`` bends along single features, these bend along any direction. The network has one hidden
    layer.

    Parameters
    ----------
    n_hinges : int or "auto"
        "auto" adds up to ``max_hinges`` and keeps the number with the minimum error on held-out rows.
    max_hinges : int, default 20
    n_init : int, default 3
        Starts for every hinge.
    max_rounds, ridge, validation_fraction, random_state, missing : see ``MaxAffineRegressor``

    Attributes
    ----------
    pwl_ : MaxSum of the encoded features
    fit_ : PiecewiseFit, numbers of hinges tried and their errors
    encoder_ : TableEncoder, from the table to the columns of ``pwl_``

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(400, 2))
    >>> y = np.maximum(X[:, 0] + X[:, 1], 0)
    >>> model = HingingHyperplanesRegressor(random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.999
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_hinges": [Interval(Integral, 0, 10_000, closed="both"), StrOptions({"auto"})],
        "max_hinges": [Interval(Integral, 0, 10_000, closed="both")],
        "n_init": [Interval(Integral, 1, 10_000, closed="both")],
        "max_rounds": [Interval(Integral, 1, None, closed="left")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
        "missing": MISSING,
    }

    def __init__(
        self,
        n_hinges: int | str = "auto",
        max_hinges: int = 20,
        n_init: int = 3,
        max_rounds: int = 50,
        ridge: float = 1e-4,
        validation_fraction: float = 0.2,
        random_state: Any = None,
        missing: str = "indicator",
    ) -> None:
        self.n_hinges = n_hinges
        self.max_hinges = max_hinges
        self.n_init = n_init
        self.max_rounds = max_rounds
        self.ridge = ridge
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.missing = missing

    def _fit_output(
        self, rows: Rows, held: NDArray[np.bool_], rules: FitRules
    ) -> tuple[MaxSum, list[int], list[float]]:
        if self.n_hinges != "auto":
            return fit_hinges(rows, int(self.n_hinges), rules)[-1], [], []
        training, judge = (part_of(rows, ~held), part_of(rows, held)) if held.any() else (rows, rows)
        fits = fit_hinges(training, int(self.max_hinges), rules)
        errors = [float(np.average(np.square(judge.y - f(judge.Z[:, 1:])), weights=judge.weight)) for f in fits]
        return fit_hinges(rows, best_of(errors), rules)[-1], list(range(len(fits))), errors

    def _function(self, fitted: MaxSum) -> MaxSum:
        return fitted
