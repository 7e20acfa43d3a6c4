"""The README's Python blocks run, in order, as one script."""

import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_code_blocks_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), namespace)


def test_the_two_commands_exist():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for command in ("demo", "test"):
        assert f"make {command}" in README
        assert f"\n{command}:" in makefile
