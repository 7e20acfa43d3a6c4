"""What came out: means over seeds, intervals, and the answers that need nothing but the training runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.stats import t as student

from knotwork.arrays import Floats
from knotwork.experiments.protocol import LIGHT, PUBLISHED, STARTS, Plan

Record = dict[str, Any]


def interval(values: Sequence[float] | Floats) -> dict[str, float | None]:
    """Mean with its 95 % interval by Student's t; no interval for a single value.

    >>> interval([1.0, 2.0, 3.0])["mean"]
    2.0
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return {"mean": mean, "low": None, "high": None, "sd": None}
    sd = float(np.std(values, ddof=1))
    half = float(student.ppf(0.975, len(values) - 1)) * sd / len(values) ** 0.5
    return {"mean": mean, "low": mean - half, "high": mean + half, "sd": sd}


def chosen(runs: Iterable[Record], mark: int, best: bool) -> dict[int, tuple[Record, int]]:
    """For each seed the run whose learning rate does best on the validation rows, and the epoch that counts.

    ``best`` looks at the best epoch up to the mark, otherwise at the mark itself.
    """
    found: dict[int, tuple[float, Record, int]] = {}
    for run in runs:
        epoch = int(np.argmin(run["validation"][: mark + 1])) if best else mark
        error = run["validation"][epoch]
        if run["seed"] not in found or error < found[run["seed"]][0]:
            found[run["seed"]] = (error, run, epoch)
    return {seed: (run, epoch) for seed, (_, run, epoch) in sorted(found.items())}


class Runs:
    """The training runs of one data set."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = list(records)

    def of(self, start: str, scaling: str = "minmax") -> list[Record]:
        """Return the runs of one start: all seeds and rates."""
        return [r for r in self.records if r["start"] == start and r["scaling"] == scaling]

    def errors(self, start: str, mark: int, best: bool, scaling: str = "minmax") -> dict[int, float]:
        """Test MSE of each seed."""
        return {s: run["test"][epoch] for s, (run, epoch) in chosen(self.of(start, scaling), mark, best).items()}

    def before(self, start: str, scaling: str = "minmax") -> dict[int, float]:
        """Test MSE of each seed before training."""
        return self.errors(start, 0, best=False, scaling=scaling)


def compare(converted: dict[int, float], random: dict[int, float]) -> Record:
    """Return means, their ratio, and the paired difference converted − random with its interval."""
    seeds = sorted(set(converted) & set(random))
    ours, theirs = np.array([converted[s] for s in seeds]), np.array([random[s] for s in seeds])
    return {
        "converted": float(ours.mean()), "random": float(theirs.mean()),
        "ratio": float(ours.mean() / theirs.mean()), "ratio_of_pairs": interval(ours / theirs),
        "difference": interval(ours - theirs),
        "spread": {"converted": interval(ours)["sd"], "random": interval(theirs)["sd"]},
    }  # fmt: skip


def summarise(data: str, runs: Runs, seconds: Record, plan: Plan) -> Record:
    """Return the result of a data set: before, after, seconds, published, and how it was run."""
    after: Record = {}
    for mark in plan.marks:
        entry = compare(runs.errors("converted", mark, best=False), runs.errors("random", mark, best=False))
        entry["best"] = compare(runs.errors("converted", mark, best=True), runs.errors("random", mark, best=True))
        entry["rates"] = {s: _rates(chosen(runs.of(s), mark, best=False)) for s in ("converted", "random")}
        after[str(mark)] = entry
    return {
        "before": compare(runs.before("converted"), runs.before("random")),
        "after": after,
        "seconds": seconds,
        "published": PUBLISHED[data],
        "random_light_decay": beside_light_decay(runs, plan),
        "variants": variants(runs, plan),
        "scalings": scalings(runs, plan),
        "catching_up": catching_up(runs),
        "beginning": beginning(runs),
        "overfitting": overfitting(runs, plan),
    }


def _rates(choice: dict[int, tuple[Record, int]]) -> dict[str, int]:
    rates = [f"{run['rate']:g}" for run, _ in choice.values()]
    return {rate: rates.count(rate) for rate in sorted(set(rates), key=float)}


def beside_light_decay(runs: Runs, plan: Plan) -> Record:
    """Compare the converted network with a random one of little weight decay, where both were run."""
    random = f"random{LIGHT}"
    if not runs.of(random):
        return {}
    return {
        str(mark): {
            "last": compare(runs.errors("converted", mark, best=False), runs.errors(random, mark, best=False)),
            "best": compare(runs.errors("converted", mark, best=True), runs.errors(random, mark, best=True)),
        }
        for mark in plan.marks
    }


def variants(runs: Runs, plan: Plan) -> Record:
    """Step 3 in its variants: test MSE before and after, on the seeds that all of them ran."""
    present = [s for s in STARTS if runs.of(s)]
    seeds = set.intersection(*({r["seed"] for r in runs.of(s)} for s in present))

    def mean(errors: dict[int, float]) -> Record:
        return interval([errors[s] for s in sorted(seeds)])

    return {
        start: {
            "before": mean(runs.before(start)),
            "after": {str(m): mean(runs.errors(start, m, best=False)) for m in plan.marks},
            "best": mean(runs.errors(start, plan.marks[-1], best=True)),
            "seeds": len(seeds),
        }
        for start in present
    }


def scalings(runs: Runs, plan: Plan) -> Record:
    """Both conventions: the error as scaled, and in the data's units of measurement, where they can be compared."""
    result: Record = {}
    for scaling in ("minmax", "zscore"):
        if not runs.of("converted", scaling):
            continue
        seeds = {r["seed"] for r in runs.of("converted", "zscore")} or {r["seed"] for r in runs.of("converted")}
        units = {r["seed"]: r["unit"] for r in runs.of("converted", scaling)}
        moments: Record = {"0": {s: runs.before(s, scaling) for s in ("converted", "random")}}
        for mark in plan.marks:
            moments[str(mark)] = {s: runs.errors(s, mark, False, scaling) for s in ("converted", "random")}
        result[scaling] = {
            epoch: {
                start: {
                    "mse": float(np.mean([errors[s] for s in sorted(seeds)])),
                    "rmse_in_units": float(np.mean([errors[s] ** 0.5 * units[s] for s in sorted(seeds)])),
                }
                for start, errors in by_start.items()
            }
            for epoch, by_start in moments.items()
        }
    return result


