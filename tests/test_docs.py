"""The site builds, and the commands in its pages run."""

import ast
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import knotwork as kw
from knotwork.cli import app

ROOT = Path(__file__).parent.parent
PAGES = ["docs/command-line.md", "docs/tutorial.md"]  # tests/test_readme.py runs those of the README


def commands(page):
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    lines = (line.partition(" #")[0] for block in blocks for line in block.splitlines())
    # The published experiments take minutes; tests/commands/test_reproduce.py runs them small.
    return [shlex.split(line)[1:] for line in lines if re.match("knotwork (?!reproduce)", line)]


@pytest.mark.parametrize("page", PAGES)
def test_commands_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = kw.datasets.load_abalone()
    X.assign(Rings=y).to_csv("abalone.csv", index=False)
    assert commands(page)
    for arguments in commands(page):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, (arguments, result.output, result.exception)


def test_every_guarantee_names_tests_that_are_there():
    files = [*(ROOT / "tests").rglob("*.py")]
    tests = {node.name for path in files for node in ast.walk(ast.parse(path.read_text()))
             if isinstance(node, ast.FunctionDef)}  # fmt: skip
    lines = [line for line in (ROOT / "docs/guarantees.md").read_text().splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert len(rows) > 40
    for row in rows:
        assert len(row) == 3, row
        named = re.findall("`([^`]+)`", row[2])
        assert named or row[2] == "test", row
        for name in named:
            if "/" in name:
                assert (ROOT / name).is_file(), name
            elif name.endswith("…"):
                assert any(test.startswith(name[:-1]) for test in tests), name
            else:
                assert name in tests, name


def test_the_licences_are_those_that_the_packages_declare():
    page = (ROOT / "docs/policies.md").read_text()
    for table in runpy.run_path(str(ROOT / "docs/licences.py"))["tables"]():
        if "not installed" not in table:
            assert table in page, "run python docs/licences.py and put its tables into docs/policies.md"


def test_the_api_page_has_every_public_name():
    directives = re.findall("^::: (.+)$", (ROOT / "docs/api.md").read_text(), flags=re.MULTILINE)
    public = {f"{home}.{name}" for name, home in kw._HOME.items()} | set(kw._MODULES.values())
    assert len(set(directives)) == len(directives)
    assert public <= set(directives)


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("zensical", reason="make docs installs it")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)  # the site and a cache go next to it
    (tmp_path / "src").symlink_to(ROOT / "src")
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    page = (tmp_path / "site" / "api" / "index.html").read_text()
    for name in kw._HOME:
        assert f'id="{kw._HOME[name]}.{name}"' in page
    for method in ("fit", "predict_interval", "partial_fit"):  # of the classes that it is built from
        assert f'id="knotwork.estimators.mars.MarsRegressor.{method}"' in page
