"""A part of a source as a fit sees it: encoded rows of positive weight, their responses and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.batches import Rows
from knotwork.data.table import TableEncoder, as_frame


class Target(Protocol):
    """How y becomes the responses of a search."""

    def read(self, y: Any) -> NDArray[Any]:
        """Return y as it counts: (n, p) numbers, or (n,) codes of classes."""
        ...

    def responses(self, y: NDArray[Any]) -> Floats:
        """Return what the search sees of what was read: (n, p)."""
        ...

    def weights(self, y: NDArray[Any]) -> Floats | None:
        """Return factors of the rows' weights: (n,), None for none."""
        ...


@dataclass(frozen=True)
class Numbers:
    """Responses that are numbers, divided by ``scale`` (p,) if there is one."""

    scale: Floats | None = None

    def read(self, y: Any) -> NDArray[Any]:
        """Return y as (n, p)."""
        values = np.asarray(y, dtype=np.float64)
        values = values.reshape(len(values), -1)
        return values if self.scale is None else values / self.scale

    def responses(self, y: NDArray[Any]) -> Floats:
        """Return the responses as they are."""
        return y

    def weights(self, y: NDArray[Any]) -> Floats | None:
        """Return none."""
        return None


@dataclass(frozen=True)
class Part:
    """Rows of positive weight: X (n, d) encoded, y as its target reads it, weight (n,) or None."""

    X: Floats
    y: NDArray[Any]
    weight: Floats | None

    @property
    def weights(self) -> Floats:
        """The weights, ones if there are none: (n,)."""
        return np.ones(len(self.X)) if self.weight is None else self.weight


@dataclass(frozen=True)
class PartReader:
    """Reads parts: ``encoder`` and ``target`` say how; take : the columns of an array that the encoder is for."""

    encoder: TableEncoder
    target: Target
    take: tuple[int, ...] | None = None

    def __call__(self, rows: Rows) -> Part:
        """Read a part; its values were checked by the survey."""
        raw = rows.X
        if self.take is not None and as_frame(raw) is None:  # a frame's columns are found by name
            raw = raw[:, list(self.take)]
        X = self.encoder.encode(raw)
        y = self.target.read(rows.y)
        weight = None if rows.weight is None else np.asarray(rows.weight, dtype=np.float64)
        own = self.target.weights(y)
        if own is not None:
            weight = own if weight is None else weight * own
        if weight is not None and not (weight > 0).all():
            kept = np.flatnonzero(weight > 0)
            X, y, weight = X[kept], y[kept], weight[kept]
        return Part(np.asarray(X, dtype=np.float64), y, weight)

    def only(self, features: Sequence[int]) -> tuple[PartReader, list[str], list[int]]:
        """Return a reader of the columns that some features come from, their names, and all features they have."""
        source = self.encoder.source
        used = sorted({source[f] for f in features})
        columns = tuple(self.encoder.columns[k] for k in used)
        reader = replace(self, encoder=replace(self.encoder, columns=columns), take=tuple(used))
        return reader, [column.name for column in columns], [f for f, k in enumerate(source) if k in used]
