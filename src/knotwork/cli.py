"""The ``knotwork`` command: its options, its exit codes, how it reports errors.

Exit codes: 0 when all went well, 2 when the input or the options cannot be used (one sentence on stderr says why),
130 when interrupted; 1 is a bug in knotwork and comes with its traceback. Results go to stdout, everything else to
stderr, so that the output of ``--json`` is nothing but JSON.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from knotwork import __version__
from knotwork.commands import demo, export, fit, predict, report, reproduce
from knotwork.errors import KnotworkError

UNUSABLE = 2


class Commands(TyperGroup):
    """The commands; an error of knotwork is one sentence rather than a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with plain_warnings():
            try:
                return super().invoke(ctx)
            except KnotworkError as error:
                typer.echo(f"knotwork: {error}", err=True)
                raise typer.Exit(UNUSABLE) from None
            except BrokenPipeError:  # the reader of our output has seen enough
                raise
            except OSError as error:
                typer.echo(
                    f"knotwork: {error.filename or 'a file'} cannot be used: {error.strerror or error}", err=True
                )
                raise typer.Exit(UNUSABLE) from None


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings as a sentence on stderr, without the line of our code that gave them."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"note: {message}", file=sys.stderr)

    shown = warnings.showwarning
    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = shown


app = typer.Typer(
    cls=Commands, no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"knotwork {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Fit piecewise-linear splines and start neural networks from them."""


# In the order in which help lists them.
app.command()(demo.demo)
app.command()(fit.fit)
app.command()(predict.predict)
app.command()(export.export)
app.command()(report.report)
app.command()(reproduce.reproduce)
