"""What the search knows of candidate columns: their parts outside the span of the model, as products.

The span is kept as orthonormal columns q_0, q_1, … of which only the products with the candidates exist.
With b a new column and R_l = ⟨q_l, b⟩ (in a table already, b having been a candidate itself),

    ⟨q, c⟩ = (⟨b, c⟩ − Σ_l R_l ⟨q_l, c⟩) / ‖b⊥‖        for every candidate c,

so one pass over the rows for ⟨b, c⟩ updates everything that scores the next step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knotwork.spline.compiled import compiled
from knotwork.spline.model import Floats


@compiled
def _absorb(products, r, length, projection, partner, q, norms, cross, dots):  # type: ignore[no-untyped-def]
    """Write the next row of q, from a column's raw products and its products r with the earlier rows.

    The parts along q are taken out of the candidates' norms, cross terms and products with the residual. Candidates
    are done in strips that stay in the nearest cache while all rows of q pass over them.
    """
    size, candidates = r.size, products.size
    new = q[size]
    for start in range(0, candidates, 1024):
        stop = min(start + 1024, candidates)
        for i in range(start, stop):
            new[i] = products[i] / length
        strip = new[start:stop]
        for m in range(size):
            row, factor = q[m, start:stop], r[m] / length
            for i in range(strip.size):
                strip[i] -= factor * row[i]
    for i in range(candidates):
        norms[i] -= new[i] * new[i]
        cross[i] -= new[i] * new[partner[i]]
        for k in range(projection.size):
            dots[i, k] -= new[i] * projection[k]


@compiled
def _absorb_all(products, factor, projection, partner, q, norms, cross, dots, base):  # type: ignore[no-untyped-def]
    for m in range(len(products)):
        _absorb(products[m], factor[:m, m].copy(), factor[m, m], projection[m], partner, q, norms, cross, dots)
        if m == 0:
            base[:] = norms


class Candidates:
    """Candidates outside the span of a model.

    q : (columns of the span, C) products with them, of which the first ``size`` rows are there
    norms : (C,) ⟨c, c⟩; cross : (C,) ⟨c, partner of c⟩; dots : (C, p) ⟨c, residual⟩; all of the parts outside the span
    base : (C,) the norms beside the intercept alone
    """

    def __init__(self, partner: NDArray[np.int64], norms: Floats, cross: Floats, dots: Floats, most: int) -> None:
        self.partner, self.size = partner, 0
        self.q = np.empty((most, norms.size))
        self.norms, self.cross, self.dots = norms.copy(), cross.copy(), dots.copy()
        self.base = self.norms.copy()

    def absorb(self, products: Floats, r: Floats, length: float, projection: Floats) -> None:
        """Take a new column of the span into account: its raw products, and what it has along the earlier columns."""
        _absorb(products, r, length, projection, self.partner, self.q, self.norms, self.cross, self.dots)
        self.size += 1
        if self.size == 1:
            self.base[:] = self.norms

    def absorb_span(self, products: Floats, factor: Floats, projection: Floats) -> None:
        """Take a whole span into account: raw products of its columns (m, C), their triangular factor (m, m)."""
        _absorb_all(
            products, factor, projection, self.partner, self.q, self.norms, self.cross, self.dots, self.base
        )  # fmt: skip
        self.size = len(products)
