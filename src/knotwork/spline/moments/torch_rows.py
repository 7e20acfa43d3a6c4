"""Row sums with torch, on the device where the rows are: one pass gives the products of all pairs of candidates.

For two features and their bins, Σw, Σwx, Σwz and Σwxz over each pair of bins are a two-dimensional histogram. Sums of
those over the bins above a knot are the products of its hinge with every bin of every other feature, so that a term of
the search costs no pass.

GPUs add in any order. So that the result does not depend on it, everything that goes into a histogram is rounded to a
multiple of 2⁻ˢ, with s so small that no sum of N of them needs more than the 53 bits of a float: such sums are exact.
That moves values by 2⁻²⁷ of their column's width at 100 million rows, and by less for fewer. Knots, bins and residuals
see the values as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NoReturn, Protocol

import numpy as np
import torch
from torch import Tensor

from knotwork.arrays import Floats
from knotwork.errors import DataError
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import Opening, Residual, TermTable

# From so many bins on, a GPU adds to each in memory directly, faster than it adds up partial histograms.
MANY_BINS = 1 << 14
# Bytes of the histograms of features that go into a launch together.
SHARED_BYTES = 1 << 28
# Bytes of the values of all terms on the rows that a residual looks at together.
RESIDUAL_BYTES = 1 << 30
ADDITIVE_ONLY = "backend='torch' fits additive models, got interactions; choose max_degree=1 or backend='cpu'"


class DeviceColumns(Protocol):
    """The columns of a table on a device."""

    raw: Tensor

    def part(self, features: slice, rows: slice | Tensor) -> Tensor:
        """Return standardised values: (features, rows) in float64, below 1 in size."""
        ...

    def unscaled(self, features: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Return values as they came, (features, N), and factors and centres, (features,), that standardise them."""
        ...


