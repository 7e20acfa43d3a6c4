"""What a backend must be able to sum.

Every record here is a sum over rows. Sums over parts of the rows therefore add up to the sums over all of them:
a backend on another device, or on many machines, computes the same records for its part and adds.

Inner products are weighted by the sample weights: ⟨u, v⟩ = Σ_i w_i u_i v_i.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.spline.moments.grid import CandidateGrid

# A term of the search: its hinges (feature, knot, sign), standardised. One of sign 0 is the feature itself and stands
# alone; several of different features, in rising order, are combined by minimum or product; none is the intercept.
Hinges = tuple[tuple[int, float, int], ...]


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
class ChildOpening:
    """Products of the children of P parents b, two at each knot of the grid: b with (x − t)₊, and b with (t − x)₊.

    mass : (P, 2, C) Σ w over the rows of the parent on that side of the knot
    norms : (P, 2, C) ⟨c, c⟩; the two children of a knot have nothing in common
    responses : (P, p, 2, C) ⟨c, y⟩
    """

    mass: Floats
    norms: Floats
    responses: Floats


@dataclass(frozen=True)
class ChildStep:
    """What a step of the search asks of the children of parents, of which k columns and P parents are new.

    products : (slots, k, 2, C) of the new columns with the children of the parents before
    opening : of the new parents
    whole : (P, columns, 2, C) products of all columns of the span with the children of the new parents
    """

    products: Floats
    opening: ChildOpening
    whole: Floats


@dataclass(frozen=True)
class TermTable:
    """Terms of the search as arrays, standardised: term m combines the hinges ``start[m]`` to ``start[m + 1]``.

    start : (M + 1,)
    feature, knot, sign : (H,) x for sign 0, (x − t)₊ for +1, (t − x)₊ for −1
    slope : (H,) factor of each hinge; 1 except in a minimum
    product : whether hinges of a term are multiplied; else the term is their minimum
    """

    start: NDArray[np.int64]
    feature: NDArray[np.int64]
    knot: Floats
    sign: NDArray[np.int64]
    slope: Floats
    product: bool = False

    @classmethod
    def of(cls, terms: Iterable[Hinges], slopes: Floats, product: bool = False) -> TermTable:
        """Lay terms out; ``slopes`` (d,) are those of each feature's hinges in a minimum."""
        terms = list(terms)
        hinges = [hinge for term in terms for hinge in term]
        feature, knot, sign = zip(*hinges, strict=True) if hinges else ((), (), ())
        slope = [1.0 if product or len(term) == 1 else slopes[f] for term in terms for f, _, _ in term]
        return cls(
            start=np.array([0, *accumulate(map(len, terms))], np.int64),
            feature=np.array(feature, np.int64),
            knot=np.array(knot, np.float64),
            sign=np.array(sign, np.int64),
            slope=np.array(slope, np.float64),
            product=product,
        )

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, chosen: NDArray[np.intp]) -> TermTable:
        sizes = np.diff(self.start)[chosen]
        hinges = [h for m in chosen for h in range(*self.start[m : m + 2])]
        return TermTable(
            start=np.concatenate([[0], np.cumsum(sizes)]),
            feature=self.feature[hinges],
            knot=self.knot[hinges],
            sign=self.sign[hinges],
            slope=self.slope[hinges],
            product=self.product,
        )

    def entries(self) -> list[Hinges]:
        """Return the hinges of each term."""
        flat = list(zip(self.feature.tolist(), self.knot.tolist(), self.sign.tolist(), strict=True))
        return [tuple(flat[a:b]) for a, b in zip(self.start[:-1], self.start[1:], strict=True)]

    def users(self, feature: int) -> NDArray[np.bool_]:
        """Mark the terms that look at a feature: (M,)."""
        counts = np.concatenate([[0], np.cumsum(self.feature == feature)])
        return np.diff(counts[self.start]) > 0


@dataclass(frozen=True)
class Residual:
    """Products of the residual r = y − intercept − Σ β_m b_m.

    rss : (p,) ⟨r, r⟩
    dots : (1 + M, p) ⟨1, r⟩ and ⟨b_m, r⟩
    """

    rss: Floats
    dots: Floats


class ChildSums(Protocol):
    """The rows behind the children of parents, which are known by their slots, and the columns of a span."""

    grid: CandidateGrid

    def advance(
        self,
        columns: TermTable,
        slots: NDArray[np.int64],
        new_slots: NDArray[np.int64],
        parents: Sequence[Hinges],
        features: NDArray[np.bool_],
    ) -> ChildStep:
        """Add columns to the span, and put new parents (P) into free slots: their children with features (P, d).

        slots : of the parents before. All that a step needs is asked for at once: where rows are read, one reading
            serves it.
        """
        ...

    def close(self, slot: int) -> None:
        """Forget a parent."""
        ...


class RowSums(Protocol):
    """The rows behind a candidate grid, as the search and the refit see them."""

    grid: CandidateGrid

    def opening(self) -> Opening:
        """Sum what the search starts from: one pass."""
        ...

    def line_products(self, feature: int) -> Floats:
        """Products of a feature itself with every candidate: (C,), one pass."""
        ...

    def pair_products(self, feature: int, knot: float) -> Floats:
        """Products of a feature x itself and of (x − t)₊ with every candidate: (2, C), one pass."""
        ...

    def hinge_products(self, feature: int, knot: float) -> Floats:
        """Products of (x − t)₊ with every candidate: (1, C), one pass."""
        ...

    def products(self, terms: TermTable) -> Floats:
        """Products of interactions with every candidate: (M, C), one pass."""
        ...

    def children(self, grid: CandidateGrid, slopes: Floats, product: bool, slots: int, min_mass: float) -> ChildSums:
        """Return the sums behind interactions, for so many parents at a time.

        grid : their knots; slopes : (d,) of the hinges in a minimum
        min_mass : observations on either side of its knot below which a child need not be summed
        """
        ...

    def residual(self, terms: TermTable, intercept: Floats, coef: Floats) -> Residual:
        """Sum the residual of a linear combination of terms: intercept (p,), coef (M, p); one pass."""
        ...
