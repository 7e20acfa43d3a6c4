"""The compiled loops behind numbers of rows: bits of columns, mixed into them."""

from __future__ import annotations

import numpy as np

from knotwork.compute.compiled import compiled


@compiled
def mix_in(bits, mixed):  # type: ignore[no-untyped-def]
    """Mix the bits of float64 columns (d, N) into the numbers of their rows, one column after the other, in place.

    The same as ``mix(mixed, hash_array(column))``, pandas' hash being the finaliser of SplitMix64, in a tenth of the
    time.
    """
    first, second = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
    for f in range(len(bits)):
        for row in range(mixed.size):
            i = np.uint64(row)
            v = bits[f, i]
            v = (v ^ (v >> np.uint64(30))) * first
            v = (v ^ (v >> np.uint64(27))) * second
            v = (mixed[i] ^ v ^ (v >> np.uint64(31))) * first
            mixed[i] = v ^ (v >> np.uint64(31))


@compiled
def mix_rows(bits, columns, responses, factors, numbers):  # type: ignore[no-untyped-def]
    """Write a number per row: bits (N, d) of float64 values, of which some columns count, and responses (N, p) alike.

    −0.0 counts as 0.0. The low bits of whole numbers are zeros: the high ones fill them. The finaliser of SplitMix64
    then makes all bits of the sum decide about each bit of the number.
    """
    minus_zero, half = np.uint64(1 << 63), np.uint64(32)
    first, second = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
    d = columns.size
    for i in range(numbers.size):
        total = np.uint64(0)
        for j in range(d):
            v = bits[i, columns[j]]
            v = np.uint64(0) if v == minus_zero else v
            total += (v ^ (v >> half)) * factors[j]
        for k in range(responses.shape[1]):
            v = responses[i, k]
            v = np.uint64(0) if v == minus_zero else v
            total += (v ^ (v >> half)) * factors[d + k]
        total = (total ^ (total >> np.uint64(30))) * first
        total = (total ^ (total >> np.uint64(27))) * second
        numbers[i] = total ^ (total >> np.uint64(31))
