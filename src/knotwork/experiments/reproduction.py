"""The whole of it: time, train, ask the paper's questions, draw, write the report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import knotwork
from knotwork.atomic import atomic_file
from knotwork.experiments import drawings, fewer_rows, figures, sparsity
from knotwork.experiments.protocol import FIRST_SEED, STARTS, SUBJECTS, Plan
from knotwork.experiments.report import write_report
from knotwork.experiments.store import Record, Task, run_tasks, task
from knotwork.experiments.summary import Runs, interval, summarise

TRAINING = ("epochs", "widths", "batch_size", "weight_decay", "light_decay", "setback", "warmup")
SHORT_TRAINING = ("analysis_epochs", *TRAINING[1:])


# Shows stages of the work: ``with stage(name, total) as advance``; advance(stored) after each piece.
Progress = Callable[[str, int], AbstractContextManager[Callable[[bool], None]]]


def training_tasks(plan: Plan, data: str) -> list[Task]:
    """Every start, rate and seed, min-max scaled; converted and random z-scored as well."""
    wanted = [("minmax", s, plan.seeds) for s in ("converted", "random")]
    variants = [s for s in STARTS if s not in ("converted", "random")]
    wanted += [("minmax", s, min(plan.seeds, plan.variant_seeds)) for s in variants]
    wanted += [("zscore", s, min(plan.seeds, plan.zscore_seeds)) for s in ("converted", "random")]
    return [
        task("runs", "run", plan, TRAINING, data=data, scaling=scaling, start=start, rate=rate, seed=FIRST_SEED + seed)
        for scaling, start, seeds in wanted for seed in range(seeds) for rate in plan.rates
    ]  # fmt: skip


def question_tasks(plan: Plan, data: str) -> dict[str, list[Task]]:
    """The paper's questions that need runs of their own."""
    seeds = [FIRST_SEED + k for k in range(plan.analysis_seeds)]
    shares = [(share, exclusive) for exclusive in (False, True) for share in fewer_rows.SHARES]
    return {
        "strong_models": [
            task("strong_models", "errors", plan, (), data=data, seed=FIRST_SEED + k) for k in range(plan.seeds)
        ],
        "fewer_rows": [
            task("fewer_rows", "errors", plan, SHORT_TRAINING, data=data, seed=s, share=share, exclusive=exclusive)
            for share, exclusive in shares if not (exclusive and share == 1) for s in seeds
        ],
        "sparsity": [
            task("sparsity", "errors", plan, SHORT_TRAINING, data=data, seed=s, penalty=penalty)
            for penalty in sparsity.PENALTIES for s in seeds
        ],
        "weights": [
            task("weights", "matrices", plan, TRAINING, data=data, start=start, seed=FIRST_SEED)
            for start in ("converted", "random")
        ],
    }  # fmt: skip


def clock_tasks(plan: Plan, names: Sequence[str]) -> dict[str, Task]:
    """What is timed, alone on the machine as far as we can help it."""
    settings = ("widths", "batch_size", "repeats", "growth")
    where = f"{os.uname().nodename if hasattr(os, 'uname') else ''}:{os.cpu_count()}"
    tasks = {name: task("clock", "seconds", plan, settings, data=name, where=where) for name in names}
    tasks["fit_growth"] = task("clock", "fit_growth", plan, settings, where=where)
    tasks["epoch_growth"] = task("clock", "epoch_growth", plan, settings, where=where)
    return tasks


