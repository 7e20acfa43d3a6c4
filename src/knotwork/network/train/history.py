"""What a training leaves behind: its losses, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class History:
    """Losses after each epoch, beginning with epoch 0, the network as it came.

    They are mean squared errors in units of y², or for classes mean log-losses in nats. Several responses count the
    same: it is the mean of their errors over their variances, times the mean variance. After an epoch that was undone
    they are those of the weights it went back to.

    train_loss, validation_loss, learning_rate, seconds (of training, all told) : lists of one entry per epoch. Networks
        that are trained together look at a sample of their training rows for ``train_loss``, as many as they have
        validation rows, 1024 at least
    undone : numbers of the epochs that were undone
    best_epoch : the epoch whose weights were kept
    validation_unseen : False if the network may have seen the validation rows before training, as in ``train`` with a
        share of X to validate on. Its loss at epoch 0 is then too good to judge later ones by, and ``setback="auto"``
        undoes no epoch
    """

    train_loss: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    learning_rate: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    undone: list[int] = field(default_factory=list)
    best_epoch: int = 0
    validation_unseen: bool = True

    def __len__(self) -> int:
        return len(self.train_loss)

    def __repr__(self) -> str:
        if not self.validation_loss:
            return "History(no epochs)"
        first, best = self.validation_loss[0], self.validation_loss[self.best_epoch]
        epochs = f"best of {len(self) - 1} epochs: {self.best_epoch}"
        return f"History({epochs}, validation loss {best:.4g}, {first:.4g} at the start)"

    def to_frame(self) -> Any:
        """Return the history as a pandas frame, one row per epoch."""
        import pandas as pd

        return pd.DataFrame({
            "train_loss": self.train_loss,
            "validation_loss": self.validation_loss,
            "learning_rate": self.learning_rate,
            "seconds": self.seconds,
        }).rename_axis("epoch")  # fmt: skip
