"""The columns that a search may choose from: what the sums over rows are laid out by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats


@dataclass(frozen=True)
class CandidateGrid:
    """All columns the search may choose from, laid out flat.

    Feature f owns the positions ``offsets[f]`` to ``offsets[f + 1]``: first the feature itself, then one hinge
    (x − t)₊ per knot t in rising order. The same positions number the bins of a histogram over the feature: a
    value lies in the bin of the last candidate that is not zero for it. A suffix sum over the bins is therefore
    a sum over the rows where the candidate is active.

    offsets : (d + 1,) int64
    knots : (C,) standardised; 0 at the features' own positions
    feature : (C,) the feature of each position
    """

    offsets: NDArray[np.int64]
    knots: Floats
    feature: NDArray[np.int64]

    @property
    def linear(self) -> NDArray[np.int64]:
        """Position of each feature itself: (d,)."""
        return self.offsets[:-1]

    @property
    def max_bins(self) -> int:
        """Number of bins of the feature with the most knots."""
        return int(np.diff(self.offsets).max())
