"""Make docs/tutorial.ipynb from docs/tutorial.md: the page's text and code as cells, without outputs.

python docs/notebook.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "tutorial.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")


def cells(page: str) -> list[dict[str, Any]]:
    """Split a page at its Python blocks: they become code cells, the text between them Markdown cells."""
    # Odd parts are what the parentheses of the pattern match.
    parts = re.split(r"^```python\n(.*?)^```\n", page, flags=re.DOTALL | re.MULTILINE)
    made: list[dict[str, Any]] = []
    for k, part in enumerate(parts):
        if not part.strip():
            continue
        cell: dict[str, Any] = {"cell_type": "markdown", "id": f"cell-{len(made):02d}", "metadata": {}}
        if k % 2:
            cell |= {"cell_type": "code", "execution_count": None, "outputs": []}
        made.append({**cell, "source": part.strip("\n").splitlines(keepends=True)})
    return made


def notebook(page: str) -> str:
    """Return the text of the notebook (nbformat 4.5)."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": cells(page), "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
