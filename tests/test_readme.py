"""The Python blocks of the README and of each page of the docs run, in order, as one script."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks or page != "README.md"
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), namespace)


def test_the_two_commands_exist():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in README
        assert f"\n{command}:" in makefile
