"""Piecewise-linear functions from elsewhere: scikit-learn, scipy, tables and pieces."""

from __future__ import annotations

from typing import Any

from knotwork.errors import DataError
from knotwork.pwl.lattice import LatticePWL
from knotwork.pwl.maxsum import MaxSum
from knotwork.spline.model import Spline


def function_of(model: Any) -> Spline | LatticePWL | MaxSum:
    """Return the function of a source from elsewhere; :func:`knotwork.network.resolve.as_pwl` lists them."""
    home = type(model).__module__.partition(".")[0]
    if home == "sklearn":
        from knotwork.pwl.from_sklearn import spline_of

        return spline_of(model)
    if home == "scipy":
        from knotwork.pwl.interpolation import interpolator_lattice

        return interpolator_lattice(model)
    if home == "knotwork" or (isinstance(model, list) and model):
        from knotwork.pwl.pieces import Piece, Pieces

        if isinstance(model, Pieces):
            return model.to_lattice()
        if isinstance(model, list) and all(isinstance(piece, Piece) for piece in model):
            return Pieces(tuple(model)).to_lattice()
    if isinstance(model, tuple) and len(model) == 2:
        from knotwork.pwl.interpolation import table_spline

        return table_spline(*model)
    raise DataError(
        f"only a Spline or an estimator fitted to one, a LatticePWL, a MaxSum, a linear model, an isotonic regression, "
        f"a SplineTransformer of degree 1, a table (xp, fp), a LinearNDInterpolator or a list of Piece is a piecewise-"
        f"linear function here, got {type(model).__name__}; fit it first if it is an estimator, or fit "
        f"kw.MarsRegressor to what it predicts"
    )
