"""Where the training rows lie, feature by feature."""

from __future__ import annotations

from dataclasses import dataclass

from knotwork.arrays import Floats


@dataclass(frozen=True)
class FeatureMoments:
    """Mean and std of the encoded features over the training rows, weighted, in the units of the data.

    centre, std : (d,); a constant feature has a positive number in the place of its std, so that one can divide by it
    """

    centre: Floats
    std: Floats
