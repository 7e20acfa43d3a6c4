"""The text a statistician expects after a fit."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from rich.console import Console
from rich.table import Table

from knotwork.arrays import Floats
from knotwork.data.limits import Limits
from knotwork.data.links import link_named
from knotwork.data.table import TableEncoder
from knotwork.printable import printable
from knotwork.spline.degree import chosen_degree
from knotwork.spline.likelihood import ClassFit
from knotwork.spline.model import Spline, hinges_of
from knotwork.spline.response import ResponseFit
from knotwork.spline.result import SplineFit

# Classes whose coefficients are shown side by side; more would not fit on a line.
MAX_COLUMNS = 6
# Features, or responses, whose limits are named.
MAX_HELD = 8


def summarise(fit: SplineFit, encoder: TableEncoder) -> str:
    """Return the terms with coefficients and costs, the quality, and how the forward pass ended."""
    outputs = fit.spline.intercept.size
    headers = ["coefficient"] if outputs == 1 else [f"coef y{k}" for k in range(outputs)]
    q = fit.quality
    quality = f"GCV {q.gcv:.6g}   RSS {q.rss:.6g}   GRSq {q.grsq:.4f}   R² {q.rsq:.4f}"
    return _text(fit.spline, fit, encoder, headers, "RSS without it", fit.term_costs, [quality])


def summarise_response(fit: ResponseFit, encoder: TableEncoder) -> str:
    """Return the same for another loss than squared errors: the costs are in deviance, the spline is of the link."""
    loss = fit.loss
    share = f"{1 - fit.deviance / fit.null_deviance:.4f}" if fit.null_deviance > 0 else "nothing to explain"
    about = {"quantile": f" of the quantile {loss.quantile:g}", "tweedie": f" of power {loss.power:g}"}
    quality = [
        f"loss {loss.name}{about.get(loss.name, '')}, the spline is that of {link_named(loss.link, 'y')}",
        f"deviance {fit.deviance:.6g}   of the best constant {fit.null_deviance:.6g}   D² {share}",
        f"GCV {fit.search.quality.gcv:.6g} and R² {fit.search.quality.rsq:.4f} of the working response that found the "
        f"terms",
    ]
    header = "coefficient" if loss.link == "identity" else link_named(loss.link, "y")
    return _text(fit.spline, fit.search, encoder, [header], "deviance without it", fit.term_costs, quality)


def summarise_classes(fit: ClassFit, encoder: TableEncoder, classes: Sequence[str]) -> str:
    """Return the same for logits: the coefficients are those of the classes, the costs are in deviance."""
    headers = [f"log-odds of {classes[1]}"] if len(classes) == 2 else list(classes)
    quality = [
        f"deviance {fit.deviance:.6g}   of the class shares alone {fit.null_deviance:.6g}   "
        f"explained {1 - fit.deviance / fit.null_deviance:.4f}",
        f"{len(classes)} classes, ridge {fit.ridge:g}, R² of the indicators {fit.search.quality.rsq:.4f}",
    ]
    return _text(fit.spline, fit.search, encoder, headers, "deviance without it", fit.term_costs, quality)


def _held(spline: Spline, encoder: TableEncoder) -> str:
    """Say where the numbers in a spline's terms are held; nothing of indicators, which are 0 or 1."""
    assert spline.limits is not None
    numbers = encoder.numbers
    used = sorted({f for term in spline.terms for f in term.features} & set(numbers))
    if not used:
        return ""
    lower, upper = spline.limits.lower, spline.limits.upper
    ranges = [
        f"{printable(spline.feature_names[f])} "
        f"{encoder.value_text(f, float(lower[f]))} to {encoder.value_text(f, float(upper[f]))}"
        for f in used[:MAX_HELD]
    ]
    return f"Values beyond these limits count as the limits: {', '.join(ranges)}{_more(len(used))}."


def _clipped(limits: Limits) -> str:
    """Say between which values the prediction of each response is clipped."""
    ranges = [f"{low:.6g} to {high:.6g}" for low, high in zip(*limits.sides(), strict=True)][:MAX_HELD]
    if len(limits) > 1:
        ranges = [f"y{k} {text}" for k, text in enumerate(ranges)]
    return f"Predictions are clipped to these limits: {', '.join(ranges)}{_more(len(limits))}."


def _more(count: int) -> str:
    return f" and {count - MAX_HELD} more" if count > MAX_HELD else ""


def _text(
    spline: Spline,
    search: SplineFit,
    encoder: TableEncoder,
    headers: Sequence[str],
    cost_header: str,
    costs: Floats,
    quality: Sequence[str],
) -> str:
    table = Table(box=None, pad_edge=False)
    table.add_column("term")
    table.add_column("knot", justify="right")
    several = len(headers) > MAX_COLUMNS
    for header in ["largest coefficient", "of"] if several else headers:
        table.add_column(printable(header), justify="right")
    table.add_column(cost_header, justify="right")

    def cells(betas: Floats) -> list[str]:
        if not several:
            return [f"{b:.6g}" for b in betas]
        largest = int(np.abs(betas).argmax())
        return [f"{betas[largest]:.6g}", printable(headers[largest])]

    table.add_row("(intercept)", "", *cells(spline.intercept), "")
    for text, term, betas, cost in zip(spline.term_texts(), spline.terms, spline.coef, costs, strict=True):
        table.add_row(
            text,
            ", ".join(encoder.value_text(h.feature, h.knot) for h in hinges_of(term)) or "linear",
            *cells(betas),
            f"+{cost:.4g}",
        )
    selection = search.selection
    used = {f for t in spline.terms for f in t.features}
    out = io.StringIO()
    # No markup: a feature may well be called "[red]".
    console = Console(file=out, width=120, markup=False, highlight=False, emoji=False)
    console.print(table)
    console.print(
        f"\n{len(spline.terms) + 1} of {len(selection.forward_terms) + 1} terms kept (with the intercept), "
        f"{len(used)} of {len(spline.feature_names)} features used"
    )
    for line in quality:
        console.print(line)
    console.print(
        f"{selection.observations:g} observations, penalty {selection.penalty:g}, "
        f"minspan {selection.spans.minspan}, endspan {selection.spans.endspan}"
    )
    if spline.limits is not None and (held := _held(spline, encoder)):
        console.print(held)
    if spline.output_limits is not None:
        console.print(_clipped(spline.output_limits))
    # Earlier versions chose by GCV.
    if scores := selection.held_out_by_degree or selection.gcv_by_degree:
        tried = ", ".join(f"{score:.4g} (degree {k})" for k, score in enumerate(scores, start=1))
        by = "the mean loss of held-out rows" if selection.held_out_by_degree else "GCV"
        console.print(f"Degree {chosen_degree(scores)} was chosen by {by}: {tried}; a higher degree must gain 1 %.")
    console.print(f"The forward pass stopped because {selection.stopped}.")
    for note in encoder.notes(used):
        console.print(printable(note), soft_wrap=True)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
