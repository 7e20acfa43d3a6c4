"""Long attacks on what knotwork promises; ``make torture`` runs them all, ``make test`` a short version of each.

An attack is a module of this package with

- ``NAME: str`` and ``DEFAULT_COUNT: int``, the cases of a full run,
- ``SHORT_COUNT: int``, the cases that ``make test`` runs (leave it out if a test of its own does that),
- ``FORKS = True`` if it forks: then ``make test`` runs it in a process of its own,
- ``attack(first: int, count: int, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome``.

``attack`` tries the cases first, …, first + count − 1. A case depends on the seed and its number alone, so that the
runner can go on after an interruption. ``folder`` is empty and the attack's own. ``report`` takes a few words on the
case that begins: if the process dies or hangs, the runner quotes the last ones.
"""
