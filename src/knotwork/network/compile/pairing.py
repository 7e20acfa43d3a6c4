"""Who is compared with whom: minima of maxima as levels of pairs.

Level by level the members of every set are paired until one is left of each; then the sets of every output are. Equal
pairs are one node, and pairs that several sets contain are made first, so that sets share what they can.

The maximum of a pair is written lead + R(other − lead), the minimum lead − R(lead − other): the lead is what has to be
carried on. Every node so is an affine piece (its lead's lead) plus and minus things that are not negative.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from knotwork.arrays import Floats


@dataclass(frozen=True)
class Level:
    """Pairs of nodes of the level before: sense +1 (max) or −1 (min); merges (lead, other), other −1 for none."""

    sense: int
    merges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Plan:
    """Levels from the pieces to the groups, and the node of each group after the last level."""

    levels: tuple[Level, ...]
    ends: tuple[int, ...]


def plan_pairs(theta: Floats, groups: Sequence[Sequence[Sequence[int]]]) -> Plan:
    """Plan the minimum over i of the maximum over groups[g][i] of the pieces theta (P, d + 1), for every group g."""
    flat = np.asarray(~theta[:, 1:].any(axis=1))
    root = list(range(len(theta)))  # the piece that leads each node
    places: dict[frozenset[int], int] = {}
    for group in groups:
        for members in group:
            places.setdefault(frozenset(members), len(places))
    sets = [sorted(s) for s in places]
    levels: list[Level] = []
    sets, root = _reduce(sets, root, flat, 1, levels)
    tops = [list(dict.fromkeys(sets[places[frozenset(s)]][0] for s in group)) for group in groups]
    tops, root = _reduce(tops, root, flat, -1, levels)
    return Plan(tuple(levels), tuple(t[0] for t in tops))


def _reduce(
    sets: list[list[int]], root: list[int], flat: NDArray[np.bool_], sense: int, levels: list[Level]
) -> tuple[list[list[int]], list[int]]:
    """Pair the members of all sets, level by level, until each has one."""
    while max(len(s) for s in sets) > 1:
        partner = _shared_partners(sets, len(root))
        merges = _Merges(root, flat)
        paired = []
        for members in sets:
            present, out, rest = set(members), [], []
            for a in members:
                b = partner.get(a, -1)
                if b in present and partner.get(b, -1) == a:
                    if a < b:
                        out.append(merges.add(a, b))
                else:
                    rest.append(a)
            out += [merges.add(a, b) for a, b in zip(rest[::2], rest[1::2], strict=False)]
            if len(rest) % 2:
                out.append(merges.add(rest[-1], -1))
            paired.append(sorted(set(out)))
        levels.append(Level(sense, tuple(merges.places)))
        root = [root[lead] for lead, _ in merges.places]
        sets = paired
    return sets, root


class _Merges:
    """The pairs of a level, each once, with the lead that costs less in front."""

    def __init__(self, root: list[int], flat: NDArray[np.bool_]) -> None:
        self.places: dict[tuple[int, int], int] = {}
        self._root, self._flat = root, flat
        self._leads: set[int] = set()

    def add(self, a: int, b: int) -> int:
        """Return the number of a pair, or of a node alone (b = −1)."""
        for known in ((a, b), (b, a)):
            if known in self.places:
                return self.places[known]
        lead, other = (a, b) if b < 0 or self._rank(a) <= self._rank(b) else (b, a)
        self._leads.add(self._root[lead])
        return self.places.setdefault((lead, other), len(self.places))

    def _rank(self, node: int) -> int:
        """Rank leads: a constant needs no carrying, a piece that leads another pair already is carried anyway."""
        root = self._root[node]
        return 0 if self._flat[root] else 1 if root in self._leads else 2


def _shared_partners(sets: list[list[int]], nodes: int) -> dict[int, int]:
    """Match nodes that occur together in several sets, those in the largest number of sets first."""
    if len(sets) < 2:
        return {}
    columns = np.concatenate([np.asarray(s, dtype=np.int64) for s in sets])
    rows = np.repeat(np.arange(len(sets)), [len(s) for s in sets])
    member = sparse.csr_array((np.ones(len(rows), dtype=np.int32), (rows, columns)), shape=(len(sets), nodes))
    together = sparse.triu(member.T @ member, k=1).tocoo()
    several = together.data > 1
    partner: dict[int, int] = {}
    order = np.lexsort((together.col[several], together.row[several], -together.data[several]))
    for a, b in zip(together.row[several][order].tolist(), together.col[several][order].tolist(), strict=True):
        if a not in partner and b not in partner:
            partner[a], partner[b] = b, a
    return partner
