"""What a backend must be able to sum.

Every record here is a sum over rows. Sums over parts of the rows therefore add up to the sums over all of them:
a backend on another device, or on many machines, computes the same records for its part and adds.

Inner products are weighted by the sample weights: ⟨u, v⟩ = Σ_i w_i u_i v_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from knotwork.spline.knots import CandidateGrid
from knotwork.spline.model import Floats


class Side(Enum):
    """Which of the two hinges at a knot: (x − t)₊ is above it, (t − x)₊ below."""

    ABOVE = 1
    BELOW = -1


BOTH = (Side.ABOVE, Side.BELOW)


@dataclass(frozen=True)
class Opening:
    """Products known before any term is chosen, for the C candidates of a grid and p responses.

    total : Σ w
    mass : (C,) Σ w over the rows above the candidate's knot (all rows for a feature itself)
    sums : (C,) ⟨1, c⟩
    norms : (C,) ⟨c, c⟩
    cross : (C,) ⟨c, x⟩ with x the candidate's own feature
    responses : (C, p) ⟨c, y⟩
    squares : (p,) ⟨y, y⟩, the responses being centred
    """

    total: float
    mass: Floats
    sums: Floats
    norms: Floats
    cross: Floats
    responses: Floats
    squares: Floats


@dataclass(frozen=True)
class TermTable:
    """Terms of the search as arrays: x for sign 0, (x − t)₊ for +1, (t − x)₊ for −1; all (M,), standardised."""

    feature: NDArray[np.int64]
    knot: Floats
    sign: NDArray[np.int64]

    def __getitem__(self, chosen: NDArray[np.intp]) -> TermTable:
        return TermTable(self.feature[chosen], self.knot[chosen], self.sign[chosen])

    def entries(self) -> list[tuple[int, float, int]]:
        """Return (feature, knot, sign) of each term."""
        return list(zip(self.feature.tolist(), self.knot.tolist(), self.sign.tolist(), strict=True))


@dataclass(frozen=True)
class Residual:
    """Products of the residual r = y − intercept − Σ β_m b_m.

    rss : (p,) ⟨r, r⟩
    dots : (1 + M, p) ⟨1, r⟩ and ⟨b_m, r⟩
    """

    rss: Floats
    dots: Floats


class RowSums(Protocol):
    """The rows behind a candidate grid, as the search and the refit see them."""

    grid: CandidateGrid

    def opening(self) -> Opening:
        """Sum what the search starts from: one pass."""
        ...

    def hinge_products(self, feature: int, knot: float, sides: tuple[Side, ...]) -> Floats:
        """Products of the hinges of one feature at one knot with every candidate: (sides, C), one pass."""
        ...

    def residual(self, terms: TermTable, intercept: Floats, coef: Floats) -> Residual:
        """Sum the residual of a linear combination of terms: intercept (p,), coef (M, p); one pass."""
        ...
