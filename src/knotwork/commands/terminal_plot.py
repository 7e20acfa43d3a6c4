"""Curves in the terminal, drawn with Braille dots: two dots wide and four high a character."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from rich.text import Text

# Bits of the eight dots of U+2800, by row and column.
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def plot_curves(
    curves: Mapping[str, tuple[Sequence[float], str]], *, width: int = 64, height: int = 12, unit: str = ""
) -> Text:
    """Draw curves over their index on one scale: name → (values, colour).

    Where curves share a character the later one gives its colour.

    >>> print(plot_curves({"a": ([0.0, 1.0], "blue")}, width=4, height=2).plain)
     1.00 ┤  ⡠⠊
     0.00 ┤⡠⠊
          └────
           0  1
           ⣀⣀ a
    """
    values = [np.asarray(v, dtype=float) for v, _ in curves.values()]
    low, high = min(v.min() for v in values), max(v.max() for v in values)
    last = max(len(v) for v in values) - 1
    cells = np.zeros((height, width), dtype=int)
    colours: list[list[str]] = [[""] * width for _ in range(height)]
    for (_, colour), v in zip(curves.values(), values, strict=True):
        x = np.arange(2 * width) * last / (2 * width - 1)
        inside = x <= len(v) - 1
        level = (np.interp(x, np.arange(len(v)), v) - low) / ((high - low) or 1.0)
        rows = np.round((1 - level) * (4 * height - 1)).astype(int)
        before = rows[0]
        for k in np.flatnonzero(inside):
            # A steep line leaves no gaps: all dots between this height and the one before.
            for row in range(min(before, rows[k]) + (before < rows[k]), max(before, rows[k]) + (before <= rows[k])):
                cells[row // 4, k // 2] |= DOTS[row % 4][k % 2]
                colours[row // 4][k // 2] = colour
            before = rows[k]
    out = Text()
    labelled = {0: high, height - 1: low, (height - 1) // 2: high - (high - low) * ((height - 1) // 2) / (height - 1)}
    for r in range(height):
        label = f"{labelled[r]:5.2f} ┤" if r in labelled and height > 1 else "      │"
        out.append(label)
        for c in range(width):
            out.append(chr(0x2800 + cells[r, c]) if cells[r, c] else " ", style=colours[r][c])
        out.append("\n")
    out.append(f"      └{'─' * width}\n")
    end = f"{last}{unit}"
    out.append(f"       0{end.rjust(width - 1)}\n       ")
    for name, (_, colour) in curves.items():
        out.append("⣀⣀ ", style=colour)
        out.append(f"{name}    ")
    return out
