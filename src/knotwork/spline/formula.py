"""A spline as people read it: digits that matter, 0/1 features in words, values as their column shows them.

A number as printed changes its term by less than DIGITS of the largest term's range, within the limits of the features;
where a spline has no limits it has six digits. Numbers that six digits hold exactly are never rounded further. Slopes
and constants inside a minimum have four digits.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.columns.part import MISSING, Part
from knotwork.data.limits import binding
from knotwork.printable import printable

if TYPE_CHECKING:
    from knotwork.spline.model import Hinge, Spline, Term

# Share of the range of the largest term that a printed number may be off by, at most.
DIGITS = 1e-4
# What six digits may be off by.
SIX_DIGITS = 5e-6
# Magnitudes that are written without an exponent.
SMALL, LARGE = 1e-5, 1e15


@dataclass(frozen=True)
class Factor:
    """A part of a term: a feature itself (sign 0), or a hinge of it, times a slope."""

    feature: int
    knot: float
    sign: int
    slope: float


@dataclass(frozen=True)
class Written:
    """A term in words: factor · (product or minimum of parts) where conditions hold.

    parts : none for a constant
    cap : what the minimum also includes, infinite for nothing
    product : whether parts are multiplied
    where : conditions, "Sex is I"
    """

    factor: float
    parts: tuple[Factor, ...]
    cap: float
    product: bool
    where: tuple[str, ...]


class Formula:
    """The texts of a spline: of each term, and of the function as plain text, LaTeX and HTML."""

    def __init__(self, spline: Spline) -> None:
        self._spline = spline
        self._parts = _by_feature(spline.parts, len(spline.feature_names))
        self._written = [self._write(term) for term in spline.terms]
        self._quanta, self._knot_quanta = self._digits()

    def terms(self) -> list[str]:
        """Return each term as text, without its coefficient."""
        texts = []
        for written in self._written:
            body = self._body(written, full=True)
            factor = "" if written.factor == 1 and body else short(written.factor, None)
            texts.append(f"{factor}{'·' if factor and body else ''}{body}{_where(written)}")
        return texts

    def text(self) -> str:
        """Return the function as text, a formula for each output."""
        lines = [self._one_output(k) for k in range(self._spline.intercept.size)]
        if self._spline.limits is not None and self._spline.terms:
            lines.append("values beyond a feature's limits count as the limits")
        lines += [f"the result is clipped to the range {text}" for text in self._held()]
        return "\n".join(lines)

    def _one_output(self, output: int) -> str:
        parts = [short(float(self._spline.intercept[output]), self._quanta[0, output])]
        for m, written in enumerate(self._written):
            beta = float(self._spline.coef[m, output]) * written.factor
            quantum = float(self._quanta[1 + m, output] * abs(written.factor))
            sign, size = "-" if beta < 0 else "+", short(abs(beta), quantum)
            body = self._body(written)
            parts.append(f"{sign} {size}{'·' * bool(body)}{body}{_where(written)}")
        return " ".join(parts) if len(parts) <= 2 else "\n  ".join(parts)

    def latex(self) -> str:
        """Return the function in LaTeX, its lines aligned."""
        lines = []
        for output in range(self._spline.intercept.size):
            name = "f(x)" if self._spline.intercept.size == 1 else f"f_{{{output + 1}}}(x)"
            start = _latex_number(short(float(self._spline.intercept[output]), self._quanta[0, output]))
            lines.append(f"{name} ={{}}& {start}")
            for m, written in enumerate(self._written):
                beta = float(self._spline.coef[m, output]) * written.factor
                quantum = float(self._quanta[1 + m, output] * abs(written.factor))
                size = _latex_number(short(abs(beta), quantum))
                where = f"\\ \\text{{{_latex_text(_where(written).strip())}}}" if written.where else ""
                body = self._latex_body(written)
                gap = r"\," if body else ""
                lines.append(f"&{'-' if beta < 0 else '+'} {size}{gap}{body}{where}")
        lines += [f"&\\text{{clipped to the range {_latex_text(text)}}}" for text in self._held()]
        inner = " \\\\\n".join(lines)
        return f"$\\displaystyle\n\\begin{{aligned}}\n{inner}\n\\end{{aligned}}$"

    def html(self) -> str:
        """Return the function as a table in HTML: a row for each term, a column for each output."""
        outputs = range(self._spline.intercept.size)
        head = "" if len(outputs) == 1 else "".join(f"<th>{k + 1}</th>" for k in outputs)
        rows = [("1", [short(float(self._spline.intercept[k]), self._quanta[0, k]) for k in outputs])]
        for m, written in enumerate(self._written):
            values = self._spline.coef[m] * written.factor
            quanta = self._quanta[1 + m] * abs(written.factor)
            numbers = [short(float(v), float(q)) for v, q in zip(values, quanta, strict=True)]
            rows.append((f"{self._body(written) or '1'}{_where(written)}", numbers))
        body = "".join(
            "<tr>"
            + "".join(f'<td style="text-align:right">{html.escape(n.replace("-", "−"))}</td>' for n in numbers)
            + f'<td style="text-align:left">· {html.escape(text).replace(" - ", " − ")}</td></tr>'
            for text, numbers in rows
        )
        held = "<p>Values beyond a feature's limits count as the limits.</p>" * (self._spline.limits is not None)
        held += "".join(
            f"<p>The result is clipped to the range {html.escape(text)}.</p>".replace(" -", " −")
            for text in self._held()
        )
        heading = f"<thead><tr>{head}<th></th></tr></thead>" if head else ""
        return f"<table>{heading}<tbody>{body}</tbody></table><p>h(u) = max(0, u)</p>{held}"

    def _held(self) -> list[str]:
        """Say what range the outputs are clipped to; nothing where they are not."""
        held = binding(self._spline.output_limits)
        if held is None:
            return []
        ends = [f"{short(low, None)} to {short(high, None)}" for low, high in zip(*held.sides(), strict=True)]
        return ["; ".join(ends)]

    # Terms

    def _write(self, term: Term) -> Written:
        from knotwork.spline.model import Linear, Min, Product, hinges_of

        if isinstance(term, Linear):
            states = self._states(term.feature)
            if states is not None:
                return Written(1.0, (), math.inf, False, (states[1],))
            return Written(1.0, (Factor(term.feature, 0.0, 0, 1.0),), math.inf, False, ())
        hinges = hinges_of(term)
        slopes = term.slopes if isinstance(term, Min) else (1.0,) * len(hinges)
        product = isinstance(term, Product)
        parts, where, factor, cap = [], [], 1.0, math.inf
        for hinge, slope in zip(hinges, slopes, strict=True):
            condition = self._condition(hinge)
            if condition is None:
                parts.append(Factor(hinge.feature, hinge.knot, hinge.sign, slope))
                continue
            text, height = condition
            where.append(text)
            if product:
                factor *= height
            else:
                cap = min(cap, slope * height)
        if not parts:
            return Written(factor if product else cap, (), math.inf, product, tuple(where))
        if not product:
            # A minimum with a constant that it never reaches is without it.
            if cap < math.inf and min(self._height(part) for part in parts) <= cap * (1 + 1e-12):
                cap = math.inf
            if len(parts) == 1:
                (part,) = parts
                factor, cap = part.slope, cap / part.slope
                parts = [Factor(part.feature, part.knot, part.sign, 1.0)]
        return Written(factor, tuple(parts), cap, product, tuple(where))

    def _height(self, part: Factor) -> float:
        """Return the maximum of a hinge within the limits of its feature."""
        limits = self._spline.limits
        if limits is None:
            return math.inf
        end = limits.upper[part.feature] if part.sign > 0 else limits.lower[part.feature]
        return max(0.0, part.sign * (float(end) - part.knot)) * part.slope

    def _states(self, feature: int) -> tuple[str, str] | None:
        """Say what 0 and 1 of a feature mean, None if it has other values."""
        part, place = self._parts[feature]
        if part is None:
            return None
        if part.categories is not None:
            label = part.categories[place]
            return f"{part.name} is not {label}", f"{part.name} is {label}"
        if place == 1:
            return f"{part.name} is not {MISSING}", f"{part.name} is {MISSING}"
        if part.steps is not None and len(part.steps) == 2:
            return f"{part.name} is {part.steps[0]}", f"{part.name} is {part.steps[1]}"
        return None

    def _condition(self, hinge: Hinge) -> tuple[str, float] | None:
        """Write a hinge of a 0/1 feature as where it is not zero, and its height there."""
        states = self._states(hinge.feature)
        if states is None:
            return None
        if hinge.sign > 0 and 0 <= hinge.knot < 1:
            return states[1], 1.0 - hinge.knot
        if hinge.sign < 0 and 0 < hinge.knot <= 1:
            return states[0], hinge.knot
        return None

    # Texts

    def _body(self, written: Written, full: bool = False) -> str:
        texts = []
        for part in written.parts:
            text = self._part(part, full)
            texts.append(text if part.slope == 1 else f"{_four(part.slope)}·{text}")
        if written.cap < math.inf:
            texts.append(_four(written.cap))
        if len(texts) < 2:
            return "".join(texts)
        return "·".join(texts) if written.product else f"min({', '.join(texts)})"

    def _part(self, part: Factor, full: bool = False) -> str:
        name = printable(self._spline.feature_names[part.feature])
        if part.sign == 0:
            return name
        plain = self._is_plain(part.feature)
        if plain and part.knot == 0:
            return f"h({name})" if part.sign > 0 else f"h(-{name})"
        if plain and part.knot < 0:
            knot = self._knot(part.feature, -part.knot, full)
            return f"h({name} + {knot})" if part.sign > 0 else f"h(-{knot} - {name})"
        knot = self._knot(part.feature, part.knot, full)
        return f"h({name} - {knot})" if part.sign > 0 else f"h({knot} - {name})"

    def _latex_body(self, written: Written) -> str:
        texts = []
        for part in written.parts:
            inner = self._part(part)
            text = f"\\text{{{_latex_text(inner)}}}"
            if part.sign != 0:
                text = f"\\left(\\text{{{_latex_text(inner[2:-1])}}}\\right)_+"
            slope = _latex_number(_four(part.slope))
            texts.append(text if part.slope == 1 else f"{slope}\\,{text}")
        if written.cap < math.inf:
            texts.append(_latex_number(_four(written.cap)))
        if len(texts) < 2:
            return "".join(texts)
        if written.product:
            return r"\,".join(texts)
        return r"\min\left\{" + r",\ ".join(texts) + r"\right\}"

    def _is_plain(self, feature: int) -> bool:
        part, place = self._parts[feature]
        return part is None or part.plain or place > 0

    def _knot(self, feature: int, value: float, full: bool) -> str:
        """Write a knot, with six digits at least if it is to be written in full."""
        part, place = self._parts[feature]
        if part is not None and not part.plain and place == 0:
            return printable(part.text(value))
        quantum = self._knot_quanta.get((feature, abs(value)))
        if full and quantum is not None and quantum >= abs(value) * SIX_DIGITS:
            quantum = None
        return short(value, quantum)

    # Digits

    def _digits(self) -> tuple[Floats, dict[tuple[int, float], float]]:
        """Return what numbers may be rounded to: (1 + terms, outputs) for coefficients, and for knots by feature.

        NaN asks for six digits.
        """
        spline = self._spline
        ranges = np.array([self._range(written) for written in self._written])
        # In the factors of Written, which a coefficient includes as it is printed. A term of coefficient 0 is nowhere
        # large, however far it goes.
        sizes = np.zeros(spline.coef.shape)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            np.multiply(np.abs(spline.coef), ranges.reshape(-1, 1), out=sizes, where=spline.coef != 0)
            largest = sizes.max(axis=0, initial=0.0)
            quanta = np.vstack([DIGITS * largest, DIGITS * largest / ranges.reshape(-1, 1)])
        quanta[~np.isfinite(quanta) | (quanta <= 0)] = np.nan
        knots: dict[tuple[int, float], float] = {}
        for m, written in enumerate(self._written):
            for part in written.parts:
                steepest = np.abs(spline.coef[m]) * abs(written.factor) * part.slope
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    quantum = float(np.min(DIGITS * largest / steepest))
                key = part.feature, abs(part.knot)
                knots[key] = min(knots.get(key, math.inf), quantum, DIGITS * self._width(part.feature))
        return quanta, {key: q for key, q in knots.items() if 0 < q < math.inf}

    def _width(self, feature: int) -> float:
        limits = self._spline.limits
        return math.inf if limits is None else float(limits.upper[feature] - limits.lower[feature])

    def _range(self, written: Written) -> float:
        """Return how far a term goes within the limits, infinite without; its factor included."""
        if not written.parts:
            return abs(written.factor)
        heights = [self._width(p.feature) if p.sign == 0 else self._height(p) for p in written.parts]
        return abs(written.factor) * (math.prod(heights) if written.product else min(written.cap, *heights, math.inf))


def short(value: float, quantum: float | None) -> str:
    """Write a number rounded to a power of ten that is no more than a quantum; None and NaN ask for six digits.

    What six digits say exactly is written so, and never with an exponent where people would not use one.

    >>> short(3.0, None), short(1234567.0, 0.5), short(0.123456789, 0.004), short(2.5e-9, 1e-3)
    ('3', '1234567', '0.123', '2.5e-09')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rough = f"{value:.6g}"
    if float(rough) == value or quantum is None or math.isnan(quantum):
        rounded = float(rough)
        if SMALL <= abs(rounded) < LARGE:
            return str(np.format_float_positional(rounded, trim="-"))
        return rough
    decimals = math.ceil(-math.log10(quantum) - 1e-9)
    if not SMALL <= abs(value) < LARGE or decimals > 15:
        return f"{value:.{max(1, min(16, decimals + math.floor(math.log10(abs(value))) + 1))}g}"
    text = f"{value:.{max(0, decimals)}f}"
    if float(text) == 0:
        return f"{value:.2g}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _four(value: float) -> str:
    """Write a number with four digits, as inside a minimum.

    >>> _four(1.59446), _four(123456.0)
    ('1.594', '123500')
    """
    return short(float(f"{value:.4g}"), None)


def _by_feature(parts: Sequence[Part] | None, features: int) -> list[tuple[Part | None, int]]:
    """Return the part of each feature and the feature's place in it."""
    if parts is None:
        return [(None, 0)] * features
    return [(part, place) for part in parts for place in range(part.width)]


def _where(written: Written) -> str:
    return f" where {printable(' and '.join(written.where))}" if written.where else ""


# What LaTeX reads as a command, as it reads it as a character.
_LATEX = {
    "\\": r"\textbackslash ", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\char94 ", "~": r"\char126 ",
}  # fmt: skip


def _latex_text(text: str) -> str:
    r"""Escape a text for \\text{…}.

    >>> _latex_text("50% {a_b} - 3")
    '50\\% \\{a\\_b\\} - 3'
    """
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_number(text: str) -> str:
    """Write an exponent as a power of ten."""
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa} \\cdot 10^{{{int(exponent)}}}" if exponent else text
