"""The text a statistician expects after a fit."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from knotwork.spline.fit import SplineFit
from knotwork.spline.model import Hinge


def summarise(fit: SplineFit) -> str:
    """Return the terms with coefficients and costs, the quality, and how the forward pass ended."""
    spline = fit.spline
    outputs = spline.intercept.size
    table = Table(box=None, pad_edge=False)
    table.add_column("term")
    table.add_column("knot", justify="right")
    for k in range(outputs):
        table.add_column("coefficient" if outputs == 1 else f"coef y{k}", justify="right")
    table.add_column("RSS without it", justify="right")
    table.add_row("(intercept)", "", *(f"{b:.6g}" for b in spline.intercept), "")
    for term, betas, cost in zip(spline.terms, spline.coef, fit.term_costs, strict=True):
        table.add_row(
            term.describe(spline.feature_names),
            f"{term.knot:.6g}" if isinstance(term, Hinge) else "linear",
            *(f"{b:.6g}" for b in betas),
            f"+{cost:.4g}",
        )
    used = len({f for t in spline.terms for f in t.features})
    out = io.StringIO()
    # No markup: a feature may well be called "[red]".
    console = Console(file=out, width=120, markup=False, highlight=False, emoji=False)
    console.print(table)
    console.print(
        f"\n{len(spline.terms) + 1} of {len(fit.forward_terms) + 1} terms kept (with the intercept), "
        f"{used} of {len(spline.feature_names)} features used"
    )
    console.print(f"GCV {fit.gcv:.6g}   RSS {fit.rss:.6g}   GRSq {fit.grsq:.4f}   R² {fit.rsq:.4f}")
    console.print(
        f"{fit.total:g} observations, penalty {fit.penalty:g}, minspan {fit.spans.minspan}, endspan {fit.spans.endspan}"
    )
    console.print(f"The forward pass stopped because {fit.stopped}.")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
