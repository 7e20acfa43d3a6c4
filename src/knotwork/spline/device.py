"""A table on a torch device, a GPU say, as the search sees it: the rows never leave the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from knotwork.arrays import Floats
from knotwork.compute.workers import Workers
from knotwork.data.limits import Limits, sampled_rows
from knotwork.errors import DataError
from knotwork.spline.host import MAX_KNOT_ROWS, Given, Knots, knots_of
from knotwork.spline.knots import Spans, choose_candidates, with_given
from knotwork.spline.moments.grid import CandidateGrid
from knotwork.spline.moments.moments import TermTable
from knotwork.spline.moments.torch_rows import TorchRows
from knotwork.spline.result import Knot
from knotwork.spline.scaling import Scaling, power_of_two_scale
from knotwork.spline.units import KnotValues

# Bytes that the tables of all pairs of features may have: they grow as the square of features times knots.
MAX_TABLE_BYTES = 1 << 34


class _Columns:
    """A table on a device, as columns: (d, N) in the user's units of measurement, any float dtype.

    Read through ``part``, standardised in float64: z = x·scale − centre.
    """

    def __init__(self, X: Tensor, limits: Limits | None = None) -> None:
        self.raw = X.T.contiguous()
        if limits is not None:  # which are values of the data, exact in their dtype
            self.raw = self.raw.clamp(*(torch.tensor(v).to(X)[:, None] for v in (limits.lower, limits.upper)))
        low, high = self.raw.amin(dim=1).double(), self.raw.amax(dim=1).double()
        self.limits = Limits(low.cpu().numpy(), high.cpu().numpy())
        scale = power_of_two_scale((high / 2 - low / 2).cpu().numpy())
        self._factor = torch.from_numpy(scale).to(X.device)
        # Any centre inside the data is right, and the middle needs no sum.
        self._centre = (low / 2 + high / 2) * self._factor
        self.scaling = Scaling(scale=scale, centre=self._centre.cpu().numpy())

    def unscaled(self, features: slice) -> tuple[Tensor, Tensor, Tensor]:
        """Return values as they came, (features, N), and factors and centres, (features,), that standardise them."""
        return self.raw[features], self._factor[features], self._centre[features]

    def part(self, features: slice, rows: slice | Tensor) -> Tensor:
        """Return standardised values: (features, rows)."""
        values = self.raw[features, rows].double() * self._factor[features, None]
        return values.sub_(self._centre[features, None])


class DeviceTable:
    """Tensors of one device: X (N, d), y (N, p), weights (N,) or None; a :class:`SearchTable` for additive models."""

    def __init__(self, X: Tensor, y: Tensor, weights: Tensor | None, workers: Workers) -> None:
        self._X, self._weights, self._workers = X, weights, workers
        self._columns = _Columns(X)
        self._given: KnotValues = {}
        responses = y.T.double()
        low, high = responses.amin(dim=1), responses.amax(dim=1)
        scale = float(power_of_two_scale(float((high / 2 - low / 2).max())))
        # The middle first: it brings every value near zero, so that the mean can be trusted.
        centre = (low / 2 + high / 2) * scale
        responses = responses * scale - centre[:, None]
        mean = responses.mean(dim=1) if weights is None else responses @ weights / weights.sum()
        self._responses = responses.sub_(mean[:, None])
        self.y_scaling = Scaling(scale=np.full(len(responses), scale), centre=(centre + mean).cpu().numpy())

    @property
    def x_scaling(self) -> Scaling:
        """From the user's units of measurement of the features to those of the search."""
        return self._columns.scaling

    @property
    def limits(self) -> Limits:
        """The range of the features as they are fitted."""
        return self._columns.limits

    def candidates(
        self, spans: Spans, max_knots: int | None, *, clip: bool, given: Given | None = None
    ) -> CandidateGrid:
        """Choose the knots, on the CPU: of many rows from a sample, the same as of a table in memory."""
        grid, reaches = self._choose(spans, max_knots)
        held = self._held(reaches) if clip else self.limits
        if held != self.limits:  # some values lie far beyond the bulk: once more, without them
            self._columns = _Columns(self._X, held)
            grid, _ = self._choose(spans, max_knots)
        if given is not None:
            grid, self._given = with_given(grid, given, self.x_scaling)
        return grid

    def _choose(self, spans: Spans, max_knots: int | None) -> tuple[CandidateGrid, Floats]:
        n = self._responses.shape[1]
        sampled = None if max_knots is None else sampled_rows(n)
        rows = slice(None) if sampled is None else torch.from_numpy(sampled).to(self._responses.device)
        sample = self._columns.part(slice(None), rows).cpu().numpy()
        weights = None if self._weights is None else self._weights[rows].cpu().numpy()
        total = float(n) if self._weights is None else float(self._weights.sum())
        return choose_candidates(sample, weights, spans, max_knots, self._workers, total=total)

    def _held(self, reaches: Floats) -> Limits:
        """Return the range of the values within reach, in the data's units; ``reaches`` (2, d) are standardised."""
        lower, upper = self.limits.lower.copy(), self.limits.upper.copy()
        for f, (low, high) in enumerate(reaches.T):
            values, raw = self._columns.part(slice(f, f + 1), slice(None))[0], self._columns.raw[f]
            within = raw[(values >= low) & (values <= high)]
            lower[f], upper[f] = float(within.amin()), float(within.amax())
        return Limits(lower, upper)

    def sums(self, grid: CandidateGrid, max_terms: int, engine: str) -> TorchRows:
        """Return the sums behind a search, from tables of pairs of features."""
        needed = 24 * grid.knots.size**2
        if needed > MAX_TABLE_BYTES:
            raise DataError(
                f"backend='torch' needs tables of all pairs of candidate knots, {needed / 2**30:.0f} GB for "
                f"{grid.knots.size} of them (at most {MAX_TABLE_BYTES >> 30}); choose a smaller max_knots, or "
                f"backend='cpu'"
            )
        return TorchRows(self._columns, self._responses, self._weights, grid)

    def minimum(self) -> Floats:
        """Return the standardised minimum of each feature: (d,)."""
        return self.limits.lower * self.x_scaling.scale - self.x_scaling.centre

    def find_knots(self, terms: TermTable) -> Knots:
        """Look up the data values and rows behind standardised knots, so that no rounding of the scaling is left."""
        found: Knots = {}
        current, values = -1, torch.empty(0)
        for f, knot in knots_of(terms):
            if f != current:
                current, values = f, self._columns.part(slice(f, f + 1), slice(None))[0]
            rows = torch.nonzero(values == knot)[:, 0]
            value = self._given[f, knot] if (f, knot) in self._given else float(self._columns.raw[f, rows[0]])
            found[f, knot] = Knot(f, value=value, count=len(rows), rows=rows[:MAX_KNOT_ROWS].cpu().numpy())
        return found
