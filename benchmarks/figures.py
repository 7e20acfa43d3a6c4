"""Every figure in the README and the docs comes from a file in ``benchmarks/results``; this compares and updates them.

    python -m benchmarks.figures                         # check: print every figure without a source, or unlike it
    python -m benchmarks.figures keep NAME… -- COMMAND   # run a benchmark, store the Markdown tables that it prints
    python -m benchmarks.figures write                   # put the stored values into the pages
    python -m benchmarks.figures add PAGE SOURCE         # trace a page's new figures to SOURCE

A **table** whose comment names a file, ``<!-- results: NAME.csv -->`` in the line above it, equals that file. Its first
lines, which begin with #, have the command and the status: written by the command, or transcribed from a page because
the raw results are gone.

Every other **figure** has a row in ``prose/PAGE.csv``: its section, the number, and a source:

- ``NAME.csv | row | column``: that cell of a stored table, checked here;
- ``transcribed: COMMAND, DATE``: what the command printed, where no file is left;
- ``test: FILE``: the test in this file checks it, or the page's own code (``tests/test_readme.py`` runs it);
- ``defined: WHY``: a limit or a rule of the library, which nobody measures.

A figure is a number with decimals, with a unit of measurement, or one of so many ("23 of 25"), outside code;
in a table that names no file, a whole number that is a cell too.
"""

from __future__ import annotations

import csv
import datetime
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results")
# Promises and their limits; tests/test_docs.py checks that each names its tests.
APART = {"docs/guarantees.md"}
MARK = re.compile(r"<!-- results: (\S+\.csv) -->")
KINDS = ("transcribed: ", "test: ", "defined: ")
NUMBER = r"(?<![\w.,-])[−+-]?\d(?:[\d  ]*\d)?(?:,\d{3})*(?:\.\d+)?"
UNIT = r"(?: ?%|×(?! ?\d)| (?:times|ms|s|seconds|minutes|hours|[kMG]i?B|rings|standard errors|stds?)\b)"
SHARE = r"\b\d+ of (?:the )?\d+\b"
DECIMAL = r"(?<![\w.])[−+-]?\d+\.\d+(?!\w|\.\d)"
CELL = r"(?<=\| )\d+(?= \|)"
FIGURE = re.compile(rf"{SHARE}|{CELL}|{NUMBER}(?={UNIT}|(?: to|,| and) {NUMBER}{UNIT})|{DECIMAL}")
# Names that hold a number: versions, licences, papers, formulas in a block of their own.
NAMES = re.compile(
    r"(?:Python|CC BY|CC0|arXiv|schemas?|version|earth|ISO) [\d.]+(?: to [\d.]+)?|Apache-2\.0|0\.\d\.0\b"
)


def pages() -> list[str]:
    found = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))]
    return [page for page in found if page not in APART]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def tables(text: str) -> Iterator[tuple[str | None, int, list[str]]]:
    """Yield each Markdown table: the file it names, the number of its first line, its lines."""
    lines = text.splitlines()
    start = 0
    while start < len(lines):
        end = start
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        if end > start + 1:
            named = MARK.fullmatch(lines[start - 1].strip()) if start else None
            yield named and named[1], start, lines[start:end]
        start = max(end, start + 1)


def body(lines: list[str]) -> list[list[str]]:
    """Return the head and the rows of a Markdown table."""
    return [cells(line) for line in [lines[0], *lines[2:]]]


def stored(name: str) -> list[list[str]]:
    """Return the head and the rows of a stored table."""
    with (RESULTS / name).open(newline="") as file:
        return list(csv.reader(line for line in file if not line.startswith("#")))


def keep(name: str, rows: list[list[str]], *origin: str) -> None:
    with (RESULTS / name).open("w", newline="") as file:
        file.writelines(f"# {line}\n" for line in origin)
        csv.writer(file, lineterminator="\n").writerows(rows)


def plain(cell: str) -> str:
    """Return a cell without Markdown's emphasis."""
    return re.sub(r"\*\*|`", "", cell)


def look_up(source: str) -> str:
    """Return the cell that ``NAME.csv | row | column`` names; a row by its first cell, or its first two."""
    name, row, column = (part.strip() for part in source.split("|"))
    head, *rows = stored(name)
    place = [plain(cell) for cell in head].index(column)
    found = [line for line in rows if row in (plain(line[0]), ", ".join(map(plain, line[:2])))]
    if len(found) != 1:
        raise ValueError(f"{name} has {len(found)} rows {row!r}")
    return plain(found[0][place])


