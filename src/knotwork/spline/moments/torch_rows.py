"""Row sums with torch, on the device where the rows are: the search asks for products, and the rows are not read again.

For two features and their bins, Σw, Σwxz, Σwx and Σwz over each pair of bins are a two-dimensional histogram. Sums of
those over the bins above a knot are the products of its hinge with every bin of every other feature. When a feature is
first chosen, its histograms with all others are summed at once; from then on a term of it costs no pass.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor

from knotwork.arrays import Floats
from knotwork.errors import DataError
from knotwork.spline.moments.cpu import FIRST, suffix_products
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import Opening, Residual, TermTable
from knotwork.spline.moments.torch_histograms import DeviceColumns, Histograms

# Bytes of the values of all terms on the rows that a residual looks at together.
RESIDUAL_BYTES = 1 << 30
ADDITIVE_ONLY = "backend='torch' fits additive models, got interactions; choose max_degree=1 or backend='cpu'"


class TorchRows:
    """Columns on a device with p responses (p, N), weights (N,) or None; a :class:`RowSums` for additive models."""

    def __init__(self, columns: DeviceColumns, y: Tensor, weights: Tensor | None, grid: CandidateGrid) -> None:
        self.grid = grid
        # Kernels read them side by side.
        self._columns, self._y = columns, y.contiguous()
        self._weights = None if weights is None else weights.contiguous()
        self._edges = list(pairwise(grid.offsets.tolist()))
        # Values are below 1 in size, and so are weights over the largest one.
        self._unit = 1.0 if self._weights is None else float(self._weights.max())
        light = None if self._weights is None else self._weights / self._unit
        self._histograms = Histograms(columns, light, grid)
        # Of each feature alone, z being x: (C, 4).
        self._alone = self._histograms.alone(None)
        # Feature that was chosen → its sums with all others, (bins, C, 4).
        self._strips: dict[int, Tensor] = {}

    def opening(self) -> Opening:
        """Sum what the search starts from."""
        knots = self.grid.knots
        count, xx, x, _ = self._alone.unbind(1)
        # Σ v and Σ v·x for 0, 1 and x, and the responses. The products of 0 with 1 are the masses.
        pairs = [(torch.zeros_like(count), count), (count, x), (x, xx)]
        for y in self._y:
            _, yx, y_sum, _ = self._histograms.alone(y).unbind(1)
            pairs.append((y_sum, yx))
        products = self._against_candidates(torch.stack([torch.stack(pair, dim=1) for pair in pairs]))
        mass, sums, cross = products[:3]
        weighted = self._y if self._weights is None else self._y * self._weights
        return Opening(
            total=float(mass[0]),
            mass=mass,
            sums=sums,
            norms=cross - knots * sums,
            cross=cross,
            responses=products[3:].T,
            squares=(weighted * self._y).sum(dim=1).cpu().numpy(),
        )

    def line_products(self, feature: int) -> Floats:
        """Products of a feature itself with every candidate: (C,)."""
        line: Floats = self._products(feature, [None])[0]
        return line

    def pair_products(self, feature: int, knot: float) -> Floats:
        """Products of a feature x itself and of (x − t)₊ with every candidate: (2, C)."""
        return self._products(feature, [None, knot])

    def hinge_products(self, feature: int, knot: float) -> Floats:
        """Products of (x − t)₊ with every candidate: (1, C), from the rows of the tables where it is not zero."""
        return self._products(feature, [knot])

    def products(self, terms: TermTable) -> NoReturn:
        """Refuse: there are no interactions."""
        raise DataError(ADDITIVE_ONLY)

    def children(self, grid: CandidateGrid, slopes: Floats, product: bool, slots: int, min_mass: float) -> NoReturn:
        """Refuse: products of interactions are not in the tables."""
        raise DataError(ADDITIVE_ONLY)

    def rows_with(self, feature: int, values: Floats) -> tuple[Tensor, Tensor]:
        """Find the rows with some of the values (K,), knots of the grid: row numbers, and which value each has.

        Rows rise for every value, and those of a value stand together.
        """
        first, last = self._edges[feature]
        codes, device = self._histograms.codes[feature], self._y.device
        # A value lies in the bin below its knot.
        slot = np.full(last - first, -1)
        slot[np.searchsorted(self.grid.knots[first + 1 : last], values)] = np.arange(len(values))
        slots = torch.from_numpy(slot).to(device)
        rows = torch.nonzero((slots >= 0).index_select(0, codes.to(torch.int32)))[:, 0]
        which = slots[codes[rows].long()]
        found = self._columns.part(slice(feature, feature + 1), rows)[0] == torch.from_numpy(values).to(device)[which]
        which, order = torch.sort(which[found], stable=True)
        return rows[found][order], which

    def residual(self, terms: TermTable, intercept: Floats, coef: Floats) -> Residual:
        """Sum the residual of a linear combination of terms: intercept (p,), coef (M, p); one pass."""
        beta = np.concatenate([intercept[None], coef])
        sign = np.where(terms.sign == 0, 1.0, terms.sign)
        # Each is max(±z + shift, floor); the intercept is a term that is 1 everywhere.
        parts = (
            np.concatenate([[0], terms.feature]),
            np.concatenate([[0.0], sign]),
            np.concatenate([[1.0], -sign * terms.knot]),
            np.concatenate([[1.0], np.where(terms.sign == 0, -np.inf, 0.0)]),
        )
        feature, side, shift, floor, coefficients = (torch.from_numpy(v).to(self._y.device) for v in (*parts, beta))
        lines = feature, side, shift, floor
        if self._histograms.kernels:
            from knotwork.spline.moments.residual_triton import residual_sums

            rss, dots = residual_sums(self._columns.unscaled(), self._y, self._weights, lines, coefficients)
        else:
            rss, dots = self._residual(lines, coefficients)
        return Residual(rss=rss.cpu().numpy(), dots=dots.cpu().numpy())

    def _residual(self, terms: tuple[Tensor, Tensor, Tensor, Tensor], beta: Tensor) -> tuple[Tensor, Tensor]:
        """Return Σwr² (p,) and Σwrb (1 + M, p) for terms b = max(side·z + shift, floor)."""
        feature, side, shift, floor = terms
        p, n = self._y.shape
        dots = torch.zeros_like(beta)
        rss = torch.zeros(p, dtype=torch.float64, device=beta.device)
        # One product with a matrix of 0 and ±1 picks the feature of each term; nothing is rounded in it.
        pick = torch.zeros((len(beta), len(self._edges)), dtype=torch.float64, device=beta.device)
        pick.scatter_(1, feature[:, None], side[:, None])
        step = max(1, RESIDUAL_BYTES // (8 * len(beta)))
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            basis = torch.addmm(shift[:, None], pick, self._columns.part(slice(None), rows)).clamp_(min=floor[:, None])
            r = self._y[:, rows] - beta.T @ basis
            wr = r if self._weights is None else r * self._weights[rows]
            rss += (r * wr).sum(dim=1)
            dots += basis @ wr.T
        return rss, dots

    def _products(self, feature: int, hinges: list[float | None]) -> Floats:
        """Products of (x − t)₊, or x itself for None, with every candidate: (k, C)."""
        first, last = self._edges[feature]
        strip = self._strip(feature)
        found = torch.empty((len(hinges), self.grid.knots.size, 2), dtype=torch.float64, device=strip.device)
        for k, knot in enumerate(hinges):
            place = 0 if knot is None else 1 + int(np.searchsorted(self.grid.knots[first + 1 : last], knot))
            count, xz, x, z = strip[place:].sum(dim=0).unbind(1)
            found[k, :, 0] = x if knot is None else x - knot * count
            found[k, :, 1] = xz if knot is None else xz - knot * z
        return self._against_candidates(found)

    def _strip(self, feature: int) -> Tensor:
        """Return the sums of a feature with all others: (bins, C, 4); those with features chosen before are known."""
        if feature in self._strips:
            return self._strips[feature]
        first, last = self._edges[feature]
        others = [g for g in range(len(self._edges)) if g != feature and g not in self._strips]
        strip = self._histograms.joint(feature, others)
        for g, known in self._strips.items():
            turned, own = known[:, first:last].transpose(0, 1), strip[:, slice(*self._edges[g])]
            own[..., :2] = turned[..., :2]
            own[..., 2:] = turned[..., 2:].flip(-1)  # Σwx and Σwz change places
        torch.diagonal(strip[:, first:last]).copy_(self._alone[first:last].T)
        self._strips[feature] = strip
        return strip

    def _against_candidates(self, tables: Tensor) -> Floats:
        """Turn Σ v and Σ v·z of each bin, (k, C, 2), into ⟨v, c⟩ for all candidates c: Σ_{z>t} v·z − t·Σ_{z>t} v."""
        products = np.empty(tables.shape[:2])
        flat = (tables.cpu().numpy() * self._unit).reshape(1, -1, 2)
        suffix_products(flat, FIRST, self.grid.offsets, self.grid.knots, products)
        return products
