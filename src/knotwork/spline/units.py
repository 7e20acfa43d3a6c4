"""From the standardised coordinates of a search to the data's units of measurement, and the splines of every size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.limits import Limits
from knotwork.errors import DataError
from knotwork.spline.model import Hinge, Linear, Min, Product, Spline, Term
from knotwork.spline.moments.moments import Hinges
from knotwork.spline.scaling import Scaling
from knotwork.spline.triangular import least_squares

# Knots of standardised hinges, (feature, knot), in the data's units.
KnotValues = dict[tuple[int, float], float]


def data_term(hinges: Hinges, values: KnotValues, slopes: Floats, product: bool) -> Term:
    """Write a term of the search in the data's units; ``slopes`` (d,) are those of hinges in a minimum."""
    if hinges[0][2] == 0:
        return Linear(hinges[0][0])
    found = tuple(Hinge(f, values[f, knot], sign) for f, knot, sign in hinges)
    if len(found) == 1:
        return found[0]
    if product:
        return Product(found)
    return Min(found, tuple(float(slopes[h.feature] / slopes[found[0].feature]) for h in found))


@dataclass(frozen=True)
class Units:
    """How to write a sum of standardised terms in the data's units.

    factor : (M,) of each term's coefficient: a hinge of z is a hinge of x times the scale
    shift : (M,) what a coefficient of one, of a linear term, adds to the intercept
    y_scale, y_centre : (p,) of the responses: z = y·scale − centre
    """

    factor: Floats
    shift: Floats
    y_scale: Floats
    y_centre: Floats

    @classmethod
    def of(cls, terms: Sequence[Term], x: Scaling, y: Scaling, slopes: Floats) -> Units:
        """Return the units of terms; a minimum is the one of the search divided by its first slope, (d,)."""
        first = np.array([term.features[0] for term in terms], np.intp)
        factor, shift = x.scale[first], np.zeros(len(terms))
        for m, term in enumerate(terms):
            match term:
                case Linear():
                    shift[m] = -x.centre[term.feature]
                case Min():
                    factor[m] = slopes[term.hinges[0].feature]
                case Product():  # in extended precision, whose range is larger
                    factor[m] = prod(x.scale[list(term.features)].astype(np.longdouble))
        return cls(factor, shift, y.scale, y.centre)

    def __getitem__(self, chosen: NDArray[np.intp]) -> Units:
        """Return the units of some of the terms."""
        return Units(self.factor[chosen], self.shift[chosen], self.y_scale, self.y_centre)

    def spline(
        self, terms: Sequence[Term], intercept: Floats, coef: Floats, names: Sequence[str], limits: Limits | None
    ) -> Spline:
        """Undo the scaling of coefficients: intercept (p,), coef (M, p)."""
        with np.errstate(over="ignore"):
            in_data = coef * self.factor[:, None] / self.y_scale
        if not np.isfinite(in_data).all():
            worst = terms[int(np.argwhere(~np.isfinite(in_data))[0, 0])]
            raise DataError(
                f"coefficients must be floats, that of {worst.describe(names)} is infinite: its values are too small "
                f"compared with those of y; multiply its columns by 1e100, say"
            )
        constant = (intercept + self.y_centre + self.shift @ coef) / self.y_scale
        return Spline(tuple(terms), constant, in_data, tuple(names), limits)


@dataclass(frozen=True)
class SearchPath:
    """What the splines of every size are computed from.

    factor, projection : (1 + M, 1 + M), (1 + M, p) of the forward terms, as in :class:`ForwardPass`
    units : of the forward terms
    """

    factor: Floats
    projection: Floats
    units: Units

    def coefficients(self, chosen: NDArray[np.intp]) -> Floats:
        """Least squares on some columns of the factor, of which 0 is the intercept: (k, p), standardised."""
        return least_squares(self.factor[:, chosen], self.projection)
