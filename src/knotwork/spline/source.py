"""A spline as source for other programs: Python, C, and a formula for a spreadsheet. None needs anything else.

All take the encoded features, in the order of ``feature_names``, hold them at the limits, add the terms up one after
the other and hold the sum: values equal the spline's but for rounding. NaN in, NaN out; a spreadsheet has no NaN.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from knotwork.data.limits import binding
from knotwork.errors import DataError
from knotwork.parameters import is_sequence, shown
from knotwork.printable import printable

if TYPE_CHECKING:
    from knotwork.data.limits import Limits
    from knotwork.spline.model import Spline, Term

# Characters that Excel takes in a formula.
MAX_FORMULA = 8192
# A value held between two others, in Python and C, and in a spreadsheet.
HOLD, EXCEL_HOLD = "hold({}, {}, {})", "MIN(MAX({},{}),{})"
# Words that a function of C or C++ cannot have for a name, and those that the source uses itself.
_C_WORDS = re.compile(
    "alignas|alignof|and|and_eq|asm|auto|bitand|bitor|bool|break|case|catch|char|char16_t|char32_t|char8_t|class|co_await|"
    "co_return|co_yield|compl|concept|const|const_cast|consteval|constexpr|constinit|continue|decltype|default|delete|do|"
    "double|dynamic_cast|else|enum|explicit|export|extern|false|float|for|friend|goto|hinge|hold|if|inline|int|least|long|"
    "main|mutable|namespace|new|noexcept|not|not_eq|nullptr|operator|or|or_eq|private|protected|public|register|"
    "reinterpret_cast|requires|restrict|return|short|signed|sizeof|static|static_assert|static_cast|struct|switch|template|"
    "this|thread_local|throw|true|try|typedef|typeid|typename|typeof|typeof_unqual|union|unsigned|using|virtual|void|"
    "volatile|wchar_t|while|xor|xor_eq"
)


def python_source(spline: Spline, name: str = "predict") -> str:
    """Return a function of one row in Python."""
    _require_name(name, isinstance(name, str) and (keyword.iskeyword(name) or name == "float"))
    used = _used(spline)
    lines = [
        f"def {name}(x):",
        f'    """Return the value at a row: x[0] to x[{len(spline.feature_names) - 1}] are the features."""',
        "",
        "    def hinge(u):",
        "        return 0.0 if u < 0 else u",
        "",
        "    def least(a, b):",
        "        return a if a < b or a != a else b",
        "",
        "    def hold(v, low, high):",
        "        return low if v < low else high if v > high else v",
        "",
    ]
    for f in used:
        value = f"float(x[{f}])"
        lines.append(f"    x{f} = {_within(spline.limits, f, value, HOLD)}  # {printable(spline.feature_names[f])}")
    for k in range(spline.intercept.size):
        lines.append(f"    y{k} = {float(spline.intercept[k])!r}")
        for term, betas in zip(spline.terms, spline.coef, strict=True):
            lines.append(f"    y{k} += {float(betas[k])!r} * {_value(term, 'least({}, {})')}")
        if binding(spline.output_limits) is not None:
            lines.append(f"    y{k} = {_within(spline.output_limits, k, f'y{k}', HOLD)}")
    outputs = ", ".join(f"y{k}" for k in range(spline.intercept.size))
    lines.append(f"    return {outputs}" if spline.intercept.size == 1 else f"    return [{outputs}]")
    return "\n".join(lines) + "\n"


def c_source(spline: Spline, name: str = "predict") -> str:
    """Return a function of one row in C (C89 and later; C++ too)."""
    _require_name(name, isinstance(name, str) and _C_WORDS.fullmatch(name) is not None)
    outputs = spline.intercept.size
    head = f"double {name}(const double *x)" if outputs == 1 else f"void {name}(const double *x, double *y)"
    features = len(spline.feature_names)
    lines = [
        f"/* x: {features} features{'' if outputs == 1 else f'; y: {outputs} outputs'} */",
        "static double hinge(double u) { return u < 0.0 ? 0.0 : u; }",
        "static double least(double a, double b) { return a < b || a != a ? a : b; }",
        "static double hold(double v, double low, double high) { return v < low ? low : v > high ? high : v; }",
        "",
        head,
        "{",
    ]
    used = _used(spline)
    for f in used:
        value = _within(spline.limits, f, f"x[{f}]", HOLD)
        lines.append(f"    double x{f} = {value}; /* {_comment(spline.feature_names[f])} */")
    if outputs == 1:
        lines.append("    double y0;")
    for k in range(outputs):
        y = "y0" if outputs == 1 else f"y[{k}]"
        lines.append(f"    {y} = {float(spline.intercept[k])!r};")
        for term, betas in zip(spline.terms, spline.coef, strict=True):
            lines.append(f"    {y} += {float(betas[k])!r} * {_value(term, 'least({}, {})')};")
        if binding(spline.output_limits) is not None:
            lines.append(f"    {y} = {_within(spline.output_limits, k, y, HOLD)};")
    # Helpers that no term needs are named, so that compilers do not complain.
    lines += ["    (void)x;", "    (void)hinge; (void)least; (void)hold;"]
    lines += ["    return y0;", "}"] if outputs == 1 else ["}"]
    return "\n".join(lines) + "\n"


def excel_formula(spline: Spline, cells: Any = None, output: int | None = None) -> str:
    """Return a formula for a spreadsheet, of one output, with the features in the given cells."""
    outputs = spline.intercept.size
    if output is None and outputs > 1:
        raise DataError(
            f"a formula has one value, this spline has {outputs} outputs; choose one, output=0 for the first"
        )
    k = 0 if output is None else output
    if isinstance(k, bool) or not isinstance(k, int) or not 0 <= k < outputs:
        raise DataError(f"output must be a number from 0 to {outputs - 1}, got {shown(output)}")
    where = _cells(spline, cells)
    names = {f: _within(spline.limits, f, where[f], EXCEL_HOLD) for f in _used(spline)}
    parts = [_excel_number(float(spline.intercept[k]))]
    for term, betas in zip(spline.terms, spline.coef, strict=True):
        beta = _excel_number(float(betas[k]))
        parts.append(f"{'' if beta.startswith('-') else '+'}{beta}*{_excel_value(term, names)}")
    formula = f"={_within(spline.output_limits, k, ''.join(parts), EXCEL_HOLD)}"
    if len(formula) > MAX_FORMULA:
        raise DataError(
            f"a formula of a spreadsheet has at most {MAX_FORMULA} characters, this one would have {len(formula)}; "
            f"simplify the spline, or use to_python() or to_c()"
        )
    return formula


def _used(spline: Spline) -> list[int]:
    return sorted({f for term in spline.terms for f in term.features})


def _require_name(name: Any, taken: bool) -> None:
    if not isinstance(name, str) or taken or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise DataError(f"name must be that of a function, letters and digits, got {shown(name)}")


def _comment(name: str) -> str:
    """Return a name that ends no comment of C and begins none."""
    return printable(name).replace("*/", "* /").replace("/*", "/ *").replace("??/", "?? /")


def _within(limits: Limits | None, place: int, value: str, pattern: str) -> str:
    """Write a value held at the limits of its place, if there are any."""
    if limits is None:
        return value
    low, high = float(limits.lower[place]), float(limits.upper[place])
    if low == -float("inf") and high == float("inf"):
        return value
    return pattern.format(value, _bound(low), _bound(high))


def _bound(value: float) -> str:
    """Write a limit; one that is infinite is the largest float, which holds nothing."""
    return repr(max(-1.7976931348623157e308, min(value, 1.7976931348623157e308)))


def _value(term: Term, least: str) -> str:
    """Write a term for languages with a function ``hinge``."""
    from knotwork.spline.model import Linear, Min, hinges_of

    if isinstance(term, Linear):
        return f"x{term.feature}"
    hinges = []
    for hinge in hinges_of(term):
        x, knot = f"x{hinge.feature}", f"({hinge.knot!r})" if hinge.knot < 0 else repr(float(hinge.knot))
        hinges.append(f"hinge({x} - {knot})" if hinge.sign > 0 else f"hinge({knot} - {x})")
    if not isinstance(term, Min):
        return " * ".join(hinges)
    parts = [h if s == 1 else f"{float(s)!r} * {h}" for h, s in zip(hinges, term.slopes, strict=True)]
    text = parts[0]
    for part in parts[1:]:
        text = least.format(text, part)
    return text


def _excel_value(term: Term, names: Mapping[int, str]) -> str:
    from knotwork.spline.model import Linear, Min, hinges_of

    if isinstance(term, Linear):
        return names[term.feature]
    hinges = []
    for hinge in hinges_of(term):
        x, knot = names[hinge.feature], _excel_number(hinge.knot)
        knot = f"({knot})" if knot.startswith("-") else knot
        hinges.append(f"MAX(0,{x}-{knot})" if hinge.sign > 0 else f"MAX(0,{knot}-{x})")
    if not isinstance(term, Min):
        return "*".join(hinges)
    parts = [h if s == 1 else f"{_excel_number(s)}*{h}" for h, s in zip(hinges, term.slopes, strict=True)]
    return f"MIN({','.join(parts)})"


def _excel_number(value: float) -> str:
    """Write a float in full; an exponent as spreadsheets write it."""
    return repr(float(value)).removesuffix(".0").upper()


def _cells(spline: Spline, cells: Any) -> Sequence[str]:
    """Return the cell of each feature: those given, by position or by name, or A2, B2, … of a table with a header."""
    names = spline.feature_names
    if cells is None:
        return [f"{_column(f)}2" for f in range(len(names))]
    found: Any = cells
    if isinstance(cells, Mapping):
        missing = [names[f] for f in _used(spline) if names[f] not in cells]
        if missing:
            raise DataError(f"cells must name a cell for every feature that is used, {missing[0]!r} has none")
        found = [cells.get(name, "") for name in names]
    if not is_sequence(found) or len(found) != len(names) or not all(isinstance(cell, str) for cell in found):
        raise DataError(
            f"cells must be the cells of the {len(names)} features, such as 'B2', or a dict of them by name, got "
            f"{shown(cells)}"
        )
    return [str(cell) for cell in found]


def _column(number: int) -> str:
    """Return the letters of a column of a spreadsheet, counted from 0.

    >>> _column(0), _column(25), _column(26), _column(701), _column(702)
    ('A', 'Z', 'AA', 'ZZ', 'AAA')
    """
    letters = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters
