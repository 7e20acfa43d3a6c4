"""The columns of a likelihood, a block of rows at a time.

A likelihood asks for sums over rows only, so nobody needs all values of the terms at once: for a large table they would
take many times its memory. There a block is evaluated anew in every pass, and is then still in the processor's cache:
that takes no longer than to read it from memory. Where columns are few enough to be kept, they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import CHUNK, Floats
from knotwork.data.limits import Limits
from knotwork.errors import DataError
from knotwork.spline.model import Linear, Min, Product, Term, hinges_of
from knotwork.spline.moments.evaluate import combine

# Values in single or double precision.
Array = NDArray[np.floating]
# Columns are kept if they take no more than this.
MAX_KEPT_BYTES = 32 * 2**20


class Values(Protocol):
    """M functions on N rows."""

    @property
    def shape(self) -> tuple[int, int]:
        """M and N."""

    def write(self, rows: slice, out: Floats) -> None:
        """Write the values of some rows into an array (M, rows)."""


@dataclass(frozen=True)
class BasisValues:
    """Values that are there already: basis (N, M)."""

    basis: Floats

    @property
    def shape(self) -> tuple[int, int]:
        """M and N."""
        return self.basis.shape[1], self.basis.shape[0]

    def write(self, rows: slice, out: Floats) -> None:
        """Write the values of some rows into an array (M, rows)."""
        out[:] = self.basis[rows].T


@dataclass(frozen=True)
class TermValues:
    """Values of terms on rows of any precision: X (N, d), held at limits."""

    terms: Sequence[Term]
    X: NDArray[np.floating]
    limits: Limits | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """M and N."""
        return len(self.terms), len(self.X)

    @cached_property
    def _features(self) -> NDArray[np.intp]:
        return np.unique(np.array([f for term in self.terms for f in term.features], dtype=np.intp))

    @cached_property
    def _hinges(self) -> list[tuple[int, int, float, float, bool, bool]]:
        """What writes the terms: the term, the place of its feature, the knot, the factor, whether first, a product."""
        place = {int(f): k for k, f in enumerate(self._features)}
        found = []
        for m, term in enumerate(self.terms):
            if isinstance(term, Linear):
                found.append((m, place[term.feature], 0.0, 0.0, True, False))
                continue
            hinges = hinges_of(term)
            slopes = term.slopes if isinstance(term, Min) else (1.0,) * len(hinges)
            for h, (hinge, slope) in enumerate(zip(hinges, slopes, strict=True)):
                factor = float(hinge.sign * slope)
                found.append((m, place[hinge.feature], hinge.knot, factor, h == 0, isinstance(term, Product)))
        return found

    def write(self, rows: slice, out: Floats) -> None:
        """Write the values of some rows into an array (M, rows)."""
        x = np.ascontiguousarray(self.X[rows][:, self._features].T, dtype=np.float64)
        if self.limits is not None:
            lower, upper = (side[self._features, None] for side in (self.limits.lower, self.limits.upper))
            x = np.clip(x, lower, upper)
        for m, f, knot, factor, first, product in self._hinges:
            combine(x[f], knot, factor, first, product, out[m])


@dataclass(frozen=True)
class Columns:
    """Columns [1, (values − centre)/scale], centre and scale (M,), in single or double precision."""

    values: Values
    centre: Floats
    scale: Floats
    dtype: Any = np.float64

    def __len__(self) -> int:
        return 1 + self.values.shape[0]

    def blocks(self) -> Iterator[tuple[slice, Array]]:
        """Go through the rows: some of them, and their columns (1 + M, rows), which the next ones may overwrite."""
        kept = self._kept
        if kept is None:
            yield from self._evaluated()
        else:
            for rows in _chunks(kept.shape[1]):
                yield rows, kept[:, rows]

    @cached_property
    def _kept(self) -> Array | None:
        shape = len(self), self.values.shape[1]
        if prod(shape) * np.dtype(self.dtype).itemsize > MAX_KEPT_BYTES:
            return None
        kept = np.empty(shape, dtype=self.dtype)
        for rows, columns in self._evaluated():
            kept[:, rows] = columns
        return kept

    def _evaluated(self) -> Iterator[tuple[slice, Array]]:
        room = np.empty((len(self), min(CHUNK, self.values.shape[1])), dtype=self.dtype)
        room[0] = 1.0
        centre, scale = self.centre[:, None], self.scale[:, None]
        for rows, values in value_blocks(self.values):
            columns = room[:, : values.shape[1]]
            values -= centre
            np.divide(values, scale, out=columns[1:], casting="same_kind")
            yield rows, columns


def value_blocks(values: Values) -> Iterator[tuple[slice, Floats]]:
    """Go through the rows: some of them, and their values (M, rows), which the next ones overwrite."""
    count, n = values.shape
    room = np.empty((count, min(CHUNK, n)))
    for rows in _chunks(n):
        found = room[:, : rows.stop - rows.start]
        values.write(rows, found)
        yield rows, found


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK))


def weighted_mean(values: Values, weights: Floats) -> Floats:
    """Return the mean of each function, weights (N,): (M,)."""
    total = np.zeros(values.shape[0])
    for rows, found in value_blocks(values):
        if not np.isfinite(found).all():
            raise DataError("the distance from a knot to a value must be a float, got inf; divide the features by 4")
        total += found @ weights[rows]
    mean: Floats = total / weights.sum()
    return mean


def term_units(
    terms: Sequence[Term], X: NDArray[np.floating], weights: Floats, stds: Floats, limits: Limits | None = None
) -> Floats:
    """Return the units of measurement of terms: (M,).

    Those of one feature take its std, stds (d,); interactions their own.
    """
    # Squares of values in units that are far from 1 may be beyond the range of floats: near that of the features.
    units = feature_units(terms, stds)
    joint = [m for m, term in enumerate(terms) if len(term.features) > 1]
    if joint:
        values = TermValues([terms[m] for m in joint], X, limits)
        scaled = Columns(values, weighted_mean(values, weights), units[joint])
        total = sum(np.square(block[1:]) @ weights[rows] for rows, block in scaled.blocks())
        own = np.sqrt(total / weights.sum())
        units[joint] *= np.where(own > 0, own, 1.0)
    return units


def feature_units(terms: Sequence[Term], stds: Floats) -> Floats:
    """Return the units of measurement of terms by those of their features, stds (d,), alone: (M,).

    An interaction that is zero on nearly all rows has a tiny std: in units of it a ridge would allow any slope.
    """
    return np.array([prod(stds[list(t.features if isinstance(t, Product) else t.features[:1])]) for t in terms])
