"""The ``knotwork`` command."""

from __future__ import annotations

import typer

from knotwork.commands import demo, reproduce

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__, rich_markup_mode=None)


@app.callback()
def main() -> None:
    """Fit piecewise-linear splines and start neural networks from them."""


app.command()(demo.demo)
app.command()(reproduce.reproduce)
