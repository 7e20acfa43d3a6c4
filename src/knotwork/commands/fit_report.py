"""What ``knotwork fit`` says about a model: errors, formula, training; as values for JSON and as text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.columns.skipped import Skipped
from knotwork.data.links import LINKS, link_named
from knotwork.data.losses import SQUARED_ERROR
from knotwork.explanation.usage import reached
from knotwork.network.resolve import Resolved, resolve
from knotwork.printable import printable

if TYPE_CHECKING:
    import pandas as pd

    from knotwork.data.column_selection import ColumnSelection, Task


# Lines of the formula that a network starts from: several members have dozens of terms together.
MAX_LINES = 13


def errors(model: Any, X: pd.DataFrame, y: Any, y_train: Any, task: Task) -> dict[str, float | None]:
    """Return the errors on some rows, and that of the best constant."""
    predicted = model.predict(X)
    if task == "classification":
        values, counts = np.unique(y_train, return_counts=True)
        shares = model.predict_proba(X)
        return {
            "accuracy": float(np.mean(predicted == y)),
            "accuracy_of_the_majority_class": float(np.mean(y == values[counts.argmax()])),
            "log_loss": _log_loss(y, model.classes_, shares),
            "log_loss_of_the_class_shares": _log_loss(y, values, np.tile(counts / counts.sum(), (len(y), 1))),
            "auc": _auc(y, model.classes_, shares),
        }
    loss = getattr(model, "loss_", SQUARED_ERROR)
    if loss.name != "squared_error":
        eta, best = LINKS[loss.link][0](predicted), loss.constant(np.asarray(y_train, dtype=np.float64))
        found = loss.error(eta, y)
        of_constant = loss.error(np.full(len(y), best), y)
        return {
            "loss": found,
            "loss_of_the_best_constant": of_constant,
            "d2": 1 - found / of_constant if of_constant > 0 else 0.0,
            "mae": float(np.mean(np.abs(predicted - y))),
        }
    rmse = float(np.sqrt(np.mean((predicted - y) ** 2)))
    constant = float(np.sqrt(np.mean((y_train.mean() - y) ** 2)))
    return {
        "rmse": rmse,
        "mae": float(np.mean(np.abs(predicted - y))),
        "r2": 1 - (rmse / constant) ** 2 if constant > 0 else 0.0,
        "rmse_of_the_mean": constant,
    }


def _log_loss(y: Any, classes: Any, shares: Floats) -> float:
    """Return the mean of −log of the probability of each row's class; at most 36, also for a class never trained on."""
    found = np.where(np.asarray(y)[:, None] == np.asarray(classes), shares, 0.0).sum(axis=1)
    return float(-np.log(np.maximum(found, np.finfo(float).eps)).mean())


def _auc(y: Any, classes: Any, shares: Floats) -> float | None:
    """Return the area under the ROC curve of the second of two classes; the mean over classes if there are more.

    Classes that these rows lack, or that all of them have, do not count; None if none is left.
    """
    from sklearn.metrics import roc_auc_score

    found = []
    for k, name in enumerate(classes):
        is_it = np.asarray(y) == name
        if is_it.any() and not is_it.all() and (k == 1 or len(classes) > 2):
            found.append(roc_auc_score(is_it, shares[:, k]))
    return float(np.mean(found)) if found else None


def column_uses(model: Any, selection: ColumnSelection) -> dict[str, Any]:
    """Return the columns that the model can use, and those left out before the fit or by it, each with its reason."""
    encoder = resolve(model).encoder
    assert encoder is not None  # the command fits tables
    by_fit = {column.name: column.reason for column in encoder.columns if isinstance(column, Skipped)}
    return {
        "used": [name for name in selection.features if name not in by_fit],
        "left_out": selection.left_out | by_fit,
    }


