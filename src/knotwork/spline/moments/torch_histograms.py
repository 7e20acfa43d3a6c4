"""Sums over the bins of features on a torch device, alone and joint with another feature's.

GPUs add in any order. So that the result does not depend on it, everything that goes into a histogram is rounded to a
multiple of 2⁻ˢ, with s so small that no sum of N of them needs more than the 53 bits of a float: such sums are exact.
That moves values by 2⁻²⁷ of their column's width at 100 million rows, and by less for fewer. Knots, bins and residuals
see the values as they are.

A cell of a histogram over the bins of z, or over those of x and z, holds four sums: Σw, Σwxz, Σwx and Σwz.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from knotwork.spline.moments.bins import padded_rows
from knotwork.spline.moments.grid import CandidateGrid

# Whether CUDA devices run kernels of their own, or what other devices do.
KERNELS = True
# Without kernels: from so many bins on, adding to each in memory is faster than adding up partial histograms.
MANY_BINS = 1 << 14


class DeviceColumns(Protocol):
    """The columns of a table on a device."""

    raw: Tensor

    def part(self, features: slice, rows: slice | Tensor) -> Tensor:
        """Return standardised values: (features, rows) in float64, below 1 in size."""
        ...

    def unscaled(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return values as they came, (d, N), and factors and centres, (d,), that standardise them."""
        ...


class Histograms:
    """Sums over the bins of columns, times weights (N,) up to 1 or None for ones.

    codes : (d, N) the bin of every value
    """

    def __init__(self, columns: DeviceColumns, weights: Tensor | None, grid: CandidateGrid) -> None:
        self._columns, self._weights = columns, weights
        self._edges, self._size = list(pairwise(grid.offsets.tolist())), grid.knots.size
        raw = columns.raw
        self.kernels = KERNELS and raw.is_cuda
        self._offsets = torch.from_numpy(grid.offsets).to(raw.device)
        # The float whose last bit is worth 2⁻ˢ: what is added to it is rounded to a multiple of that.
        self._anchor = 1.5 * 2.0 ** math.ceil(math.log2(raw.shape[1] + 1))
        dtype = torch.uint8 if grid.max_bins <= 256 else torch.int32
        self.codes = torch.empty(raw.shape, dtype=dtype, device=raw.device)
        self._encode(grid)

    def _encode(self, grid: CandidateGrid) -> None:
        device = self.codes.device
        if self.kernels:
            from knotwork.spline.moments.codes_triton import encode

            knots = torch.from_numpy(np.stack(padded_rows(grid.knots, grid.offsets))).to(device)
            encode(self._columns.unscaled(), knots, self.codes)
            return
        knots = torch.from_numpy(grid.knots).to(device)
        for f, (first, last) in enumerate(self._edges):
            self.codes[f] = torch.bucketize(self._values(f), knots[first + 1 : last], out_int32=True)

    def alone(self, values: Tensor | None) -> Tensor:
        """Sum over the bins of every feature z, x being values of the rows (N,), or None for z itself: (C, 4)."""
        if self.kernels:
            return self._by_kernel(values, list(range(len(self._edges))), 1)
        out = torch.empty((self._size, 4), dtype=torch.float64, device=self.codes.device)
        for f, own in enumerate(self._edges):
            z = self._values(f)
            out[slice(*own)] = self._sums(self.codes[f], z if values is None else values, z, own[1] - own[0])
        return out

    def joint(self, feature: int, others: list[int]) -> Tensor:
        """Sum over each pair of bins of a feature x and others z: (bins of x, C, 4), 0 for features not asked for."""
        bins = self._edges[feature][1] - self._edges[feature][0]
        if self.kernels:
            blocks = self._by_kernel(feature, others, bins)
            return blocks[self._places(bins)]
        out = torch.zeros((bins, self._size, 4), dtype=torch.float64, device=self.codes.device)
        x, base = self._values(feature), self.codes[feature].to(torch.int32)
        for g in others:
            first, last = self._edges[g]
            sums = self._sums(base * (last - first) + self.codes[g], x, self._values(g), bins * (last - first))
            out[:, first:last] = sums.view(bins, last - first, 4)
        return out

    def _by_kernel(self, beside: int | Tensor | None, others: list[int], bins: int) -> Tensor:
        from knotwork.spline.moments.joint_triton import bin_sums

        columns = self._columns.unscaled()
        return bin_sums(
            self.codes, columns, beside, others, self._offsets, self._size, self._weights, self._anchor, bins
        )  # fmt: skip

    def _places(self, bins: int) -> Tensor:
        """Where kernels put the sums of each bin of x and each candidate: (bins, C)."""
        sizes = self._offsets.diff()
        first, step = self._offsets[:-1].repeat_interleave(sizes), sizes.repeat_interleave(sizes)
        device = self._offsets.device
        within = torch.arange(self._size, device=device) - first
        return torch.arange(bins, device=device)[:, None] * step + (first * bins + within)

    def _values(self, feature: int) -> Tensor:
        return self._columns.part(slice(feature, feature + 1), slice(None))[0]

    def _sums(self, codes: Tensor, x: Tensor, z: Tensor, bins: int) -> Tensor:
        """Return the four sums of each bin: (bins, 4)."""
        parts = (None, self._weighted(x, z), self._weighted(x), self._weighted(z))
        return torch.stack([self._histogram(codes, values, bins) for values in parts], dim=1)

    def _weighted(self, values: Tensor, others: Tensor | None = None) -> Tensor:
        """Return values (times others) times their weights, rounded so that their sums are exact."""
        if self._weights is not None:
            values = values * self._weights
        anchor = torch.tensor(self._anchor, dtype=torch.float64, device=values.device)
        rounded = anchor + values if others is None else torch.addcmul(anchor, values, others)
        return rounded.sub_(anchor)

    def _histogram(self, codes: Tensor, values: Tensor | None, bins: int) -> Tensor:
        """Sum values, or the weights, in each bin; the order does not matter."""
        if values is None and self._weights is not None:
            values = self._weighted(torch.ones_like(self._weights))
        if values is None:
            return torch.bincount(codes, minlength=bins).double()
        if bins < MANY_BINS:
            return torch.bincount(codes, weights=values, minlength=bins)
        return torch.zeros(bins, dtype=torch.float64, device=values.device).index_add_(0, codes, values)
