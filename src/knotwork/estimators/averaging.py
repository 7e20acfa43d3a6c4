"""How much smaller the errors of an average of members are than those of one member, where none of them saw the row.

On a new row the residual of a member is what all members share plus its own deviation. With the mean square V of such
a residual and the correlation c of two members' residuals, the average of M members has errors of mean square
V·(c + (1 − c)/M): the decomposition of Krogh and Vedelsby (1995) into the members' errors and their disagreement.

Every training row was left out by one member alone, so no two members can be compared on rows that neither saw. But
the members that were trained on a row can be, among themselves: a linear smoother shrinks the residual of a row that it
is fitted to by the factor 1 − leverage, whatever the residual is made of. Squares and products shrink alike, and c is
their ratio on rows that were seen as on rows that were not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats


@dataclass(frozen=True)
class Ensemble:
    """Members whose average predicts.

    left_out : (N,) the one member that was not trained on each training row
    predict : from encoded rows (n, d) to the predictions of each member, (M, n)
    """

    left_out: NDArray[np.intp]
    predict: Callable[[Floats], Floats]


def error_of_average(residuals: Floats, left_out: NDArray[np.intp], scale: Floats, weights: Floats) -> float:
    """Return the root mean square of the average's errors on new rows over that of one member's.

    residuals : (M, n) of all members, M at least 2; left_out : (n,) the member that was not trained on the row
    scale : (n,) residuals are compared in these units; weights : (n,)

    Four members whose residuals have nothing in common, and four of which all have the same:

    >>> own, zeros, ones = np.random.default_rng(0).normal(size=(4, 9000)), np.zeros(9000, dtype=int), np.ones(9000)
    >>> round(error_of_average(own, zeros, ones, ones), 1), error_of_average(own[[0, 0, 0, 0]], zeros, ones, ones)
    (0.5, 1.0)
    """
    members, rows = residuals.shape
    scaled = residuals / scale
    own = scaled[left_out, np.arange(rows)]
    if members == 2:  # no pair was trained on a row: one that was, and one that was not
        other = scaled.sum(axis=0) - own
        squares = float(np.sqrt((weights @ own**2) * (weights @ other**2)))
        products = float(weights @ (own * other))
    else:
        seen = members - 1
        total = (scaled**2).sum(axis=0) - own**2
        squares = float(weights @ total) / seen
        products = float(weights @ ((scaled.sum(axis=0) - own) ** 2 - total)) / (seen * (seen - 1))
    common = min(max(products / squares, 0.0), 1.0) if squares > 0 else 1.0
    return float(np.sqrt(common + (1 - common) / members))