def catching_up(runs: Runs) -> Record:
    """Epochs that a random start needs for the spline's error, at the rate that gets there first, against M²."""
    splines = {r["seed"]: r for r in runs.of("converted")}
    epochs: list[int | None] = []
    for seed, spline in sorted(splines.items()):
        reached = [
            int(np.argmax(np.array(r["test"]) <= spline["test"][0]))
            for r in runs.of("random")
            if r["seed"] == seed and min(r["test"]) <= spline["test"][0]
        ]
        epochs.append(min(reached, default=None))
    terms = float(np.mean([r["terms"] + 1 for r in splines.values()]))
    known = [e for e in epochs if e is not None]
    return {
        "epochs": epochs, "median": float(np.median(known)) if known else None, "never": len(epochs) - len(known),
        "terms": terms, "claimed": terms**2,
    }  # fmt: skip


def beginning(runs: Runs) -> Record:
    """Training loss and norm of the gradient before the first step."""
    first = {start: {r["seed"]: r for r in runs.of(start)} for start in ("converted", "random")}
    return {
        start: {
            "loss": interval([r["train"][0] for r in records.values()]),
            "gradient_norm": interval([r["gradient_norm"] for r in records.values()]),
        }
        for start, records in first.items()
    }


def overfitting(runs: Runs, plan: Plan) -> Record:
    """Gap between test and training error, before training and after each mark."""
    result: Record = {}
    for start in ("converted", "random"):
        entry: Record = {}
        for mark in (0, *plan.marks):
            picked = chosen(runs.of(start), mark, best=False).values()
            entry[str(mark)] = {
                "train": float(np.mean([r["train"][e] for r, e in picked])),
                "test": float(np.mean([r["test"][e] for r, e in picked])),
                "gap": interval([r["test"][e] - r["train"][e] for r, e in picked]),
            }
        last = [r for r, _ in chosen(runs.of(start), plan.marks[-1], best=False).values()]
        copied = [r["test_copies"] for r in last if r["test_copies"] is not None]
        entry["copies"] = {
            "rows": float(np.mean([r["copies"] for r in last])),
            "fresh": float(np.mean([r["test_fresh"] for r in last])),
            "copied": float(np.mean(copied)) if copied else None,
        }
        result[start] = entry
    return result
