"""The published way to compute a lattice, kept for comparison: max(x, y) = (x + y)/2 + R((x − y)/2) + R((y − x)/2).

The sum is carried by two units, so that a pair takes four; sets share nothing.
"""

from __future__ import annotations

import numpy as np
import torch

from knotwork.arrays import Floats
from knotwork.network.activations import activation_rule
from knotwork.network.chain import Chain, Layer
from knotwork.network.compile.size import published_levels
from knotwork.pwl.lattice import LatticePWL


def published_chain(lattice: LatticePWL) -> Chain:
    """Write a lattice as a chain of ReLU layers, four units a pair and two for a value without a partner."""
    levels = published_levels(lattice)
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
    hidden.append(Layer(torch.from_numpy(value), torch.from_numpy(constant)))
    return Chain.of(hidden, activation_rule("relu"))


def arora_units(lattice: LatticePWL) -> int:
    """Units that Arora et al. (2018, lemma D.3) grant: 4(2m − 1) for a maximum of m values, per set and per output."""
    return sum(4 * (2 * len(sets) - 1) + sum(4 * (2 * len(s) - 1) for s in sets) for sets in lattice.outputs)


def arora_layers(lattice: LatticePWL) -> int:
    """Hidden layers that suffice for any function of d features: ⌈log₂(d + 1)⌉ (Arora et al. 2018, theorem 2.1)."""
    return lattice.inputs.bit_length()