def figures(page: str) -> Iterator[tuple[str, str]]:
    """Yield (section, figure) for every figure of a page outside code and outside tables that name a file."""
    text = (ROOT / page).read_text()
    text = re.sub(r"^( *)```.*?^\1```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    lines = text.splitlines()
    for name, start, found in tables(text):
        if name:
            lines[start : start + len(found)] = [""] * len(found)
    sections: dict[str, str] = {}
    section = ""
    for line in lines:
        if line.startswith("#"):
            section = line.strip("# ")
        elif not line.startswith("    "):
            sections[section] = f"{sections.get(section, '')} {line}"
    for section, prose in sections.items():
        prose = NAMES.sub(" ", re.sub(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->", " ", prose))
        yield from ((section, match[0]) for match in FIGURE.finditer(prose))


def ledger(page: str) -> Path:
    return RESULTS / "prose" / f"{Path(page).with_suffix('').as_posix().removeprefix('docs/').replace('/', '-')}.csv"


def sources(page: str) -> list[list[str]]:
    """Return [section, figure, source] for every figure that the page's file knows."""
    if not ledger(page).exists():
        return []
    with ledger(page).open(newline="") as file:
        return list(csv.reader(file))[1:]


def write_sources(page: str, rows: list[list[str]]) -> None:
    with ledger(page).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["section", "figure", "source"], *rows])


def wrong(page: str) -> Iterator[str]:
    """Yield a sentence for every figure of the page that has no source or does not equal it."""
    for name, start, lines in tables((ROOT / page).read_text()):
        if name and body(lines) != stored(name):
            yield f"{page}:{start + 1}: the table is not that of benchmarks/results/{name}"
    there = set(figures(page))
    known = sources(page)
    for section, figure in sorted(there - {(section, figure) for section, figure, _ in known}):
        yield f"{page}, {section}: {figure} has no source in {ledger(page).relative_to(ROOT)}"
    for section, figure, source in known:
        if (section, figure) not in there:
            yield f"{page}, {section}: {figure} is not on the page any more; take it out of {ledger(page).name}"
        elif source.startswith("test: ") and not (ROOT / source.removeprefix("test: ")).exists():
            yield f"{page}, {section}: {figure}: there is no file {source.removeprefix('test: ')}"
        elif not source.startswith(KINDS) and figure not in re.split(r"[ /]+", look_up(source)):
            yield f"{page}, {section}: {figure} is {look_up(source)} in {source}"


def all_wrong() -> list[str]:
    return [sentence for page in pages() for sentence in wrong(page)]


def write() -> None:
    """Put stored tables, and figures that are cells of them, into the pages."""
    for page in pages():
        lines = (ROOT / page).read_text().splitlines()
        for name, start, found in list(tables("\n".join(lines)))[::-1]:
            if name:
                head, *rows = (f"| {' | '.join(row)} |" for row in stored(name))
                wide = len(stored(name)[0])
                line = found[1] if len(cells(found[1])) == wide else "|---" * wide + "|"
                lines[start : start + len(found)] = [head, line, *rows]
        text = "\n".join(lines) + "\n"
        rows_of_page = sources(page)
        for row in rows_of_page:
            value = row[2] if row[2].startswith(KINDS) else look_up(row[2])
            if not row[2].startswith(KINDS) and row[1] not in re.split(r"[ /]+", value) and value != row[1]:
                begin = text.index(f"# {row[0]}\n")
                text = text[:begin] + re.sub(rf"(?<![\d.]){re.escape(row[1])}(?![\d.])", value, text[begin:], count=1)
                row[1] = value
        (ROOT / page).write_text(text)
        if rows_of_page:
            write_sources(page, rows_of_page)


def add(page: str, source: str) -> None:
    """Trace the page's new figures to a source, and forget those that are gone."""
    there = list(dict.fromkeys(figures(page)))
    known = {(section, figure): source for section, figure, source in sources(page)}
    write_sources(page, [[*key, known.get(key, source)] for key in there])


def keep_output(names: list[str], command: list[str]) -> None:
    """Store the tables that a command prints, in their order; the name - leaves one out."""
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = [body(lines) for _, _, lines in tables(printed)]
    if len(found) != len(names):
        raise SystemExit(f"the command prints {len(found)} tables; name {len(found)} files, got {len(names)}")
    for name, rows in zip(names, found, strict=True):
        if name != "-":
            keep(f"{name}.csv", rows, f"command: {shlex.join(command)}", f"status: written on {datetime.date.today()}")


def main(arguments: list[str]) -> None:
    match arguments:
        case ["keep", *rest] if "--" in rest:
            names, command = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
            keep_output(names, command)
        case ["write"]:
            write()
        case ["add", page, source]:
            add(page, source)
        case []:
            found = all_wrong()
            print("\n".join(found) or f"{sum(map(Counter.total, map(Counter, map(figures, pages()))))} figures traced")
            raise SystemExit(bool(found))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
