"""Published figures that cannot be true of the data as described, with what this run measured against them."""

from __future__ import annotations

from typing import Any

from knotwork.experiments.protocol import PUBLISHED, SUBJECTS

Record = dict[str, Any]
MEAN = "mean of the training rows"
# Share of the best strong model's error that no split goes below.
IMPOSSIBLE = 0.7
# Number of splits from which the minimum error over them says how lucky a split can be.
ENOUGH_SPLITS = 5


def doubts(data: str, result: Record) -> list[str]:
    """Compare every published test error with what the data allow; one sentence for each that does not fit.

    Two things are known of a min-max scaled test error: guessing the mean gives the variance of y, and the best of
    several strong models of different kinds shows about how low one can go. The error of an untrained network has no
    upper limit.
    """
    strong = result["strong_models"]
    unit, models, noun = strong["unit"], strong["models"], SUBJECTS[data].unit
    guess = models[MEAN]["mse"]["mean"]
    best = min((name for name in models if name != MEAN), key=lambda name: models[name]["mse"]["mean"])
    floor, rmse = models[best]["mse"]["mean"], models[best]["rmse_in_units"]["mean"]
    sentences = []
    for when, start, value in published_errors(data):
        if when == "0" and start == "random":
            continue
        of = f"{start} network {'before training' if when == '0' else f'after {when} epochs'}, {value:g}"
        size = f"on {noun} scaled to [0, 1] that is an error (root mean square) of {value**0.5 * unit:.2f} {noun}"
        ours = f"the best of our models of other kinds ({best}) has {rmse:.2f} {noun} (MSE {floor:.4f})"
        if value < IMPOSSIBLE * floor:
            sentences.append(f"{of}: {size}; {ours}. A test error of {value / floor:.2f} of that is out of reach.")
        elif value < strong["least"] and strong["splits"] >= ENOUGH_SPLITS:
            sentences.append(
                f"{of}: {size}; {ours}, and no model on any of our {strong['splits']} splits gets below MSE "
                f"{strong['least']:.4f}. A very lucky split at best."
            )
        elif value > guess:
            sentences.append(
                f"{of}: guessing the mean of the training rows has MSE {guess:.4f} on {noun} scaled to [0, 1]. A "
                f"network "
                f"network {value / guess:.1f} times as wrong has learned nothing, or y was scaled in another way than "
                f"described."
            )
    return sentences


def published_errors(data: str) -> list[tuple[str, str, float]]:
    """Return every published test error: epochs, start, value.

    >>> published_errors("wine")[0]
    ('0', 'converted', 0.044545)
    """
    figures = PUBLISHED[data]
    rows = [("0", start, figures["before"][start]) for start in ("converted", "random")]
    rows += [(when, start, pair[start]) for when, pair in figures["after"].items() for start in pair]
    return rows
