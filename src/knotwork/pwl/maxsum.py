"""Weighted sums of maxima of affine functions: differences of convex functions and sums of oblique hinges."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from knotwork.arrays import Floats, FrozenArrays, read_numbers
from knotwork.errors import DataError
from knotwork.parameters import is_sequence, shown
from knotwork.pwl.lattice import LatticePWL, require_alike

# Pieces beyond which a sum is not multiplied out into a lattice.
MAX_PIECES = 20_000


@dataclass(frozen=True, eq=False)
class MaxSum(FrozenArrays):
    """f_k(x) = affine[k]·[1, x] + Σ_g coef[g, k] · max over j in groups[g] of theta[j]·[1, x].

    Parameters
    ----------
    theta : (pieces, d + 1), the constant first
    groups : sequence of sets of piece numbers
    coef : (groups, outputs)
    affine : (outputs, d + 1)

    Examples
    --------
    >>> f = MaxSum([[0.0, 0.0], [-1.0, 2.0]], [(0, 1)], [[3.0]], [[1.0, 0.0]])    # 1 + 3·max(0, 2x − 1)
    >>> f([[0.0], [1.0]])
    array([1., 4.])
    >>> f.maxima([[0.0], [1.0]]).tolist(), f.inputs
    ([[0.0], [1.0]], 1)
    >>> f.to_lattice()([[0.0], [1.0]]).tolist(), MaxSum.stack([f, f])([[1.0]]).tolist()
    ([1.0, 4.0], [[4.0, 4.0]])
    """

    theta: Floats
    groups: tuple[tuple[int, ...], ...]
    coef: Floats
    affine: Floats

    def __post_init__(self) -> None:
        if not is_sequence(self.groups) or not all(isinstance(g, Iterable) for g in self.groups):
            raise DataError(f"groups must be a sequence of sets of piece numbers, got {shown(self.groups)}")
        lattice = LatticePWL(self.theta, tuple((tuple(g),) for g in self.groups))  # checks both
        object.__setattr__(self, "theta", lattice.theta)
        object.__setattr__(self, "groups", tuple(sets[0] for sets in lattice.outputs))
        for name in ("coef", "affine"):
            array = np.array(read_numbers(getattr(self, name), name), ndmin=2)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        outputs = len(self.affine)
        expected = ((len(self.groups), outputs), (outputs, self.theta.shape[1]))
        if (self.coef.shape, self.affine.shape) != expected:
            raise DataError(
                f"coef must have shape (groups, outputs) and affine (outputs, d + 1), here {expected[0]} and "
                f"{expected[1]}, got {self.coef.shape} and {self.affine.shape}"
            )

    @property
    def inputs(self) -> int:
        """Number of features, d."""
        return self.theta.shape[1] - 1

    def maxima(self, X: ArrayLike) -> Floats:
        """Return the maximum of each group: (N, d) → (N, groups)."""
        return LatticePWL(self.theta, tuple((g,) for g in self.groups))(X)

    def __call__(self, X: ArrayLike) -> Floats:
        """Evaluate: (N, d) → (N,) for one output, (N, outputs) for several."""
        maxima = self.maxima(X)
        rows = read_numbers(X, "X")
        out = maxima @ self.coef + rows @ self.affine[:, 1:].T + self.affine[:, 0]
        return out[:, 0] if out.shape[1] == 1 else out

    @staticmethod
    def stack(functions: Sequence[MaxSum]) -> MaxSum:
        """Put functions of one output each side by side: one table of pieces, one output per function."""
        require_alike(functions, MaxSum)
        starts = np.cumsum([0, *(len(f.theta) for f in functions)]).tolist()
        groups = [tuple(start + j for j in g) for start, f in zip(starts, functions, strict=False) for g in f.groups]
        coef = np.concatenate(
            [np.outer(f.coef[:, 0], row) for f, row in zip(functions, np.eye(len(functions)), strict=True)]
        )
        theta, affine = (np.concatenate([getattr(f, name) for f in functions]) for name in ("theta", "affine"))
        return MaxSum(theta, tuple(groups), coef, affine)

    def to_lattice(self) -> LatticePWL:
        """Multiply out: Σ max is a maximum over choices of one piece per group, −max is a minimum.

        The pieces are as many as there are choices, so this is for a difference of two maxima or a few hinges; a
        network of the sum itself is far smaller.
        """
        rows: list[Floats] = []
        outputs = []
        for k in range(len(self.affine)):
            up = [self.theta[list(g)] * c for g, c in zip(self.groups, self.coef[:, k], strict=True) if c > 0]
            down = [self.theta[list(g)] * c for g, c in zip(self.groups, self.coef[:, k], strict=True) if c < 0]
            count = int(np.prod([float(len(part)) for part in (*up, *down)]))
            if len(rows) + count > MAX_PIECES:
                raise DataError(
                    f"a lattice is written out up to {MAX_PIECES} pieces, this sum has {count:.3g} of them; "
                    f"to_network takes the sum as it is"
                )
            sets = []
            for low in itertools.product(*down):
                base = self.affine[k] + np.sum(low, axis=0)
                members = [base + np.sum(high, axis=0) for high in itertools.product(*up)]
                sets.append(tuple(range(len(rows), len(rows) + len(members))))
                rows += members
            outputs.append(tuple(sets))
        return LatticePWL(np.array(rows), tuple(outputs) if len(outputs) > 1 else outputs[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MaxSum) and self.groups == other.groups and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("theta", "coef", "affine")
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.groups, self.theta.tobytes(), self.coef.tobytes(), self.affine.tobytes()))
