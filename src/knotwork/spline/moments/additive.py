"""Residuals of additive terms: between two knots of a feature its terms add up to one line.

Terms of d features cost d look-ups a row, however many they are, and the residual's histogram over the bins of each
feature yields its products with all of its terms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import TermTable
from knotwork.spline.moments.pairs import add_pair

# Rows whose residuals stay in the nearest cache while all features pass over them.
TILE = 2048
# Terms to a feature from which on look-ups are cheaper than terms one by one.
MIN_TERMS = 3


@dataclass(frozen=True)
class AdditiveTerms:
    """Terms of one hinge each, at knots of a grid.

    position : (M,) of the term's knot in the grid, of the feature itself for a linear term
    features : (F,) those that have terms
    """

    terms: TermTable
    grid: CandidateGrid
    position: NDArray[np.int64]
    features: NDArray[np.int64]

    @classmethod
    def of(cls, terms: TermTable, grid: CandidateGrid, min_terms: int = MIN_TERMS) -> AdditiveTerms | None:
        """Return terms with their positions; None if some are none of the grid's, or too few to a feature."""
        features = np.unique(terms.feature)
        if len(terms) != terms.feature.size or (terms.slope != 1.0).any() or len(terms) < min_terms * features.size:
            return None
        position = grid.offsets[terms.feature]
        for f in features.tolist():
            first, last = grid.offsets[f : f + 2].tolist()
            own = (terms.feature == f) & (terms.sign != 0)
            position[own] = first + 1 + np.searchsorted(grid.knots[first + 1 : last], terms.knot[own])
            if (position[own] == last).any():
                return None
        return None if (grid.knots[position] != terms.knot).any() else cls(terms, grid, position, features)

    def lines(self, intercept: Floats, coef: Floats) -> Floats:
        """Intercept and slope of each bin of a feature, in a sum of terms: (p, C, 2); the constant is the first's."""
        changes = np.zeros((*self.grid.knots.shape, coef.shape[1], 2))
        parts = np.stack([-self.terms.knot[:, None] * coef, coef], axis=-1)
        np.add.at(changes, self.position, parts)
        falling = self.terms.sign < 0  # (t − x)₊ = (x − t)₊ + t − x
        np.add.at(changes, self.grid.offsets[self.terms.feature[falling]], -parts[falling])
        changes[self.grid.offsets[self.features[0]], :, 0] += intercept
        for f in self.features.tolist():
            own = slice(*self.grid.offsets[f : f + 2])
            np.cumsum(changes[own], axis=0, out=changes[own])
        return np.ascontiguousarray(changes.transpose(1, 0, 2))

    def dots(self, products: Floats, total: Floats) -> Floats:
        """Products of a residual with 1 and the terms (1 + M, p), given those with candidates (p, C) and 1 (p,)."""
        found = products[:, self.position].T
        falling = np.flatnonzero(self.terms.sign < 0)
        linear = products[:, self.grid.offsets[self.terms.feature[falling]]].T
        found[falling] += self.terms.knot[falling, None] * total - linear
        return np.concatenate([total[None], found])


@compiled
def additive_values(columns, codes, offsets, features, lines, out):  # type: ignore[no-untyped-def]
    """Add the lines of all features to ``out`` (p, N); lines : (p, C, 2)."""
    for k in range(len(out)):
        for start in range(0, out.shape[1], TILE):
            n, at = out.shape[1] - start if start + TILE > out.shape[1] else TILE, np.uint64(start)
            for j in range(features.size):
                x, code, line = columns[features[j]], codes[features[j]], lines[k, offsets[features[j]] :]
                for m in range(n):
                    row = at + np.uint64(m)
                    own = np.uint64(code[row])
                    out[k, row] += line[own, 0] + line[own, 1] * x[row]


@compiled
def additive_residual(columns, codes, offsets, features, lines, y, w, rows, r, table, sums):  # type: ignore[no-untyped-def]
    """Per bin: Σwr and Σwrx of the residual r on some rows, and Σwr and Σwr² for each response.

    lines : (p, C, 2); r : room for a tile; table : (p · C · 2,) flat; sums : (2, p)
    """
    size = np.uint64(offsets[-1])
    for start in range(rows[0], rows[1], TILE):
        n, at = rows[1] - start if start + TILE > rows[1] else TILE, np.uint64(start)
        for k in range(len(y)):
            for i in range(n):
                r[i] = y[k, at + np.uint64(i)]
            for j in range(features.size):
                x, code, line = columns[features[j]], codes[features[j]], lines[k, offsets[features[j]] :]
                for m in range(n):
                    row = at + np.uint64(m)
                    own = np.uint64(code[row])
                    r[m] -= line[own, 0] + line[own, 1] * x[row]
            total, squares = 0.0, 0.0
            for i in range(n):
                weighted = r[i] * (w[at + np.uint64(i)] if w.size > 0 else 1.0)
                total += weighted
                squares += weighted * r[i]
                r[i] = weighted
            sums[0, k] += total
            sums[1, k] += squares
            for j in range(features.size):
                x, code = columns[features[j]], codes[features[j]]
                first = np.uint64(k) * size + np.uint64(offsets[features[j]])
                for m in range(n):
                    row = at + np.uint64(m)
                    add_pair(table, first + np.uint64(code[row]), r[m], r[m] * x[row])
