"""Backward elimination on the triangular factor of the forward terms: no pass over rows, Θ(M³) in all.

With [1, B] = Q·R and z = ⟨Q, y⟩, leaving out the last column of an ordering costs the square of the last entry of
z. Leaving out column m costs β_m²/((RᵀR)⁻¹)_mm. Moving a column to the end of the ordering takes rotations of
neighbouring rows; the same rotations keep the inverse of R up to date, so nothing is ever solved again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled
from knotwork.spline.forward import ForwardPass
from knotwork.spline.rules import gcv
from knotwork.spline.triangular import inverse_of


@dataclass(frozen=True)
class PruningPath:
    """The best subset found for each size.

    members : (sizes, columns) row k marks the k + 1 columns of the factor in the subset; column 0, the intercept, is
        in all of them
    rss, gcv : (sizes,) of each
    """

    members: NDArray[np.bool_]
    rss: Floats
    gcv: Floats

    @property
    def best(self) -> NDArray[np.intp]:
        """Columns of the subset with the minimum GCV, in rising order."""
        return np.flatnonzero(self.members[np.argmin(self.gcv)])

    def of_size(self, terms: int) -> NDArray[np.intp]:
        """Columns of the subset of so many, the intercept included; of the largest if there are fewer."""
        return np.flatnonzero(self.members[min(terms, len(self.members)) - 1])


@compiled
def _eliminate(table, p, rss, prefixes, order, best_rss, members):  # type: ignore[no-untyped-def]
    """Drop one column after the other; best_rss[k] and members[k] are the best subset of k + 1 columns.

    table : (M, M + p + M) the factor, z, and the inverse of the factor, transposed: rows of all three turn together
    order : the columns as they are arranged now; all arrays are changed
    """
    columns = len(table)
    size, inverse = columns, columns + p
    while True:
        # All prefixes of this ordering are subsets; the shorter ones cost the entries of z that they leave out.
        reached = rss
        for k in range(size - 1, -1, -1):
            if (prefixes or k == size - 1) and reached < best_rss[k]:
                best_rss[k] = reached
                for j in range(columns):
                    members[k, order[j]] = j <= k
            for j in range(columns, inverse):
                reached += table[k, j] * table[k, j]
        if size == 1:
            return
        weakest, min_cost = 1, np.inf
        for m in range(1, size):
            spread, cost = 0.0, 0.0
            for k in range(m, size):
                spread += table[k, inverse + m] * table[k, inverse + m]
            for j in range(columns, inverse):
                beta = 0.0
                for k in range(m, size):
                    beta += table[k, inverse + m] * table[k, j]
                cost += beta * beta
            if cost < min_cost * spread:
                weakest, min_cost = m, cost / spread
        # Move it to the end: neighbours change places, and a rotation makes the factor triangular again.
        for j in range(weakest, size - 1):
            for first in (j, inverse + j):
                for i in range(size):
                    v = table[i, first]
                    table[i, first] = table[i, first + 1]
                    table[i, first + 1] = v
            moved = order[j]
            order[j] = order[j + 1]
            order[j + 1] = moved
            a, b = table[j, j], table[j + 1, j]
            length = math.sqrt(a * a + b * b)
            a /= length
            b /= length
            for k in range(table.shape[1]):
                u, v = table[j, k], table[j + 1, k]
                table[j, k] = a * u + b * v
                table[j + 1, k] = a * v - b * u
            table[j + 1, j] = 0.0
        size -= 1
        for j in range(columns, inverse):
            rss += table[size, j] * table[size, j]


def eliminate(factor: Floats, projection: Floats, rss: float, *, prefixes: bool) -> tuple[NDArray[np.bool_], Floats]:
    """Return the members (M, M) and the RSS (M,) of the best subset of each size.

    factor, projection : (M, M) and (M, p), the triangular factor of the columns and the responses along them
    rss : what all columns leave of the responses
    """
    columns = len(factor)
    best = np.full(columns, np.inf)
    members = np.zeros((columns, columns), dtype=np.bool_)
    table = np.concatenate([factor, projection, inverse_of(factor).T], axis=1)
    _eliminate(table, projection.shape[1], rss, prefixes, np.arange(columns), best, members)
    return members, best


def prune(path: ForwardPass, *, penalty: float, prefixes: bool) -> PruningPath:
    """Find the best subset of each size and the size with the minimum GCV."""
    members, rss = eliminate(path.factor, path.projection, path.rss, prefixes=prefixes)
    scores = [gcv(rss[k], path.opening.total, k + 1, penalty) for k in range(len(rss))]
    return PruningPath(members=members, rss=rss, gcv=np.array(scores))
