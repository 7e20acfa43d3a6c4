"""What a table to predict has that the training table did not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Surprise:
    """Gaps in a column that had none in training, and categories that training did not see."""

    gaps: int = 0
    unseen: tuple[str, ...] = ()


NONE = Surprise()
