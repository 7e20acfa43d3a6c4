"""Boxes of inputs: (minimum, maximum), each a number or one per feature."""

from __future__ import annotations

from typing import Any

import numpy as np

from knotwork.arrays import Floats, read_numbers
from knotwork.errors import DataError
from knotwork.parameters import shown


def read_box(box: Any, features: int, *, flat: bool = False) -> Floats:
    """Read a box: (minimum, maximum), each a number or one per feature → (2, features); ``flat`` allows equal sides.

    >>> read_box((0, [1, 2]), 2).tolist()
    [[0.0, 0.0], [1.0, 2.0]]
    """
    try:
        low, high = box
        sides = np.stack([np.broadcast_to(read_numbers(side, "box"), features) for side in (low, high)])
    except Exception as error:  # whatever was given may raise anything when it is taken apart
        raise DataError(
            f"box must be (minimum, maximum), each a number or one per feature ({features}), got {shown(box)}"
        ) from error
    in_order = sides[0] <= sides[1] if flat else sides[0] < sides[1]
    if not (np.isfinite(sides).all() and in_order.all()):
        raise DataError(
            f"box must be (minimum, maximum) with finite sides in order, each minimum first, got {shown(box)}"
        )
    return sides


def affine_range(weight: Floats, bias: Floats, sides: Floats) -> tuple[Floats, Floats]:
    """Minimum and maximum of affine functions on a box: weight (n, d), bias (n,), sides (2, d) → (n,), (n,)."""
    centre, reach = sides.mean(axis=0), (sides[1] - sides[0]) / 2
    middle, spread = weight @ centre + bias, np.abs(weight) @ reach
    return middle - spread, middle + spread
