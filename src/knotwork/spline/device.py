"""A table on a torch device, a GPU say, as the search sees it: the rows never leave the device."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

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

# Bytes that the tables of pairs of features may have, those of all features that a search may choose with all others.
MAX_TABLE_BYTES = 1 << 35


class _Columns:
    """A table on a device, as columns: (d, N) in the user's units of measurement, any float dtype.

    Read through ``part``, standardised in float64: z = x·scale − centre.
    """

    def __init__(self, X: Tensor, limits: Limits | None = None) -> None:
        self.raw = X.T.contiguous()
        if limits is not None:  # which are values of the data, exact in their dtype
            self.raw = self.raw.clamp(*(torch.tensor(v).to(X)[:, None] for v in (limits.lower, limits.upper)))
        low, high = (ends.double() for ends in torch.aminmax(self.raw, dim=1))
        self.limits = Limits(low.cpu().numpy(), high.cpu().numpy())
        scale = power_of_two_scale((high / 2 - low / 2).cpu().numpy())
        self._factor = torch.from_numpy(scale).to(X.device)
        # Any centre inside the data is right, and the middle needs no sum.
        self._centre = (low / 2 + high / 2) * self._factor
        self.scaling = Scaling(scale=scale, centre=self._centre.cpu().numpy())

    def unscaled(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return values as they came, (d, N), and factors and centres, (d,), that standardise them."""
        return self.raw, self._factor, self._centre

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
        self._rows: TorchRows | None = None
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
        ends, scaling = self.limits, self.x_scaling
        minimum, maximum = (side * scaling.scale - scaling.centre for side in (ends.lower, ends.upper))
        lower, upper = ends.lower.copy(), ends.upper.copy()
        for f in np.flatnonzero((minimum < reaches[0]) | (maximum > reaches[1])).tolist():
            values, raw = self._columns.part(slice(f, f + 1), slice(None))[0], self._columns.raw[f]
            within = raw[(values >= reaches[0, f]) & (values <= reaches[1, f])]
            lower[f], upper[f] = float(within.amin()), float(within.amax())
        return Limits(lower, upper)

    def sums(self, grid: CandidateGrid, max_terms: int, engine: str) -> TorchRows:
        """Return the sums behind a search, from tables of pairs of features."""
        bins = np.sort(np.diff(grid.offsets))[::-1]
        needed = 32 * grid.knots.size * int(bins[: max_terms - 1].sum())
        if needed > MAX_TABLE_BYTES:
            raise DataError(
                f"backend='torch' needs tables of pairs of candidate knots, up to {needed / 2**30:.0f} GB for "
                f"{grid.knots.size} of them (at most {MAX_TABLE_BYTES >> 30}); choose a smaller max_knots, fewer "
                f"max_terms, or backend='cpu'"
            )
        self._rows = TorchRows(self._columns, self._responses, self._weights, grid)
        return self._rows

    def minimum(self) -> Floats:
        """Return the standardised minimum of each feature: (d,)."""
        return self.limits.lower * self.x_scaling.scale - self.x_scaling.centre

    def find_knots(self, terms: TermTable) -> Knots:
        """Look up the data values and rows behind standardised knots, so that no rounding of the scaling is left."""
        assert self._rows is not None
        found: Knots = {}
        for f, keys in groupby(knots_of(terms), key=itemgetter(0)):
            knots = [knot for _, knot in keys]
            rows, which = self._rows.rows_with(f, np.array(knots))
            counts = torch.bincount(which, minlength=len(knots)).cpu().numpy()
            begin = np.cumsum(counts) - counts
            kept = np.minimum(counts, MAX_KNOT_ROWS)
            # The first rows of every knot, and their values.
            first = np.concatenate([np.arange(b, b + k) for b, k in zip(begin, kept, strict=True)])
            rows = rows[torch.from_numpy(first).to(rows.device)]
            values, numbers = self._columns.raw[f, rows].double().cpu().numpy(), rows.cpu().numpy()
            for k, (knot, end) in enumerate(zip(knots, np.cumsum(kept).tolist(), strict=True)):
                at = end - int(kept[k])
                value = self._given[f, knot] if (f, knot) in self._given else float(values[at])
                found[f, knot] = Knot(f, value=value, count=int(counts[k]), rows=numbers[at:end].copy())
        return found