def describe(model: Any, target: str) -> dict[str, Any]:
    """Return what was fitted: a formula for each output, and for a network its layers and training."""
    parts = resolve(model)
    spline = parts.spline
    assert spline is not None  # the command offers no random start
    used = {f for term in spline.terms for f in term.features}
    if parts.network is not None:
        used = set(np.flatnonzero(reached(parts.network)).tolist())
    described: dict[str, Any] = {
        "kind": parts.kind,
        "features": list(spline.feature_names),
        "encoding": [] if parts.encoder is None else list(parts.encoder.notes(used, skipped=False)),
        "formulas": {
            label: str(
                replace(
                    spline, intercept=spline.intercept[[k]], coef=spline.coef[:, [k]], limits=None, output_limits=None
                )
            )
            for k, label in enumerate(_outputs(parts, target))
        },
        "held": spline.limits is not None,
        "prediction_limits": None
        if spline.output_limits is None
        else [float(spline.output_limits.lower[0]), float(spline.output_limits.upper[0])],
        "intercept": spline.intercept.tolist(),
        "terms": [
            {"term": term.describe(spline.feature_names), "coef": betas.tolist()}
            for term, betas in zip(spline.terms, spline.coef, strict=True)
        ],
    }
    if parts.loss is not None:
        described["loss"] = {
            "name": parts.loss.error_name, "loss": parts.loss.name, "quantile": parts.loss.quantile,
            "power": parts.loss.power, "link": parts.link,
        }  # fmt: skip
    history = parts.history
    if parts.network is not None and history is not None:
        members = len(model.members_)
        described["network"] = {
            "members": members,
            "hidden": [width // members for width in parts.network.widths],  # of each
            "epochs": len(history) - 1,
            "best_epoch": history.best_epoch,
            "validation_loss_of_the_spline": history.validation_loss[0],
            "validation_loss": history.validation_loss[history.best_epoch],
        }
    return described


def _layers(net: dict[str, Any]) -> str:
    """Say what a network consists of: "16 × 8 units", or "8 members of 16 × 8 units each"."""
    units = f"{' × '.join(map(str, net['hidden']))} units"
    return units if net["members"] == 1 else f"{net['members']} members of {units} each"


def _loss_name(report: dict[str, Any]) -> str:
    """Name the loss of the training where it is not that of the errors below."""
    if report["task"] == "classification":
        return " (log-loss)"
    return "" if "loss" in report["model"] else " (squared error)"


def _outputs(parts: Resolved, target: str) -> list[str]:
    """Say what each output of the spline is."""
    classes = parts.classes
    if classes is None:
        return [link_named(parts.link, target)]
    if len(classes) == 2:
        return [f"log-odds of {target} = {classes[1]}"]
    return [f"centred logit of {target} = {label}" for label in classes]


def print_report(report: dict[str, Any]) -> None:
    """Print a report for people."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, emoji=False)

    def line(label: str, text: str) -> None:
        console.print(f"[bold]{label:9s}[/]", end="")
        # Names may well contain what looks like markup, or what steers a terminal.
        console.print(printable(text), markup=False)

    rows, columns, model = report["rows"], report["columns"], report["model"]
    count = len(columns["used"]) + len(columns["left_out"]) + 1
    line("read", f"{report['file']}: {rows['read']} rows, {count} columns ({report['read_as']})")
    line("target", f"{report['target']}; task: {report['task']}, because {report['task_because']}")
    line("features", ", ".join(columns["used"]))
    for name, reason in columns["left_out"].items():
        line("left out", f"{name}: {reason}")
    for note in report["notes"]:
        line("note", note)
    line("fit", f"{model['kind']}, {rows['train']} rows, {report['seconds']:.2f} s")
    if "network" in model:
        net = model["network"]
        line(
            "",
            f"{_layers(net)}, {net['epochs']} epochs, epoch {net['best_epoch']} kept; "
            f"validation loss{_loss_name(report)} {net['validation_loss_of_the_spline']:.4g} of the spline, "
            f"{net['validation_loss']:.4g} of the network",
        )
    for part, words in (("test", "held-out rows"), ("train", "training rows")):
        if part in report["error"]:
            line("error", f"{_error_words(report['error'][part], model.get('loss'))} on {rows[part]} {words}")
    start = ""
    if "network" in model:
        several = model["network"]["members"] > 1
        start = "the mean of the splines they start from:" if several else "the spline it starts from:"
    line("formula", f"{start} h(u) = max(0, u)".strip())
    for label, formula in model["formulas"].items():
        shown = _beginning(formula) if "network" in model else formula
        console.print(f"\n{printable(label)} ≈ {shown}", markup=False)
    console.print()
    if model["held"]:
        line("", "a value beyond its column's limits counts as the limit (the training range without outliers)")
    if model["prediction_limits"] is not None:
        low, high = model["prediction_limits"]
        line("", f"the prediction is clipped to the range {low:.6g} to {high:.6g}")
    for note in model["encoding"]:
        line("", note)
    if report["saved"] is None:
        line("saved", "nothing; pass --out model to save the model")
    else:
        line("saved", f"{report['saved']}; use it: knotwork predict {report['saved']} new.csv")


def _beginning(formula: str) -> str:
    """Return the first lines of a formula, and how many terms follow.

    >>> _beginning("\\n".join(["1.5", *(f"  + {k}·x" for k in range(20))])).splitlines()[-2:]
    ['  + 11·x', '… and 8 more terms: kw.load(model).spline_ has them']
    """
    lines = formula.splitlines()
    if len(lines) <= MAX_LINES:
        return formula
    return "\n".join(
        [*lines[:MAX_LINES], f"… and {len(lines) - MAX_LINES} more terms: kw.load(model).spline_ has them"]
    )


def _error_words(error: dict[str, float], loss: dict[str, Any] | None = None) -> str:
    if loss is not None:
        return (
            f"{loss['name']} {_figure(error['loss'])} (best constant: "
            f"{_figure(error['loss_of_the_best_constant'])}), mean absolute error {_figure(error['mae'])}, "
            f"D² {error['d2']:.3f}"
        )
    if "accuracy" in error:
        majority = error["accuracy_of_the_majority_class"]
        auc = "" if error["auc"] is None else f", AUC {error['auc']:.3f}"
        return (
            f"{100 * error['accuracy']:.1f} % right (majority class: {100 * majority:.1f} %), log-loss "
            f"{error['log_loss']:.4g} (predicting the class shares: {error['log_loss_of_the_class_shares']:.4g}){auc}"
        )
    return (
        f"RMSE {_figure(error['rmse'])} (predicting the mean: {_figure(error['rmse_of_the_mean'])}), "
        f"mean absolute error {_figure(error['mae'])}, R² {error['r2']:.3f}"
    )


def _figure(value: float) -> str:
    """Write an error with four digits, large ones as whole numbers: 26390, not 2.639e+04."""
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
