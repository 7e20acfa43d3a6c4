"""The ``knotwork`` command."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, rich_markup_mode=None)


@app.callback()
def main() -> None:
    """Fit piecewise-linear splines and start neural networks from them."""


@app.command()
def demo(
    compat: Annotated[bool, typer.Option("--earth", help="Follow R's earth term for term.")] = False,
) -> None:
    """Fit the Abalone data and print the spline."""
    import knotwork as kw

    console = Console(highlight=False)
    X, y = kw.datasets.load_abalone()
    console.print(f"[bold]Abalone[/]: the age of {len(X)} shellfish in rings, from their sex and seven measurements.")
    console.print("Fitting a spline (the first run on a machine compiles for a few seconds) …")
    model = kw.MarsRegressor(compat="earth" if compat else None).fit(X, y)
    start = time.perf_counter()
    model.fit(X, y)
    elapsed = time.perf_counter() - start
    console.print(f"Fitted in [bold]{1000 * elapsed:.1f} ms[/].\n")
    console.print(model.summary(), markup=False)
    console.print("\n[bold]The age of an abalone, in rings:[/]\n")
    console.print(str(model.spline_), markup=False)
    ranked = sorted(zip(model.feature_importances_, X.columns, strict=True), reverse=True)
    console.print("\n[bold]What it depends on[/] (rise in error without the column)\n")
    for share, name in ranked:
        console.print(f"  {name:16s} {100 * share:5.1f} %  {'█' * round(40 * share)}", markup=False)
    knot = model.knots_[0]
    name = model.spline_.feature_names[knot.feature]
    console.print(
        f"\nEvery knot is a value of the data: {name} = {knot.value:g} is that of {knot.count} shellfish, "
        f"rows {', '.join(map(str, knot.rows[:5]))} …"
    )
