"""The written report: every table and picture, the published figures next to ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from knotwork.atomic import atomic_file
from knotwork.experiments.evidence import doubts
from knotwork.experiments.figures import slope
from knotwork.experiments.markdown import number, spread, table
from knotwork.experiments.protocol import FIRST_SEED, PAPER, PUBLISHED, SUBJECTS, TRAIN_SHARE, VALIDATION_SHARE, Plan

Record = dict[str, Any]
START_NAMES = {"converted": "converted, random fill (ours)", "hinge fill": "converted, hinge fill",
               "zero fill": "converted, zero fill (published)", "random": "random start",
               "converted, light decay": "converted, little weight decay",
               "random, light decay": "random start, little weight decay"}  # fmt: skip


def write_report(path: Path, result: Record, names: Sequence[str], plan: Plan, pictures: dict[str, Path]) -> None:
    """Write the report; pictures are PNG files of the same folder, by name."""
    parts = [_opening(result, names, plan)]
    for name in names:
        title = SUBJECTS[name].title
        parts += [
            f"## {title}",
            errors_table(name, result[name], plan),
            targets(result[name]),
            _picture(pictures, f"loss-{name}", f"{title}: loss curves of both networks"),
            "### What the published figures would mean",
            _doubts_text(name, result[name]),
            strong_models_table(name, result[name]),
            "### Both scalings",
            scalings_table(name, result[name]),
            "### Step 3 in its variants",
            variants_table(result[name], plan),
            _picture(pictures, f"variants-{name}", f"{title}: ways to fill new units"),
            "### Time",
            time_table(name, result[name]),
            "### Hidden weights before and after training",
            weights_table(result[name]),
            _picture(pictures, f"weights-{name}", f"{title}: weights of the first hidden layer"),
            "### Epochs that a random start needs for the spline's error",
            _catching_up_text(result[name], plan),
            "### Where training begins",
            beginning_table(result[name]),
            "### Overfitting",
            overfitting_table(result[name], plan),
            "### The spline on fewer rows, and on rows of its own",
            fewer_rows_table(result[name], plan),
            _picture(pictures, f"fewer-rows-{name}", f"{title}: fewer rows"),
            "### L1 and dropout against L2",
            sparsity_table(result[name], plan),
            _picture(pictures, f"sparsity-{name}", f"{title}: sparsity and error"),
        ]
    parts += [
        "## How the cost grows",
        growth_text(result["analysis"]),
        _picture(pictures, "fit-time", "Time of a spline fit"),
        _picture(pictures, "epoch-time", "Time of an epoch"),
        "## The drawings",
        _picture(pictures, "structure", "Structure of the converted layers"),
        _picture(pictures, "worked-example", "A worked example"),
        "## Files",
        _files(path, pictures),
    ]
    with atomic_file(path) as fresh:
        fresh.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _picture(pictures: dict[str, Path], name: str, title: str) -> str:
    return f"![{title}]({pictures[name].name})"


def _files(path: Path, pictures: dict[str, Path]) -> str:
    lines = [f"- [{path.name}]({path.name}): this report", "- [results.json](results.json): every figure of it"]
    for picture in pictures.values():
        svg = picture.with_suffix(".svg").name
        lines.append(f"- [{picture.name}]({picture.name}), [{svg}]({svg})")
    lines.append("- runs/: one file per finished run; the same command goes on from them")
    return "\n".join(lines)


def _opening(result: Record, names: Sequence[str], plan: Plan) -> str:
    titles = " and ".join(SUBJECTS[n].title for n in names)
    rates = ", ".join(f"{rate:g}" for rate in plan.rates)
    choice = f"Both use the learning rate {rates}."
    if len(plan.rates) > 1:
        choice = (
            f"Every start of every seed chooses its learning rate from {rates} on the validation rows, once for each "
            f"number of epochs."
        )
    return "\n\n".join([
        "# The published experiments, run again",
        f"{PAPER}, on {titles}.",
        f"{plan.seeds} seeds from {FIRST_SEED} on, {plan.epochs} epochs, networks of "
        f"{' × '.join(map(str, plan.widths))} units. Each seed shuffles the rows and splits them {TRAIN_SHARE:.0%} to "
        f"{1 - TRAIN_SHARE:.0%}; of the training rows {VALIDATION_SHARE:.0%} are held out, and neither the spline nor "
        f"the networks are fitted to those. Errors are mean squared errors on test rows, y scaled to [0, 1], means "
        f"over seeds. The random start is PyTorch's own initialisation.",
        f"All networks are trained by the library's own loop (AdamW, batches of {plan.batch_size}, weight decay "
        f"{plan.weight_decay:g}, {plan.warmup} epochs of warm-up, averaged weights), to the end. An epoch that leaves "
        f"the validation error {plan.setback:.0%} above the best is undone, and the rate halved, for both starts. "
        f"{choice} These settings were tried out on other seeds; the weight decay is about the one with which the "
        f"random start, too, ends lowest on both sets. In a short training a random start does better with less: the "
        f"comparison with one of {plan.light_decay:g} stands below. "
        f'"Last" is the error after exactly so many epochs, "best" that of the best epoch on the validation rows up '
        f"to there.",
    ])  # fmt: skip


def errors_table(data: str, result: Record, plan: Plan) -> str:
    """Published and own errors, with the ratio converted/random in both."""
    published = PUBLISHED[data]
    rows = []
    moments = [("before training", published["before"], result["before"])]
    for mark in sorted({*plan.marks, *map(int, published["after"])}):
        entry = result["after"].get(str(mark))
        moments.append((f"after {mark} epochs, last", published["after"].get(str(mark)), entry))
        if entry is not None:
            moments.append((f"after {mark} epochs, best", None, entry["best"]))
    for name, theirs, ours in moments:
        cells = ["", "", ""]
        if theirs is not None:
            cells = [
                number(theirs["converted"]),
                number(theirs["random"]),
                number(theirs["converted"] / theirs["random"]),
            ]
        if ours is None:
            rows.append([name, *cells, "not run", "not run", "", ""])
            continue
        own = [f"{number(ours[s])} ± {number(ours['spread'][s])}" if ours["spread"][s] is not None else number(ours[s])
               for s in ("converted", "random")]  # fmt: skip
        rows.append([name, *cells, *own, number(ours["ratio"]), spread(ours["difference"])])
    head = ["test MSE", "published converted", "random", "ratio", "ours converted (± sd)", "random (± sd)", "ratio",
            "converted − random, 95 % interval"]  # fmt: skip
    rates = "; ".join(
        f"at {mark} epochs converted {_counts(e['rates']['converted'])}, random {_counts(e['rates']['random'])}"
        for mark, e in result["after"].items()
    )
    note = f"Learning rates chosen (times chosen): {rates}."
    if "random_each" in published["before"]:
        each = ", ".join(f"{v:g}" for v in published["before"]["random_each"])
        note += f" The published random start before training is the mean of {each}."
    return f"{table(head, rows)}\n\n{note}"


def _counts(rates: dict[str, int]) -> str:
    return ", ".join(f"{rate} ({count})" for rate, count in rates.items())


def targets(result: Record) -> str:
    """Say plainly what holds and what does not."""
    ratio, of_pairs = result["before"]["ratio"], result["before"]["ratio_of_pairs"]["mean"]
    seconds = result["seconds"]
    share = seconds["spline"] / seconds["epoch_converted"]
    lines = [
        f"- Before training the converted network has 1/{1 / ratio:.1f} of the random one's error "
        f"({'at most' if ratio <= 1 / 12 else 'more than'} 1/12; the mean of the seeds' own ratios is "
        f"1/{1 / of_pairs:.1f}).",
        *(f"- After {mark} epochs: {_verdict(entry['difference'])} (last); "
          f"{_verdict(entry['best']['difference'])} (best)."
          for mark, entry in result["after"].items()),
        f"- The spline costs {share:.2f} of an epoch ({'at most' if share <= 0.5 else 'more than'} half of one); "
        f"making the "
        f"network from it costs {seconds['construct'] / seconds['epoch_converted']:.2f} of one.",
    ]  # fmt: skip
    lines += [
        f"- Against a random start with little weight decay (fewer seeds), after {mark} epochs: "
        f"{_verdict(entry['last']['difference'])} (last); {_verdict(entry['best']['difference'])} (best)."
        for mark, entry in result["random_light_decay"].items()
    ]
    return "\n".join(lines)


def _verdict(difference: Record) -> str:
    if difference["low"] is None:
        return f"difference {number(difference['mean'])}, one seed, no interval"
    if difference["high"] < 0:
        return f"the converted network is better, by {spread(difference)}"
    if difference["low"] > 0:
        return f"the random start is better, by {spread(difference)}"
    return f"no difference that these seeds can tell, {spread(difference)}"


def _doubts_text(data: str, result: Record) -> str:
    sentences = doubts(data, result)
    if not sentences:
        return "Every published error is within what the data allow."
    return "These do not fit the data as described:\n\n" + "\n".join(f"- {s}" for s in sentences)


def strong_models_table(data: str, result: Record) -> str:
    """How low an error the data allow."""
    strong = result["strong_models"]
    rows = [[n, spread(e["mse"]), spread(e["rmse_in_units"]), number(e["mse_fresh"]["mean"])]
            for n, e in strong["models"].items()]  # fmt: skip
    text = table(["model", "test MSE", f"root of it, {SUBJECTS[data].unit}", "test MSE without copies"], rows)
    return (
        f"{text}\n\n{strong['share_of_copies']:.1%} of the test rows are exact copies of a training row; the last "
        f"column "
        f"leaves them out."
    )


def scalings_table(data: str, result: Record) -> str:
    """Min-max and z-score next to each other."""
    unit = SUBJECTS[data].unit
    rows = []
    for scaling, name in (("minmax", "min-max"), ("zscore", "z-score")):
        for epoch, entry in result["scalings"].get(scaling, {}).items():
            c, r = entry["converted"], entry["random"]
            rows.append([f"{name}, epoch {epoch}", number(c["mse"]), number(r["mse"]), number(c["mse"] / r["mse"]),
                         f"{c['rmse_in_units']:.3f}", f"{r['rmse_in_units']:.3f}"])  # fmt: skip
    text = table(["scaling", "converted", "random", "ratio", f"converted, {unit}", f"random, {unit}"], rows)
    return (
        f"{text}\n\nThe ratio before training says as much about the scaling as about the start: y scaled to [0, 1] "
        f"has a "
        f"mean far from zero, which a random network does not know. Errors in {unit} can be compared across scalings."
    )


def variants_table(result: Record, plan: Plan) -> str:
    """Ways to fill new units."""
    rows = [[START_NAMES[s], spread(e["before"]), *(spread(e["after"][str(m)]) for m in plan.marks), spread(e["best"])]
            for s, e in result["variants"].items()]  # fmt: skip
    seeds = next(iter(result["variants"].values()))["seeds"]
    head = ["start", "before", *(f"after {m}" for m in plan.marks), f"best of {plan.marks[-1]}"]
    return f"{table(head, rows)}\n\nTest MSE, {seeds} seed{'s' if seeds > 1 else ''}."


def time_table(data: str, result: Record) -> str:
    """Seconds, published and ours."""
    published, ours = PUBLISHED[data]["seconds"], result["seconds"]
    names = {"spline": "spline", "construct": "making the converted network", "epoch_converted": "epoch, converted",
             "epoch_random": "epoch, random"}  # fmt: skip
    rows = [[label, number(published.get(key)), number(ours[key])] for key, label in names.items()]
    rows.append(["spline / epoch", number(published["spline"] / published["epoch_converted"]),
                 number(ours["spline"] / ours["epoch_converted"])])  # fmt: skip
    return (
        f"{table(['seconds', 'published', 'ours'], rows)}\n\nOurs: one thread, {ours['rows']} training rows, "
        f"{ours['terms']} terms, minimum of several repeats. Claimed: the spline costs less than two epochs."
    )


def weights_table(result: Record) -> str:
    """How far the hidden weights moved."""
    rows = [[START_NAMES[r["start"]], *(f"{s:.1%}" for s in r["shift"]),
             *(f"{r[k]:.1%}" if r[k] is not None else "" for k in ("own_shift", "new_shift"))]
            for r in result["weights"]]  # fmt: skip
    layers = len(result["weights"][0]["shift"])
    head = [
        "‖after − before‖ / ‖before‖",
        *(f"layer {k + 1}" for k in range(layers)),
        "the spline's units",
        "new units",
    ]
    return f"{table(head, rows)}\n\nThe last two columns are of layer 1."


def _catching_up_text(result: Record, plan: Plan) -> str:
    c = result["catching_up"]
    found = ", ".join("never" if e is None else str(e) for e in c["epochs"])
    median = "none got there" if c["median"] is None else f"median {c['median']:g}"
    return (
        f"Each seed at the learning rate that gets there first: {found} ({median}, {c['never']} of {len(c['epochs'])} "
        f"not "
        f"within {plan.epochs} epochs). Claimed: M² = {c['claimed']:.0f} with M = {c['terms']:.1f} terms."
    )


def beginning_table(result: Record) -> str:
    """Loss and gradient before the first step."""
    rows = [[START_NAMES[s], spread(e["loss"]), spread(e["gradient_norm"])] for s, e in result["beginning"].items()]
    return table(["start", "training loss", "norm of its gradient"], rows)


def overfitting_table(result: Record, plan: Plan) -> str:
    """Training and test errors and the gap between them."""
    rows = [[f"{START_NAMES[s]}, epoch {m}", number(e[str(m)]["train"]), number(e[str(m)]["test"]),
             spread(e[str(m)]["gap"])]
            for s, e in result["overfitting"].items() for m in (0, *plan.marks)]  # fmt: skip
    text = table(["", "training MSE", "test MSE", "gap"], rows)
    copies = result["overfitting"]["converted"]["copies"]
    if copies["copied"] is not None:
        parts = "; ".join(
            f"{s} {number(e['copies']['copied'])} on copies, {number(e['copies']['fresh'])} on the others"
            for s, e in result["overfitting"].items()
        )
        text += (
            f"\n\nOn average {copies['rows']:.0f} test rows are copies of training rows, which rewards memorising. "
            f"Test "
            f"MSE after {plan.epochs} epochs: {parts}."
        )
    return text


def fewer_rows_table(result: Record, plan: Plan) -> str:
    """Splines on parts of the rows."""
    rows = [[f"{p['share']:.0%}", "the other rows" if p["exclusive"] else "all rows", number(p["terms"]["mean"]),
             spread(p["spline"]), spread(p["last"]), spread(p["best"])] for p in result["fewer_rows"]]  # fmt: skip
    head = ["spline fitted to", "network trains on", "terms", "spline's test MSE",
            f"network after {plan.analysis_epochs}", "network, best"]  # fmt: skip
    return table(head, rows)


def sparsity_table(result: Record, plan: Plan) -> str:
    """Penalties."""
    rows = [[p["penalty"], f"{p['small']['mean']:.0%}", number(p["train"]["mean"]), spread(p["last"]),
             spread(p["best"]), number(p["thinned"]["mean"])] for p in result["sparsity"]]  # fmt: skip
    head = ["penalty", "small weights", "training MSE", f"test MSE after {plan.analysis_epochs}", "best",
            "after, small weights left out"]  # fmt: skip
    before = result["sparsity"][0]["small_before"]["mean"]
    return (
        f"{table(head, rows)}\n\nA weight is small below 1 % of its layer's largest; before training {before:.0%} are. "
        f"L2 is "
        f"AdamW's decoupled decay, L1 and L2 are on the scale of the standardised loss."
    )


def growth_text(analysis: Record) -> str:
    """Slopes of the log-log lines: measured, and by both formulas."""
    from knotwork.experiments.clock import our_cost, published_cost

    rows = []
    for name, label in (("n", "rows N"), ("d", "features d"), ("m", "terms M")):
        points = analysis["fit_growth"][name]
        n, d, m, k, took = (np.array([float(p[key]) for p in points]) for key in ("n", "d", "m", "k", "seconds"))
        x = {"n": n, "d": d, "m": m}[name]
        rows.append([f"{label}, {x[0]:g} to {x[-1]:g}", number(slope(x, published_cost(n, d, m))),
                     number(slope(x, our_cost(n, d, m, k))), number(slope(x, took)),
                     f"{1000 * took[0]:.1f} to {1000 * took[-1]:.1f} ms"])  # fmt: skip
    fit = table(
        ["spline fit: exponent in", "published N(d·M³ + M⁴)", "ours N·d·M + d·K·M² + M³", "measured", "time"], rows
    )
    rows = []
    for name, label in (("n", "rows N"), ("weights", "Σ aᵢ·aᵢ₊₁")):
        points = analysis["epoch_growth"][name]
        sizes, times = [p[name] for p in points], [p["seconds"] for p in points]
        rows.append([f"{label}, {sizes[0]:,} to {sizes[-1]:,}", "1", number(slope(sizes, times)),
                     f"{1000 * times[0]:.1f} to {1000 * times[-1]:.1f} ms"])  # fmt: skip
    epoch = table(["epoch: exponent in", "published m·N·Σ aᵢ·aᵢ₊₁", "measured", "time"], rows)
    return (
        f"{fit}\n\n{epoch}\n\nExponents are slopes of log time against log size. Below 1: a fixed cost (of a call, of "
        f"a "
        f"step) still dominates at the small end."
    )
