"""as_pwl: the piecewise-linear function of anything that is one."""

from __future__ import annotations

from typing import Any

from knotwork.errors import DataError
from knotwork.pwl.lattice import LatticePWL
from knotwork.pwl.maxsum import MaxSum
from knotwork.spline.model import Spline


def as_pwl(model: Any) -> Spline | LatticePWL | MaxSum:
    """Return the continuous piecewise-linear function that a model computes, as a record of knotwork.

    Parameters
    ----------
    model : one of

        - Spline, LatticePWL, MaxSum: returned as they are
        - a fitted estimator of knotwork
        - a fitted scikit-learn regressor: a linear model, ``IsotonicRegression``, or a pipeline of scalers,
          ``SplineTransformer(degree=1)`` and a linear model. Becomes a Spline
        - a table (xp, fp) as ``numpy.interp`` takes it. Becomes a Spline of one feature
        - ``scipy.interpolate.LinearNDInterpolator`` with few simplices. Becomes a LatticePWL, equal to it inside the
          convex hull of its points
        - the pieces of ``from_network`` or a list of ``Piece``. Becomes a LatticePWL

    Notes
    -----
    Whatever is not continuous and piecewise linear is refused, with the nearest thing that works.

    Examples
    --------
    >>> print(as_pwl(([0.0, 1.0, 3.0], [0.0, 2.0, 1.0])))
    0
      + 2·h(x - 0)
      - 2.5·h(x - 1)
      + 0.5·h(x - 3)
    """
    if isinstance(model, (Spline, LatticePWL, MaxSum)):
        return model
    for name in ("spline_", "pwl_"):
        function = getattr(model, name, None)
        if isinstance(function, (Spline, LatticePWL, MaxSum)):
            return function
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