def grouped(records: Sequence[Record], keys: Sequence[str], values: Sequence[str]) -> list[Record]:
    """Average records that agree in ``keys``: a table with the mean and interval of each value."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[k] for k in keys), []).append(record)
    return [
        {**dict(zip(keys, key, strict=True)), **{v: interval([r[v] for r in rows]) for v in values}, "seeds": len(rows)}
        for key, rows in groups.items()
    ]


def strong_model_table(records: Sequence[Record]) -> Record:
    """Average the errors of the strong models; root mean squared errors in units of the data."""
    unit = records[0]["unit"]
    return {
        "share_of_copies": interval([r["share_of_copies"] for r in records])["mean"],
        "models": {
            name: {
                "mse": interval([r["mse"][name] for r in records]),
                "rmse_in_units": interval([r["mse"][name] ** 0.5 * unit for r in records]),
                "mse_fresh": interval([r["mse_fresh"][name] for r in records]),
            }
            for name in records[0]["mse"]
        },
        "splits": len(records),
        "least": min(mse for r in records for mse in r["mse"].values()),
        "unit": unit,
    }


def reproduce(names: Sequence[str], plan: Plan, out: Path, *, jobs: int, progress: Progress) -> Record:
    """Run a plan on the named data sets and write report, JSON and pictures into a folder.

    Finished runs are kept in ``out/runs`` and found there by the next call with the same plan.
    """
    figures.require_matplotlib()
    store = out / "runs"
    store.mkdir(parents=True, exist_ok=True)
    clocks = clock_tasks(plan, names)
    with progress("timing", len(clocks)) as advance:
        timed = run_tasks(store, list(clocks.values()), jobs=1, progress=advance)
    training = {name: training_tasks(plan, name) for name in names}
    questions = {name: question_tasks(plan, name) for name in names}
    everything = [t for name in names for t in training[name]]
    everything += [t for name in names for group in questions[name].values() for t in group]
    with progress("training", len(everything)) as advance:
        done = run_tasks(store, everything, jobs=jobs, progress=advance)

    result: Record = {}
    runs = {name: Runs(done[t] for t in training[name]) for name in names}
    for name in names:
        answers = {kind: [done[t] for t in tasks] for kind, tasks in questions[name].items()}
        result[name] = {
            **summarise(name, runs[name], timed[clocks[name]], plan),
            "strong_models": strong_model_table(answers["strong_models"]),
            "fewer_rows": grouped(answers["fewer_rows"], ("share", "exclusive"), ("spline", "last", "best", "terms")),
            "sparsity": grouped(
                answers["sparsity"], ("penalty",), ("small_before", "small", "train", "last", "best", "thinned")
            ),
            "weights": [
                {k: v for k, v in r.items() if k not in ("before", "after")} for r in answers["weights"]
            ],
        }  # fmt: skip
    result["analysis"] = {kind: timed[clocks[kind]] for kind in ("fit_growth", "epoch_growth")}
    result["run"] = {**asdict(plan), "marks": plan.marks, "first_seed": FIRST_SEED, "version": knotwork.__version__}

    pictures = _pictures(names, plan, out, runs, result, {n: [done[t] for t in questions[n]["weights"]] for n in names},
                         progress)  # fmt: skip
    with atomic_file(out / "results.json") as fresh:
        fresh.write_text(json.dumps(result, indent=1), encoding="utf-8")
    write_report(out / "report.md", result, names, plan, pictures)
    return result


def _pictures(
    names: Sequence[str], plan: Plan, out: Path, runs: dict[str, Runs], result: Record,
    weights: dict[str, list[Record]], progress: Progress,
) -> dict[str, Path]:  # fmt: skip
    """Draw everything; return the PNG of each picture by its name. The SVG lies next to it."""
    todo: dict[str, Callable[[Path], list[Path]]] = {}
    for n in names:
        todo[f"loss-{n}"] = partial(figures.loss_curves, data=n, runs=runs[n], epochs=plan.epochs)
        todo[f"variants-{n}"] = partial(figures.variant_curves, data=n, runs=runs[n], epochs=plan.epochs)
        todo[f"weights-{n}"] = partial(figures.weight_matrices, data=n, records=weights[n])
        todo[f"fewer-rows-{n}"] = partial(figures.fewer_rows, data=n, table=result[n]["fewer_rows"])
        todo[f"sparsity-{n}"] = partial(figures.sparsity, data=n, table=result[n]["sparsity"])
    todo["fit-time"] = partial(figures.fit_growth, record=result["analysis"]["fit_growth"])
    todo["epoch-time"] = partial(figures.epoch_growth, record=result["analysis"]["epoch_growth"])
    todo["structure"] = partial(drawings.structure, data=names[0])
    todo["worked-example"] = partial(drawings.worked_example, data=names[0])
    made: dict[str, Path] = {}
    with progress("drawing", len(todo)) as advance:
        for name, paint in todo.items():
            made[name] = paint(out / name)[0]
            advance(False)
    return made


def known(which: str) -> tuple[str, ...]:
    """Return the data sets behind a name: ``all``, or one of them.

    >>> known("all")
    ('abalone', 'wine')
    """
    return tuple(SUBJECTS) if which == "all" else (which,)
