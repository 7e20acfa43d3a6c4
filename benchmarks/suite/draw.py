"""Draws the final tables: a third of the regression tables and a third of those with classes, by a fixed seed.

    python -m benchmarks.suite.draw        # writes final.txt

The result was committed before the first run. A changed catalogue would draw others; it stays as it is.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .catalogue import CLASSES, REGRESSION, TABLES

SEED = 20
PATH = Path(__file__).with_name("final.txt")


def draw() -> list[str]:
    rng = np.random.default_rng(SEED)
    return [str(name) for names in (REGRESSION, CLASSES) for name in rng.choice(names, len(names) // 3, replace=False)]


FINAL = frozenset(PATH.read_text().split()) if PATH.exists() else frozenset()
DEVELOPMENT = tuple(name for name in TABLES if name not in FINAL)

if __name__ == "__main__":
    PATH.write_text("\n".join(draw()) + "\n")
    print(PATH.read_text())
