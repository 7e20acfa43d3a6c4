"""How large a network may be: checked before anything is allocated."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, pairwise
from numbers import Integral
from typing import Any

import numpy as np

from knotwork.errors import NetworkError
from knotwork.parameters import shown

# Of all layers together; in double precision they take 8 GB.
MAX_WEIGHTS = 10**9
MAX_LAYERS = 1000


def read_widths(widths: Any, name: str = "hidden", layers: int = 1) -> tuple[int, ...]:
    """Check the widths of hidden layers: whole numbers, at least so many of them, each at least 1.

    >>> read_widths([64, 32])
    (64, 32)
    """
    if not isinstance(widths, Iterable) or isinstance(widths, (str, bytes)) or getattr(widths, "ndim", 1) != 1:
        raise TypeError(f"{name} must be widths of layers, as in (64, 64), got {shown(widths)}")
    numbers = list(islice(widths, MAX_LAYERS + 1))
    if not all(isinstance(width, Integral) and not isinstance(width, np.timedelta64) for width in numbers):
        raise TypeError(f"{name} must be whole numbers, as in (64, 64), got {shown(widths)}")
    if not layers <= len(numbers) <= MAX_LAYERS or any(width < 1 for width in numbers):
        raise NetworkError(
            f"{name} must name at least one layer and at most {MAX_LAYERS}, each of at least one unit, "
            f"got {shown(widths)}"
        )
    return tuple(int(width) for width in numbers)


def require_room(sizes: Iterable[int]) -> None:
    """Refuse layers of more than ``MAX_WEIGHTS`` weights; ``sizes`` are those of the input, the layers, the output."""
    weights = sum(before * after + after for before, after in pairwise(sizes))
    if weights > MAX_WEIGHTS:
        raise NetworkError(
            f"a network may have at most {MAX_WEIGHTS:.0e} weights, these layers have {min(weights, 10**300):.3g}; "
            f"choose smaller widths"
        )
