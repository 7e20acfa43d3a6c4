"""What a start is fitted to, for which network, and what a user may set of it."""

from __future__ import annotations

from dataclasses import dataclass

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.data.sample import Sample
from knotwork.network.activations import Activation
from knotwork.network.train.losses import Loss

# Minimum gain in R² for which the search goes on: a network has room for terms that add little.
THRESHOLD = 1e-4


@dataclass(frozen=True)
class StartTask:
    """What a start is fitted to, and the network it is fitted for.

    rows, held_out : to fit to, and to choose by (None: there are no such rows)
    weighted : whether the weights are anything but ones
    names : of the features
    widths, rule, coordinates, loss : the network's hidden layers, activation, coordinates of training and loss
    refit : rows that the chosen spline's coefficients are fitted to; None for those that it was chosen with
    """

    rows: Sample
    held_out: Sample | None
    weighted: bool
    names: tuple[str, ...]
    widths: tuple[int, ...]
    rule: Activation
    coordinates: Coordinates
    loss: Loss
    refit: Sample | None = None

    @property
    def weights(self) -> Floats | None:
        """Weights of the rows, None if all count the same."""
        return self.rows.weight if self.weighted else None

    @property
    def outputs(self) -> int:
        """Outputs of the network."""
        return len(self.coordinates.y_centre)


@dataclass(frozen=True)
class StartOptions:
    """What a user may set of a start; None and "auto" ask for what depends on the data."""

    max_terms: int | None = None
    max_degree: int | str = "auto"
    penalty: float | None = None
    threshold: float = THRESHOLD
    ridge: float | str = "auto"
    n_jobs: int | None = None
