"""Values of terms on rows."""

from __future__ import annotations

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled_reduction
from knotwork.spline.moments.moments import TermTable

# Rows that stay in the cache while all hinges of a term pass over them.
TILE = 16_384


@compiled_reduction
def combine(x, knot, factor, first, product, out):  # type: ignore[no-untyped-def]
    """Write a hinge (the feature itself if the factor is 0), or combine it with what the hinges before it made."""
    for i in range(x.size):
        v = (x[i] - knot) * factor if factor != 0.0 else x[i] - knot
        v = v if v > 0.0 or factor == 0.0 else 0.0
        if first:
            out[i] = v
        elif product:
            out[i] *= v
        else:
            out[i] = v if v < out[i] else out[i]


def evaluate_term(columns: Floats, terms: TermTable, m: int, out: Floats) -> None:
    """Write a term on all rows (N,): the minimum of its hinges, or their product; 1 without any."""
    first, last = terms.start[m : m + 2].tolist()
    if first == last:
        out[:] = 1.0
    fields = terms.feature, terms.knot, terms.sign * terms.slope
    hinges = list(zip(*(field[first:last].tolist() for field in fields), strict=True))
    for start in range(0, out.size, TILE):
        values = out[start : start + TILE]
        for h, (f, knot, factor) in enumerate(hinges):
            combine(columns[f, start : start + TILE], knot, factor, h == 0, terms.product, values)
