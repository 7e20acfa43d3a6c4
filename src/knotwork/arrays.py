"""The arrays that everything here computes with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Rows of a table that are processed at a time: their values stay in the processor's cache.
CHUNK = 4096


class FrozenArrays:
    """Base of records whose arrays nobody can write to: copies and pickles of arrays can be written to otherwise."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
        self.__dict__.update(state)
