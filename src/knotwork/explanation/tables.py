"""An explanation in words and tables: for terminals, for ``print``, and for notebooks."""

from __future__ import annotations

import html
import io
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from knotwork.errors import DataError
from knotwork.printable import printable

if TYPE_CHECKING:
    import pandas as pd

    from knotwork.explanation.explanation import Explanation

MAX_ROWS = 12


def sections(explanation: Explanation) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield what there is to tell: a title and a frame each; what the model or the data do not have is left out."""
    found = explanation.quality
    if not found.empty:
        yield "Quality", found.rename_axis("model")
    with suppress(DataError):
        yield "What matters", explanation.importances.head(MAX_ROWS)
    with suppress(DataError):
        frame = explanation.knots.drop(columns="rows").rename(columns={"count": "rows"})
        yield "Knots", frame.set_index("feature").head(MAX_ROWS)
    if explanation.subject.start is not None and explanation.subject.coordinates is not None:
        inputs = explanation.drift.inputs.sort_values("strength_after", ascending=False, kind="stable").head(MAX_ROWS)
        shown = inputs.rename(columns={"strength_before": "before", "strength_after": "after", "woke_up": "woke up"})
        yield "What training changed: strength of the inputs", shown


def _cell(value: Any) -> str:
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return "yes" if value else ""
    if isinstance(value, str):
        return printable(value)
    if value != value:  # NaN: not known
        return ""
    return f"{float(value):.4g}"


def tables(explanation: Explanation) -> Iterator[Any]:
    """Yield rich tables; names are text, whatever they look like."""
    yield Text(f"{explanation.subject.kind}, explained", style="bold")
    if explanation.subject.link != "identity":
        yield Text(printable(_link_note(explanation.subject.link)))
    for title, frame in sections(explanation):
        table = Table(box=None, pad_edge=False)
        table.add_column(Text(printable(frame.index.name or "")), overflow="ellipsis", no_wrap=True, max_width=40)
        for name in frame.columns:
            table.add_column(Text(printable(name)), justify="right", overflow="ellipsis", max_width=24)
        for label, line in zip(frame.index, frame.itertuples(index=False), strict=True):
            table.add_row(Text(printable(label)), *(Text(_cell(value)) for value in line))
        yield Text(f"\n{title}", style="bold")
        yield table


def _link_note(link: str) -> str:
    """Say on which scale a model is explained."""
    note = f"On the scale of {link}(y)"
    return f"{note}: what adds 0.1 there multiplies the prediction by 1.105." if link == "log" else f"{note}."


def as_text(explanation: Explanation) -> str:
    """Return the tables as plain text."""
    out = io.StringIO()
    console = Console(file=out, width=110, color_system=None, emoji=False)
    for part in tables(explanation):
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def as_html(explanation: Explanation) -> str:
    """Return the tables as HTML, every name escaped."""
    parts = [f"<p><strong>{html.escape(explanation.subject.kind)}</strong>, explained</p>"]
    if explanation.subject.link != "identity":
        parts.append(f"<p>{html.escape(_link_note(explanation.subject.link))}</p>")
    for title, frame in sections(explanation):
        head = "".join(f"<th>{html.escape(str(name))}</th>" for name in ("", *frame.columns))
        body = "".join(
            "<tr><th style='text-align:left'>" + html.escape(str(label)) + "</th>"
            + "".join(f"<td>{html.escape(_cell(value))}</td>" for value in line) + "</tr>"
            for label, line in zip(frame.index, frame.itertuples(index=False), strict=True)
        )  # fmt: skip
        parts.append(f"<h4>{html.escape(title)}</h4><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
    parts.append("<p>The whole report: <code>explanation.to_html(&quot;report.html&quot;)</code></p>")
    return "\n".join(parts)
