"""What one process measures on its rows, measured on those of all ranks: coordinates, the width of Huber's loss."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from knotwork.data.coordinates import Coordinates, Measured
from knotwork.data.losses import ResponseLoss
from knotwork.data.sample import Sample
from knotwork.network.train.losses import Deviance, Loss, SquaredError
from knotwork.network.train.ranks import Ranks


def pooled_coordinates(loss: Loss, rows: Sample, ranks: Ranks | None) -> Coordinates:
    """Return the coordinates to train in, by the rows of all ranks.

    Means and stds are those of all rows. Where a loss has a quantile for its centre, it is the mean of the ranks'
    quantiles: coordinates decide how steps are scaled, not what the loss is.
    """
    own = loss.coordinates(rows.X, rows.y, rows.weight)
    if ranks is None:
        return own
    x_centre, x_scale = Measured.pooled(ranks.gather(Measured.of(rows.X, rows.weight))).mean_and_std()
    y_centre, y_scale = own.y_centre, own.y_scale
    if isinstance(loss, SquaredError):
        y_centre, y_scale = Measured.pooled(ranks.gather(Measured.of(rows.y, rows.weight))).mean_and_std()
    elif isinstance(loss, Deviance):
        centres, scales, weights = map(np.array, zip(*ranks.gather(
            (float(y_centre[0]), float(y_scale[0]), float(rows.weight.sum()))
        ), strict=True))  # fmt: skip
        shares = weights / weights.sum()
        # Behind a log link the centre is the logarithm of a mean.
        logarithmic = loss.loss.link == "log"
        centre = np.logaddexp.reduce(centres + np.log(shares)) if logarithmic else shares @ centres
        y_centre, y_scale = np.full(1, centre), np.full(1, shares @ scales)
    return replace(own, x_centre=x_centre, x_scale=x_scale, y_centre=y_centre, y_scale=y_scale)


def pooled_width(loss: ResponseLoss, rows: Sample, ranks: Ranks | None) -> ResponseLoss:
    """Return Huber's loss with the mean of the ranks' widths: it must be the same loss on all of them."""
    if ranks is None or loss.name != "huber":
        return loss
    return replace(loss, width=ranks.weighted_mean(loss.width, float(rows.weight.sum())))
