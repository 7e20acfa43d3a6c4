"""The ``knotwork`` command: its options, its exit codes, how it reports errors.

Exit codes: 0 when all went well, 2 when the input or the options cannot be used (a sentence on stderr says why, or
one for each column), 130 when interrupted; 1 is a bug in knotwork and comes with its traceback. A reader that stops
early (``… | head``) is no error. Results go to stdout, everything else to stderr, so that the output of ``--json`` is
nothing but JSON. Names and labels are shown with their control characters escaped.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from knotwork import __version__
from knotwork.commands import demo, export, fit, predict, report, reproduce
from knotwork.errors import ColumnsError, KnotworkError
from knotwork.printable import printable

UNUSABLE = 2


class Commands(TyperGroup):
    """The commands; an error of knotwork is one sentence rather than a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        _open_output()
        with plain_warnings():
            try:
                result = super().invoke(ctx)
                sys.stdout.flush()  # a reader that has gone is noticed here, not while Python ends
                return result
            except ColumnsError as error:
                raise _refused(*error.args) from None
            except KnotworkError as error:
                raise _refused(str(error)) from None
            except (BrokenPipeError, SystemExit) as error:
                # The reader of our output has seen enough, as head has after ten lines; rich then exits with 1.
                if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
                    raise
                _close_output()
                raise typer.Exit from None
            except OSError as error:
                raise _refused(f"{error.filename or 'a file'} cannot be used: {error.strerror or error}") from None
            except MemoryError as error:
                raise _refused(f"this needs more memory than there is ({error or 'it is full'}); {_SMALLER}") from None
            except RuntimeError as error:  # what torch raises for want of memory
                if "allocate memory" not in str(error):
                    raise
                raise _refused(f"the network needs more memory than there is; {_SMALLER}") from None


_SMALLER = "pass fewer rows or columns, or ask for a smaller model"


def _refused(*sentences: str) -> typer.Exit:
    for sentence in sentences:
        typer.echo(f"knotwork: {printable(sentence)}", err=True)
    return typer.Exit(UNUSABLE)


def _open_output() -> None:
    """Let output go nowhere where there is none (``>&-``): Python has None there, and prints notes to the other one."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


def _close_output() -> None:
    """Let what is still to be written go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # not a stream of the system
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show each warning once, as a sentence on stderr, without the line of our code that gave it."""
    said: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        sentence = printable(message)
        if sentence not in said:
            said.add(sentence)
            print(f"note: {sentence}", file=sys.stderr)

    shown = warnings.showwarning
    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = shown


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 100},
    epilog="Example: knotwork fit data.csv --target y --out model",
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


# In the order in which help lists them, each with the example that ends its help.
COMMANDS = (
    (demo.demo, "knotwork demo"),
    (fit.fit, "knotwork fit data.csv --target y --hidden 64,64 --out model"),
    (predict.predict, "knotwork predict model new.csv --id customer --out predictions.csv"),
    (export.export, "knotwork export model --out model.onnx"),
    (report.report, "knotwork report model data.csv --target y"),
    (reproduce.reproduce, "knotwork reproduce all --quick"),
)
for command, example in COMMANDS:
    app.command(epilog=f"Example: {example}")(command)
