"""What the search knows of candidate columns: their parts outside the span of the model, as products.

The span is kept as orthonormal columns q_0, q_1, … of which only the products with the candidates exist.
With b a new column and R_l = ⟨q_l, b⟩ (in a table already, b having been a candidate itself),

    ⟨q, c⟩ = (⟨b, c⟩ − Σ_l R_l ⟨q_l, c⟩) / ‖b⊥‖        for every candidate c,

so one pass over the rows for ⟨b, c⟩ updates everything that scores the next step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knotwork.spline.compiled import compiled_reduction
from knotwork.spline.model import Floats

# A candidate's products with the columns of the span, and beside them its norm and its products with the residual.
Known = tuple[Floats, float, Floats]
# A later candidate must be better by more than rounding, so that of two equal ones the first is taken.
BETTER = 1 + 1e-11
# Candidates whose products with the whole span stay in the nearest cache while new columns pass over them.
STRIP = 64


@compiled_reduction
def orthogonalise(q, first, last, factor):  # type: ignore[no-untyped-def]
    """Turn rows ``first`` to ``last`` of q, raw products of columns, into products with their parts beside the span.

    Earlier rows are taken four at a time: the new row is read and written once for the four of them.
    """
    for start in range(0, q.shape[1], STRIP):
        stop = min(start + STRIP, q.shape[1])
        for m in range(first, last):
            new, length = q[m, start:stop], factor[m, m]
            for i in range(new.size):
                new[i] /= length
            for k in range(0, m - 3, 4):
                a, b = q[k, start:stop], q[k + 1, start:stop]
                c, d = q[k + 2, start:stop], q[k + 3, start:stop]
                ra, rb = factor[k, m] / length, factor[k + 1, m] / length
                rc, rd = factor[k + 2, m] / length, factor[k + 3, m] / length
                for i in range(new.size):
                    new[i] -= ra * a[i] + rb * b[i] + rc * c[i] + rd * d[i]
            for k in range(m - m % 4, m):
                a, ra = q[k, start:stop], factor[k, m] / length
                for i in range(new.size):
                    new[i] -= ra * a[i]


@compiled_reduction
def absorb_rows(q, first, last, factor, projection, partner, norms, cross, dots, base):  # type: ignore[no-untyped-def]
    """Take the columns ``first`` to ``last`` of the span into account, whose raw products are in those rows of q.

    q : (columns of the span, C); factor : (columns, columns) triangular; projection : (columns, p)
    The parts along the new columns are taken out of the candidates' norms, cross terms and products with the residual.
    """
    orthogonalise(q, first, last, factor)
    for m in range(first, last):
        new = q[m]
        for i in range(norms.size):
            norms[i] -= new[i] * new[i]
        for k in range(len(dots)):
            along, part = dots[k], projection[m, k]
            for i in range(norms.size):
                along[i] -= new[i] * part
        for i in range(cross.size):
            cross[i] -= new[i] * new[partner[i]]
        if m == 0:
            for i in range(norms.size):
                base[i] = norms[i]


class Candidates:
    """Candidates outside the span of a model.

    q : (columns of the span, C) products with them, of which the first ``size`` rows are there
    norms : (C,) ⟨c, c⟩; cross : (C,) ⟨c, partner of c⟩; dots : (p, C) ⟨c, residual⟩; all of the parts outside the span
    base : (C,) the norms beside the intercept alone
    """

    def __init__(self, partner: NDArray[np.int64], norms: Floats, cross: Floats, dots: Floats, most: int) -> None:
        self.partner, self.size = partner, 0
        self.q = np.empty((most, norms.size))
        self.norms, self.cross, self.dots = norms.copy(), cross.copy(), dots.copy()
        self.base = self.norms.copy()

    def absorb(self, products: Floats, factor: Floats, projection: Floats) -> None:
        """Take new columns of the span into account: their raw products (k, C), and the factor with their columns."""
        first, last = self.size, self.size + len(products)
        self.q[first:last] = products
        absorb_rows(
            self.q, first, last, factor, projection, self.partner, self.norms, self.cross, self.dots, self.base
        )  # fmt: skip
        self.size = last

    def known(self, position: int) -> Known:
        """Return what is known of a candidate."""
        return self.q[: self.size, position].copy(), float(self.norms[position]), self.dots[:, position].copy()
