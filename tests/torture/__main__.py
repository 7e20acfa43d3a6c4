"""``python -m tests.torture``: runs the attacks in blocks, keeps what is done, and prints a table of what was tried.

A run that was interrupted goes on where it stopped. Progress made with other code or another seed is not used.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.torture.attacks import Attack, find_attacks
from tests.torture.block import run_block
from tests.torture.outcome import Outcome

HOUSE = Path(__file__).parents[2]
# Blocks of an attack: how much of it an interruption can cost.
BLOCKS = 20
SHOWN = 10


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if any case broke a promise."""
    attacks = find_attacks()
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="attack", help=f"of {', '.join(attacks)}; all if absent")
    parser.add_argument("--count", type=int, help="cases of each attack; its own number if absent")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, default=HOUSE / ".torture", help="folder of the progress")
    parser.add_argument("--fresh", action="store_true", help="begin again")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - set(attacks):
        parser.error(f"no such attack: {', '.join(sorted(unknown))}")
    asked.state.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for name in asked.names or attacks:
        outcomes[name] = run_attack(attacks[name], asked.count, asked.seed, asked.state, asked.fresh)
    print(table(outcomes))
    for name, (outcome, _) in outcomes.items():
        for sentence in outcome.bad[:SHOWN]:
            print(f"{name}: {sentence}")
        if len(outcome.bad) > SHOWN:
            print(f"{name}: and {len(outcome.bad) - SHOWN} more, in {asked.state}")
    return int(any(outcome.bad for outcome, _ in outcomes.values()))


def run_attack(attack: Attack, count: int | None, seed: int, state: Path, fresh: bool) -> tuple[Outcome, float]:
    """Run the cases that are not done yet; return the outcome of all of them and the seconds they took."""
    count = attack.DEFAULT_COUNT if count is None else count
    place = state / f"{attack.NAME}.json"
    key = {"seed": seed, "code": code_digest()}
    done: dict[str, Any] = {"first": 0, "seconds": 0.0, "outcome": asdict(Outcome())}
    if place.is_file() and not fresh:
        stored = json.loads(place.read_text())
        if {name: stored[name] for name in key} == key and stored["first"] <= count:
            done = stored
    outcome = Outcome(**done["outcome"])
    first, seconds = done["first"], done["seconds"]
    size = -(-count // BLOCKS)
    while first < count:
        _show(f"{attack.NAME}: {first} of {count} tried, {len(outcome.bad)} bad, {seconds:.0f} s")
        begun = time.perf_counter()
        step = min(size, count - first)
        outcome += run_block(attack.__name__, first, step, seed)
        first, seconds = first + step, seconds + time.perf_counter() - begun
        text = json.dumps(key | {"first": first, "seconds": seconds, "outcome": asdict(outcome)}, indent=1)
        part = place.with_suffix(".part")
        part.write_text(text)
        part.replace(place)
    _show(f"{attack.NAME}: {count} tried, {len(outcome.bad)} bad, {seconds:.0f} s\n")
    return outcome, seconds


def code_digest() -> str:
    """Return a digest of the library and the attacks: what was tried holds for this code only."""
    digest = hashlib.sha256()
    for folder in ("src", "tests/torture"):
        for path in sorted((HOUSE / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def table(outcomes: dict[str, tuple[Outcome, float]]) -> str:
    """Return what was tried as a table in Markdown."""
    lines = ["| attack | tried | what came of it | bad | seconds |", "|---|---:|---|---:|---:|"]
    for name, (outcome, seconds) in outcomes.items():
        counts = ", ".join(f"{what} {number}" for what, number in sorted(outcome.counts.items()))
        lines.append(f"| {name} | {outcome.tried} | {counts} | {len(outcome.bad)} | {seconds:.0f} |")
    return "\n".join(lines)


def _show(text: str) -> None:
    """Show progress: over the line before in a terminal, below it in a file."""
    sys.stderr.write(f"\r\x1b[K{text}" if sys.stderr.isatty() else f"{text.rstrip()}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
