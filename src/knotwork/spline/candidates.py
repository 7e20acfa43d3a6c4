"""What the search knows of candidate columns: their parts outside the span of the model, as products.

The span is kept as orthonormal columns q_0, q_1, … of which only the products with the candidates exist.
With b a new column and R_l = ⟨q_l, b⟩ (in a table already, b having been a candidate itself),

    ⟨q, c⟩ = (⟨b, c⟩ − Σ_l R_l ⟨q_l, c⟩) / ‖b⊥‖        for every candidate c,

so one pass over the rows for ⟨b, c⟩ updates everything that scores the next step.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.compiled import compiled_reduction

# A candidate's products with the columns of the span, and beside them its norm and its products with the residual.
Known = tuple[Floats, float, Floats]
# A later candidate must be better by more than rounding, so that of two equal ones the first is taken.
BETTER = 1 + 1e-11
# Candidates to a strip: what new columns leave of it stays in the nearest cache while the span passes over it.
STRIP = 64


@compiled_reduction
def orthogonalise(q, raw, first, start, stop, factor, new):  # type: ignore[no-untyped-def]
    """Turn raw products of columns into products with their parts beside the span: rows of q from ``first`` on.

    q : (columns of the span, C); raw : (columns, C); of both the candidates from ``start`` to ``stop`` are meant, at
        most a strip of them
    new : room for two strips: two columns are done at a time, and the span is taken by fours, so that what is read
        serves eight products. The last of an odd number goes with itself.
    """
    size, last = stop - start, first + len(raw)
    for m in range(first, last, 2):
        n = min(m + 1, last - 1)
        u, v = 1.0 / factor[m, m], 1.0 / factor[n, n]
        x, y = raw[m - first, start:stop], raw[n - first, start:stop]
        for i in range(size):
            new[i] = x[i] * u
            new[STRIP + i] = y[i] * v
        for k in range(0, m - 3, 4):
            a, b, c, d = q[k, start:stop], q[k + 1, start:stop], q[k + 2, start:stop], q[k + 3, start:stop]
            ua, ub, uc, ud = factor[k, m] * u, factor[k + 1, m] * u, factor[k + 2, m] * u, factor[k + 3, m] * u
            va, vb, vc, vd = factor[k, n] * v, factor[k + 1, n] * v, factor[k + 2, n] * v, factor[k + 3, n] * v
            for i in range(size):
                new[i] -= ua * a[i] + ub * b[i] + uc * c[i] + ud * d[i]
                new[STRIP + i] -= va * a[i] + vb * b[i] + vc * c[i] + vd * d[i]
        for k in range(m - m % 4, m):
            a, ua, va = q[k, start:stop], factor[k, m] * u, factor[k, n] * v
            for i in range(size):
                new[i] -= ua * a[i]
                new[STRIP + i] -= va * a[i]
        x, y, along = q[m, start:stop], q[n, start:stop], factor[m, n] * v
        for i in range(size):
            y[i] = new[STRIP + i] - along * new[i]
        for i in range(size):
            x[i] = new[i]


@compiled_reduction
def _absorb(q, products, first, factor, projection, partner, norms, cross, dots, base):  # type: ignore[no-untyped-def]
    """Take the columns of the span from number ``first`` on into account, whose raw products (k, C) are given.

    The parts along the new columns are taken out of the candidates' norms, cross terms and products with the residual.
    """
    last, new = first + len(products), np.empty(2 * STRIP)
    for start in range(0, norms.size, STRIP):
        orthogonalise(q, products, first, start, min(start + STRIP, norms.size), factor, new)
    for m in range(first, last):
        own = q[m]
        for i in range(norms.size):
            norms[i] -= own[i] * own[i]
        for k in range(len(dots)):
            along, part = dots[k], projection[m, k]
            for i in range(norms.size):
                along[i] -= own[i] * part
        for i in range(cross.size):
            cross[i] -= own[i] * own[partner[i]]
        if m == 0:
            for i in range(norms.size):
                base[i] = norms[i]


class Candidates:
    """Candidates outside the span of a model.

    norms : (C,) ⟨c, c⟩; cross : (C,) ⟨c, partner of c⟩; dots : (p, C) ⟨c, residual⟩; all of the parts outside the span
    base : (C,) the norms beside the intercept alone
    """

    def __init__(self, partner: NDArray[np.int64], norms: Floats, cross: Floats, dots: Floats, most: int) -> None:
        self._partner, self._size = partner, 0
        self._q = np.empty((most, norms.size))  # products with the columns of the span, of which ``_size`` are there
        self.norms, self.cross, self.dots = norms.copy(), cross.copy(), dots.copy()
        self.base = self.norms.copy()

    def absorb(self, products: Floats, factor: Floats, projection: Floats) -> None:
        """Take new columns of the span into account: their raw products (k, C), and the factor with their columns."""
        _absorb(
            self._q, products, self._size, factor, projection, self._partner, self.norms, self.cross, self.dots,
            self.base,
        )  # fmt: skip
        self._size += len(products)

    def known(self, position: int) -> Known:
        """Return what is known of a candidate."""
        return self._q[: self._size, position].copy(), float(self.norms[position]), self.dots[:, position].copy()
