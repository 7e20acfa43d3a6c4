"""The attacks of this package, found by what their modules define."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import tests.torture
from tests.torture.outcome import Outcome


class Attack(Protocol):
    """A module of this package that follows its convention."""

    __name__: str
    NAME: str
    DEFAULT_COUNT: int

    def attack(self, first: int, count: int, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome: ...


def find_attacks() -> dict[str, Attack]:
    """Return every module with an attack, by its name."""
    found = {}
    for info in pkgutil.iter_modules(tests.torture.__path__):
        if info.name.startswith(("__", "test_")):
            continue
        module = importlib.import_module(f"tests.torture.{info.name}")
        if hasattr(module, "attack") and hasattr(module, "NAME"):
            found[module.NAME] = cast(Attack, module)
    return found
