"""The Python blocks of the README and of each page of the docs run, in order, as one script; so does the notebook."""

import json
import re
import runpy
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from knotwork.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
NOTEBOOK = ROOT / "docs/tutorial.ipynb"
# The tutorial runs once, as the notebook that is made from it.
PAGES = sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md") if p.stem != NOTEBOOK.stem)


def run_blocks(page):
    namespace: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL):
        exec(compile(block, page, "exec"), namespace)


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks(page)


def test_the_readme_s_code_and_commands_run_in_one_folder_and_print_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_blocks("README.md")
    printed = iter(capsys.readouterr().out.splitlines())
    (shown,) = re.findall(r"```text\n(.*?)```", README, flags=re.DOTALL)
    for line in shown.splitlines():
        assert line.strip() == "…" or line in printed, line  # in this order
    (block,) = [block for block in re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL) if "knotwork fit" in block]
    for line in block.splitlines():
        program, *arguments = shlex.split(line, comments=True)
        if program == "python":
            exec(arguments[1], {})
            continue
        result = CliRunner().invoke(app, arguments)
        assert (program, result.exit_code) == ("knotwork", 0), (line, result.output, result.exception)


def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = [
        "".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"
    ]
    assert len(code) > 5
    namespace: dict[str, object] = {}
    for k, cell in enumerate(code):
        exec(compile(cell, f"{NOTEBOOK.name}, code cell {k + 1}", "exec"), namespace)


def test_the_notebook_is_the_tutorial_page_without_outputs():
    make = runpy.run_path(str(ROOT / "docs/notebook.py"))["notebook"]
    page = NOTEBOOK.with_suffix(".md").read_text()
    assert NOTEBOOK.read_text() == make(page), "run python docs/notebook.py"


def test_the_two_commands_exist():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in README
        assert f"\n{command}:" in makefile
