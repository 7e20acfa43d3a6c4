"""Values of terms on rows."""

from __future__ import annotations

import numpy as np

from knotwork.arrays import CHUNK, Floats
from knotwork.spline.moments.moments import TermTable


def evaluate_term(columns: Floats, terms: TermTable, m: int, out: Floats) -> None:
    """Write a term on all rows (N,): the minimum of its hinges, or their product; 1 without any."""
    first, last = terms.start[m : m + 2].tolist()
    if first == last:
        out[:] = 1.0
    # A chunk of rows at a time stays in the cache while all hinges pass over it.
    for start in range(0, out.size, CHUNK):
        part = slice(start, start + CHUNK)
        for h in range(first, last):
            value = columns[terms.feature[h], part] - terms.knot[h]
            if terms.sign[h] != 0:
                value *= terms.sign[h] * terms.slope[h]
                np.maximum(value, 0.0, out=value)
            if h > first:
                (np.multiply if terms.product else np.minimum)(value, out[part], out=value)
            out[part] = value
