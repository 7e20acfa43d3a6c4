"""Published figures that cannot be true of the data as described, with what this run measured against them."""

from __future__ import annotations

from typing import Any

from knotwork.experiments.protocol import PUBLISHED, SUBJECTS

Record = dict[str, Any]
TREES = ("gradient boosting", "random forest")


def doubts(data: str, result: Record) -> list[str]:
    """Compare every published test error with what the data allow; one sentence for each that does not fit.

    Two things are known of a min-max scaled test error: guessing the mean gives the variance of y, and the best of
    several strong models of different kinds shows about how low one can go.
    """
    strong = result["strong_models"]
    unit, models = strong["unit"], strong["models"]
    noun = SUBJECTS[data].unit
    mean_guess = models["mean of the training rows"]["mse"]["mean"]
    others = {name: entry for name, entry in models.items() if name != "mean of the training rows"}
    best = min(others, key=lambda name: others[name]["mse"]["mean"])
    floor, rmse = others[best]["mse"]["mean"], others[best]["rmse_in_units"]["mean"]
    sentences = []
    for when, start, value in published_errors(data):
        of = f"{'' if when == '0' else f'{start} network after {when} epochs, '}{value:g}"
        if when == "0" and start == "converted":
            of = f"converted network before training, {value:g}"
        if when == "0" and start == "random":
            continue  # an untrained network may be as wrong as it likes
        if value < 0.85 * floor:
            sentences.append(
                f"{of}: on {noun} scaled to [0, 1] that is a root mean squared error of {value**0.5 * unit:.2f} "
                f"{noun}. "
                f"The best of our models of other kinds ({best}) has {rmse:.2f} {noun} (MSE {floor:.4f}) on the same "
                f"kind "
                f"of split: the published error is {value / floor:.2f} of it. A test error that low is not to be had "
                f"from "
                f"these columns."
            )
        elif value > mean_guess:
            sentences.append(
                f"{of}: on {noun} scaled to [0, 1], guessing the mean of the training rows has {mean_guess:.4f}. A "
                f"network "
                f"{value / mean_guess:.1f} times as wrong has learned nothing, or y was scaled in another way than the "
                f"paper "
                f"says."
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