class TorchRows:
    """Columns on a device with p responses (p, N), weights (N,) or None; a :class:`RowSums` for additive models."""

    def __init__(self, columns: DeviceColumns, y: Tensor, weights: Tensor | None, grid: CandidateGrid) -> None:
        self.grid = grid
        self._columns, self._y, self._weights = columns, y, weights
        self._edges = list(pairwise(grid.offsets.tolist()))
        d, n = columns.raw.shape
        # Values are below 1 in size, and so are weights over the largest one.
        self._unit = 1.0 if weights is None else float(weights.max())
        self._light = None if weights is None else weights / self._unit
        # The float whose last bit is worth 2⁻ˢ: what is added to it is rounded to a multiple of that.
        self._anchor = torch.tensor(1.5 * 2.0 ** math.ceil(math.log2(n + 1)), dtype=torch.float64, device=y.device)
        knots = torch.from_numpy(grid.knots).to(y.device)
        self._codes = torch.empty((d, n), dtype=torch.uint8 if grid.max_bins <= 256 else torch.int32, device=y.device)
        for f, (first, last) in enumerate(self._edges):
            self._codes[f] = torch.bucketize(self._values(f), knots[first + 1 : last], out_int32=True)
        self._together = max(1, SHARED_BYTES // (32 * grid.max_bins**2))
        self._tables = self._joint_sums()

    def _values(self, feature: int) -> Tensor:
        return self._columns.part(slice(feature, feature + 1), slice(None))[0]

    def _weighted(self, values: Tensor, others: Tensor | None = None) -> Tensor:
        """Return values (times others) times their weights, rounded so that their sums are exact."""
        if self._light is not None:
            values = values * self._light
        rounded = self._anchor + values if others is None else torch.addcmul(self._anchor, values, others)
        return rounded.sub_(self._anchor)

    def _histogram(self, codes: Tensor, values: Tensor | None, bins: int) -> Tensor:
        """Sum values, or the weights, in each bin; the order does not matter."""
        if values is None and self._light is not None:
            values = self._weighted(torch.ones_like(self._light))
        if values is None:
            return torch.bincount(codes, minlength=bins).double()
        if bins < MANY_BINS:
            return torch.bincount(codes, weights=values, minlength=bins)
        return torch.zeros(bins, dtype=torch.float64, device=values.device).index_add_(0, codes, values)

    def _joint_sums(self) -> Tensor:
        """Sum over each pair of bins, (C, C): 1; the feature of the row; the two features multiplied."""
        size, d = self.grid.knots.size, len(self._edges)
        tables = torch.zeros((3, size, size), dtype=torch.float64, device=self._y.device)
        for f, (first, last) in enumerate(self._edges):
            own, x = slice(first, last), self._values(f)
            for values, table in zip((None, self._weighted(x), self._weighted(x, x)), tables, strict=True):
                torch.diagonal(table[own, own]).copy_(self._histogram(self._codes[f], values, last - first))
            # Many features share a launch, as far as memory allows.
            for start in range(f + 1, d, self._together):
                others = range(start, min(start + self._together, d))
                for g, sums in zip(others, self._joint_with(f, x, others), strict=True):
                    other = slice(*self._edges[g])
                    tables[:, own, other] = sums[:3]
                    tables[:, other, own] = sums[[0, 3, 2]].transpose(1, 2)
        return tables * self._unit

    def _joint_with(self, f: int, x: Tensor, others: range) -> Iterator[Tensor]:
        """Yield Σw, Σwx, Σwxz and Σwz over the bins of a feature x and those of each z of the others."""
        bins, width = self._edges[f][1] - self._edges[f][0], self.grid.max_bins
        if x.is_cuda and bins * width >= MANY_BINS:
            from knotwork.spline.moments.joint_triton import joint_sums

            part = slice(others.start, others.stop)
            raw, anchor = self._columns.unscaled(part), float(self._anchor)
            found = joint_sums(self._codes[f], self._codes[part], x, raw, self._light, anchor, width)
            for g, sums in zip(others, found, strict=True):
                yield sums[:bins, : self._edges[g][1] - self._edges[g][0]].permute(2, 0, 1)
            return
        wx, base = self._weighted(x), self._codes[f].to(torch.int32) * width
        for g in others:
            z = self._values(g)
            joint = base + self._codes[g]
            parts = (None, wx, self._weighted(x, z), self._weighted(z))
            sums = torch.stack([self._histogram(joint, values, bins * width) for values in parts])
            yield sums.view(4, bins, width)[:, :, : self._edges[g][1] - self._edges[g][0]]

    def opening(self) -> Opening:
        """Sum what the search starts from."""
        knots = self.grid.knots
        count, x, xx = torch.stack([torch.diagonal(table) for table in self._tables]).cpu().numpy()
        mass = self._suffix(count)
        sums, cross = self._against_candidates(count, x), self._against_candidates(x, xx)
        responses = np.empty((knots.size, len(self._y)))
        for k, y in enumerate(self._y):
            wy, found = self._weighted(y), torch.empty((2, knots.size), dtype=torch.float64, device=y.device)
            for f, (first, last) in enumerate(self._edges):
                for row, values in zip(found, (wy, self._weighted(y, self._values(f))), strict=True):
                    row[first:last] = self._histogram(self._codes[f], values, last - first)
            responses[:, k] = self._unit * self._against_candidates(*found.cpu().numpy())
        weighted = self._y if self._weights is None else self._y * self._weights
        return Opening(
            total=float(mass[0]),
            mass=mass,
            sums=sums,
            norms=cross - knots * sums,
            cross=cross,
            responses=responses,
            squares=(weighted * self._y).sum(dim=1).cpu().numpy(),
        )

    def line_products(self, feature: int) -> Floats:
        """Products of a feature itself with every candidate: (C,)."""
        own = slice(*self._edges[feature])
        x, xz = self._tables[1:, own].sum(dim=1).cpu().numpy()
        return self._against_candidates(x, xz)

    def pair_products(self, feature: int, knot: float) -> Floats:
        """Products of a feature x itself and of (x − t)₊ with every candidate: (2, C)."""
        return np.stack([self.line_products(feature), self.hinge_products(feature, knot)[0]])

    def hinge_products(self, feature: int, knot: float) -> Floats:
        """Products of (x − t)₊ with every candidate: (1, C), from the rows of the tables where it is not zero."""
        first, last = self._edges[feature]
        active = slice(first + 1 + int(np.searchsorted(self.grid.knots[first + 1 : last], knot)), last)
        count, x, xz = self._tables[:, active].sum(dim=1)
        z = self._tables[1, :, active].sum(dim=1)
        v, vz = torch.stack([x - knot * count, xz - knot * z]).cpu().numpy()
        return self._against_candidates(v, vz)[None]

    def products(self, terms: TermTable) -> NoReturn:
        """Refuse: there are no interactions."""
        raise DataError(ADDITIVE_ONLY)

    def _against_candidates(self, v: Floats, vz: Floats) -> Floats:
        """Turn Σ v and Σ v·z of each bin into ⟨v, c⟩ for every candidate c: Σ_{z>t} v·z − t·Σ_{z>t} v."""
        return self._suffix(vz) - self.grid.knots * self._suffix(v)

    def _suffix(self, per_bin: Floats) -> Floats:
        """Sum the bins of each feature from every position on: (C,) → (C,)."""
        out = np.empty_like(per_bin)
        for first, last in self._edges:
            out[first:last] = np.cumsum(per_bin[first:last][::-1])[::-1]
        return out

    def children(self, grid: CandidateGrid, slopes: Floats, product: bool, slots: int, min_mass: float) -> NoReturn:
        """Refuse: products of interactions are not in the tables."""
        raise DataError(ADDITIVE_ONLY)

    def residual(self, terms: TermTable, intercept: Floats, coef: Floats) -> Residual:
        """Sum the residual of a linear combination of terms: intercept (p,), coef (M, p); one pass."""
        device = self._y.device
        beta = torch.from_numpy(np.concatenate([intercept[None], coef])).to(device)
        sign = np.where(terms.sign == 0, 1.0, terms.sign)
        # One product with a matrix of ±1 picks the feature of each term; nothing is rounded in it.
        pick = np.zeros((1 + len(coef), len(self._edges)))
        pick[1 + np.arange(len(coef)), terms.feature] = sign
        # The intercept is a term that is 1 everywhere.
        shift = np.concatenate([[1.0], -sign * terms.knot])
        floor = np.concatenate([[1.0], np.where(terms.sign == 0, -np.inf, 0.0)])
        lines, shifts, floors = (torch.from_numpy(v).to(device) for v in (pick, shift[:, None], floor[:, None]))
        dots = torch.zeros_like(beta)
        rss = torch.zeros(len(self._y), dtype=torch.float64, device=device)
        n = self._y.shape[1]
        step = max(1, RESIDUAL_BYTES // (8 * (1 + len(coef))))
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            basis = torch.addmm(shifts, lines, self._columns.part(slice(None), rows)).clamp_(min=floors)
            r = self._y[:, rows] - beta.T @ basis
            wr = r if self._weights is None else r * self._weights[rows]
            rss += (r * wr).sum(dim=1)
            dots += basis @ wr.T
        return Residual(rss=rss.cpu().numpy(), dots=dots.cpu().numpy())
