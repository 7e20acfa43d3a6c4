"""The arrays that everything here computes with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Rows of a table that are processed at a time: their values stay in the processor's cache.
CHUNK = 4096
