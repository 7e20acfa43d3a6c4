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
from knotwork.compute.compiled import compiled_reduction

# A candidate's products with the columns of the span, its norm, and its products with the residual.
Known = tuple[Floats, float, Floats]
# A later candidate must be better by more than rounding, so that of two equal ones the first is taken. Products have
# equal ones more often than not, and recurrences leave errors of 1e-11 in what they score.
BETTER = 1 + 1e-9
# Candidates to a strip: what new columns leave of it stays in the nearest cache while the span passes over it. Those of
# interactions, and hinges: of these a row of the span then fills a page of memory.
STRIP, WIDE_STRIP = 64, 512


@compiled_reduction
def orthogonalise(q, raw, size, count, first, factor, new):  # type: ignore[no-untyped-def]
    """Turn raw products of columns into products with their parts orthogonal to the span: rows of q from ``first`` on.

    q : (columns of the span, ·); raw : (columns, ·); the first ``size`` of a row count, and ``count`` columns are new
    new : room for two strips: two columns are done at a time, and the span is taken by fours, so that what is read
        serves eight products. The last of an odd number goes with itself.
    """
    last, width = first + count, new.size // 2
    strip = np.uint64(width)
    for start in range(0, size, width):
        at, length = np.uint64(start), size - start if start + width > size else width
        for m in range(first, last, 2):
            n = m + 1 if m + 1 < last else m
            u, v = 1.0 / factor[m, m], 1.0 / factor[n, n]
            for j in range(length):
                i = np.uint64(j)
                new[i] = raw[m - first, at + i] * u
                new[strip + i] = raw[n - first, at + i] * v
            for k in range(0, m - 3, 4):
                ua, ub, uc, ud = factor[k, m] * u, factor[k + 1, m] * u, factor[k + 2, m] * u, factor[k + 3, m] * u
                va, vb, vc, vd = factor[k, n] * v, factor[k + 1, n] * v, factor[k + 2, n] * v, factor[k + 3, n] * v
                for j in range(length):
                    i = np.uint64(j)
                    a, b, c, d = q[k, at + i], q[k + 1, at + i], q[k + 2, at + i], q[k + 3, at + i]
                    new[i] -= ua * a + ub * b + uc * c + ud * d
                    new[strip + i] -= va * a + vb * b + vc * c + vd * d
            for k in range(m - m % 4, m):
                ua, va = factor[k, m] * u, factor[k, n] * v
                for j in range(length):
                    i = np.uint64(j)
                    new[i] -= ua * q[k, at + i]
                    new[strip + i] -= va * q[k, at + i]
            along = factor[m, n] * v
            for j in range(length):
                i = np.uint64(j)
                q[n, at + i] = new[strip + i] - along * new[i]
            for j in range(length):
                i = np.uint64(j)
                q[m, at + i] = new[i]


@compiled_reduction
def _take_out(q, first, last, projection, partner, norms, cross, dots, base):  # type: ignore[no-untyped-def]
    """Take the parts along new columns out of the candidates' norms, cross terms and products with the residual."""
    size = norms.size
    for m in range(first, last):
        for i in range(size):
            norms[i] -= q[m, i] * q[m, i]
        for i in range(size):
            cross[i] -= q[m, i] * q[m, np.uint64(partner[i])]
        for k in range(len(dots)):
            part = projection[m, k]
            for i in range(size):
                dots[k, i] -= q[m, i] * part
        if m == 0:
            for i in range(size):
                base[i] = norms[i]


class Candidates:
    """Candidates outside the span of a model.

    norms : (C,) ⟨c, c⟩; cross : (C,) ⟨c, partner of c⟩; dots : (p, C) ⟨c, residual⟩; all of the parts outside the span
    base : (C,) the norms of the parts orthogonal to the intercept alone
    """

    def __init__(
        self, partner: NDArray[np.int64], norms: Floats, cross: Floats, dots: Floats, max_columns: int
    ) -> None:
        self._partner, self._size = partner, 0
        # Products with the columns of the span, of which ``_size`` are there.
        self._q = np.empty((max_columns, norms.size))
        self.norms, self.cross, self.dots = norms.copy(), cross.copy(), dots.copy()
        self.base, self._new = self.norms.copy(), np.empty(2 * WIDE_STRIP)

    def absorb(self, products: Floats, factor: Floats, projection: Floats) -> None:
        """Take new columns of the span into account: their raw products (k, C), and the factor with their columns."""
        first, last = self._size, self._size + len(products)
        orthogonalise(self._q, products, self.norms.size, len(products), first, factor, self._new)
        _take_out(
            self._q, first, last, projection, self._partner, self.norms, self.cross, self.dots, self.base
        )  # fmt: skip
        self._size = last

    def known(self, position: int) -> Known:
        """Return what is known of a candidate."""
        return self._q[: self._size, position].copy(), float(self.norms[position]), self.dots[:, position].copy()
