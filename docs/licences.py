"""Print the licences of what knotwork depends on, as the packages declare them: the tables of docs/policies.md.

.venv/bin/python docs/licences.py
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("parquet", "dask", "export", "plots")


def names(requirements: list[str]) -> list[str]:
    """Return the packages of requirements, sorted."""
    return sorted(re.match(r"[\w-]+", requirement)[0] for requirement in requirements)  # type: ignore[index]


def licence(package: str) -> str:
    """Return the licence that an installed package declares: its SPDX expression, or its classifier."""
    try:
        declared = metadata(package)
    except PackageNotFoundError:
        return "not installed"
    classifiers = [c for c in declared.get_all("Classifier") or [] if c.startswith("License ::")]
    return declared.get("License-Expression") or ", ".join(c.split(" :: ")[-1] for c in classifiers)


def table(packages: list[str]) -> str:
    """Return a Markdown table of packages and licences."""
    return "\n".join(["| package | licence |", "|---|---|", *(f"| {name} | `{licence(name)}` |" for name in packages)])


def tables() -> list[str]:
    """Return the table of a plain installation, and that of the extras."""
    extra = names([requirement for key in EXTRAS for requirement in PROJECT["optional-dependencies"][key]])
    return [table(names(PROJECT["dependencies"])), table(extra)]


if __name__ == "__main__":
    print("\n\n".join(tables()))
