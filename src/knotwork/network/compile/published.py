"""The published way to compute a lattice, kept for comparison: max(x, y) = (x + y)/2 + R((x − y)/2) + R((y − x)/2).

The sum is carried by two units, so that a pair takes four; sets share nothing.
"""

from __future__ import annotations

import numpy as np
import torch

from knotwork.arrays import Floats
from knotwork.network.activations import activation_rule
from knotwork.network.chain import Chain, Layer
from knotwork.pwl.lattice import LatticePWL


def published_chain(lattice: LatticePWL) -> Chain:
    """Write a lattice as a chain of ReLU layers, four units a pair and two for a value without a partner."""
    levels = _levels(lattice)
    value = np.array([lattice.theta[j, 1:] for sets in lattice.outputs for s in sets for j in s])
    constant = np.array([lattice.theta[j, 0] for sets in lattice.outputs for s in sets for j in s])
    hidden = []
    for sense, pairs in levels:
        rows: list[Floats] = []
        biases: list[float] = []
        forms: list[tuple[int, list[float]]] = []
        for a, b in pairs:
            mean = ((value[a] + value[b]) / 2, (constant[a] + constant[b]) / 2)
            half = ((value[a] - value[b]) / 2, (constant[a] - constant[b]) / 2)
            units = [mean, (-mean[0], -mean[1])]
            signs = [1.0, -1.0]
            if a != b:
                units += [half, (-half[0], -half[1])]
                signs += [float(sense)] * 2
            forms.append((len(rows), signs))
            rows += [u[0] for u in units]
            biases += [u[1] for u in units]
        hidden.append(Layer(torch.from_numpy(np.array(rows)), torch.from_numpy(np.array(biases))))
        value = np.zeros((len(pairs), len(rows)))
        for i, (start, signs) in enumerate(forms):
            value[i, start : start + len(signs)] = signs
        constant = np.zeros(len(pairs))
    rule = activation_rule("relu")
    output = Layer(torch.from_numpy(value), torch.from_numpy(constant))
    return Chain(tuple(hidden), output, rule, tuple(rule.new_module() for _ in hidden))


def published_widths(lattice: LatticePWL) -> tuple[int, ...]:
    """Units of each hidden layer of the published construction."""
    return tuple(sum(2 if a == b else 4 for a, b in pairs) for _, pairs in _levels(lattice))


def _levels(lattice: LatticePWL) -> list[tuple[int, list[tuple[int, int]]]]:
    """Pairs of places of each level: first within sets (sense +1), then within outputs (−1); (a, a) is carried on."""
    sizes = [[len(s) for s in sets] for sets in lattice.outputs]
    levels: list[tuple[int, list[tuple[int, int]]]] = []
    counts = [n for sets in sizes for n in sets]
    for sense, run in ((1, counts), (-1, [len(sets) for sets in sizes])):
        run = list(run)
        while max(run) > 1 or (not levels and sense < 0):
            pairs: list[tuple[int, int]] = []
            start = 0
            for n in run:
                pairs += [(start + k, start + min(k + 1, n - 1)) for k in range(0, n, 2)]
                start += n
            run = [-(-n // 2) for n in run]
            levels.append((sense, pairs))
    return levels
