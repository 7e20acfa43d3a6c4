"""Values of terms on rows."""

from __future__ import annotations

import numpy as np

from knotwork.arrays import Floats
from knotwork.spline.moments.moments import TermTable

# Rows that stay in the cache while all hinges of a term pass over them.
TILE = 16_384


def evaluate_term(columns: Floats, terms: TermTable, m: int, out: Floats) -> None:
    """Write a term on all rows (N,): the minimum of its hinges, or their product; 1 without any."""
    first, last = terms.start[m : m + 2].tolist()
    if first == last:
        out[:] = 1.0
    fields = terms.feature, terms.knot, terms.sign * terms.slope
    hinges = list(zip(*(field[first:last].tolist() for field in fields), strict=True))
    combine = np.multiply if terms.product else np.minimum
    for start in range(0, out.size, TILE):
        rows, values = slice(start, start + TILE), out[start : start + TILE]
        for h, (f, knot, factor) in enumerate(hinges):
            own = np.subtract(columns[f, rows], knot, out=values if h == 0 else None)
            if factor != 0:
                if factor != 1:
                    own *= factor
                np.maximum(own, 0.0, out=own)
            if h > 0:
                combine(values, own, out=values)
