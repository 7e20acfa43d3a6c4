"""The lattice form: every continuous piecewise-linear function is a minimum of maxima of affine functions.

f(x) = min over i of max over j in sets[i] of theta[j]·[1, x]. Several outputs share one table of pieces; each output
has sets of its own. Nothing here needs more than numpy.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from knotwork.arrays import Floats, FrozenArrays, read_numbers
from knotwork.errors import DataError, one_line
from knotwork.parameters import shown

Sets = tuple[tuple[int, ...], ...]

# Values of pieces held at a time when many rows are evaluated.
CHUNK = 1 << 21


def require_alike(functions: Any, kind: type) -> None:
    """Refuse to stack anything but functions of one kind and of the same features."""
    if not isinstance(functions, (tuple, list)) or not functions or not all(isinstance(f, kind) for f in functions):
        raise DataError(f"stack takes a list of {kind.__name__}, at least one, got {shown(functions)}")
    if len({f.inputs for f in functions}) > 1:
        numbers = ", ".join(str(f.inputs) for f in functions)
        raise DataError(f"stack takes functions of the same features, got functions of {numbers}")


@dataclass(frozen=True, eq=False)
class LatticePWL(FrozenArrays):
    """A minimum of maxima of affine functions.

    Parameters
    ----------
    theta : (pieces, d + 1), the constant first
    sets : for one output, a sequence of sets of piece numbers; for several, a sequence of those, one per output

    Examples
    --------
    >>> f = LatticePWL([[0.0, 1.0], [0.0, -1.0], [2.0, 0.0]], [(0, 1), (2,)])     # min(|x|, 2)
    >>> f([[-1.0], [0.5], [7.0]])
    array([1. , 0.5, 2. ])
    >>> both = LatticePWL([[0.0, 1.0], [0.0, -1.0]], [[(0, 1)], [(0,), (1,)]])    # |x| and −|x|
    >>> both([[-3.0]])
    array([[ 3., -3.]])
    """

    theta: Floats
    sets: tuple[Any, ...]

    def __post_init__(self) -> None:
        theta = np.array(read_numbers(self.theta, "theta"))
        if theta.ndim != 2 or theta.shape[1] < 2 or len(theta) == 0:
            raise DataError(
                f"theta must have shape (pieces, d + 1), one row [constant, weights] per piece, got {theta.shape}"
            )
        if not np.isfinite(theta).all():
            raise DataError(f"theta must be finite, piece {int(np.argwhere(~np.isfinite(theta))[0, 0])} is not")
        theta.setflags(write=False)
        object.__setattr__(self, "theta", theta)
        sets = self.sets
        flat = isinstance(sets, str) or getattr(sets, "ndim", None) == 0
        if isinstance(sets, Iterable) and not flat:  # iterators can be read once only
            try:
                sets = tuple(tuple(s) if isinstance(s, Iterable) and not isinstance(s, str) else s for s in sets)
            except Exception as error:  # somebody's own objects may raise anything
                raise DataError(f"sets must be a sequence of sets of piece numbers: {one_line(error)}") from None
        several = _is_nested(sets)
        outputs = tuple(_read_sets(s, len(theta)) for s in (sets if several else (sets,)))
        object.__setattr__(self, "sets", outputs if several else outputs[0])

    @property
    def outputs(self) -> tuple[Sets, ...]:
        """The sets of each output.

        >>> import knotwork as kw
        >>> kw.LatticePWL([[0.0, 1.0], [0.0, -1.0]], [(0, 1)]).outputs
        (((0, 1),),)
        """
        return self.sets if _is_nested(self.sets) else (self.sets,)

    @property
    def inputs(self) -> int:
        """Number of features, d.

        >>> import knotwork as kw
        >>> kw.LatticePWL([[0.0, 1.0], [0.0, -1.0]], [(0, 1)]).inputs
        1
        """
        return self.theta.shape[1] - 1

    def __call__(self, X: ArrayLike) -> Floats:
        """Evaluate: (N, d) → (N,), or (N, outputs) if ``sets`` was given per output."""
        rows = read_numbers(X, "X")
        if rows.ndim != 2 or rows.shape[1] != self.inputs:
            raise DataError(
                f"this function of {self.inputs} features takes rows of shape (N, {self.inputs}), got {rows.shape}"
            )
        out = np.empty((len(rows), len(self.outputs)))
        step = max(1, CHUNK // len(self.theta))
        for start in range(0, len(rows), step):
            chunk = slice(start, start + step)
            values = rows[chunk] @ self.theta[:, 1:].T + self.theta[:, 0]
            for k, sets in enumerate(self.outputs):
                out[chunk, k] = np.min([values[:, list(s)].max(axis=1) for s in sets], axis=0)
        return out if _is_nested(self.sets) else out[:, 0]

    @staticmethod
    def stack(functions: Sequence[LatticePWL]) -> LatticePWL:
        """Put functions of one output each side by side: one table of pieces, one output per function.

        >>> import knotwork as kw
        >>> f = kw.LatticePWL([[0.0, 1.0], [0.0, -1.0]], [(0, 1)])
        >>> kw.LatticePWL.stack([f, f])([[2.0]]).tolist()
        [[2.0, 2.0]]
        """
        require_alike(functions, LatticePWL)
        starts = np.cumsum([0, *(len(f.theta) for f in functions)]).tolist()
        sets = tuple(
            tuple(tuple(start + j for j in s) for s in f.outputs[0])
            for start, f in zip(starts, functions, strict=False)
        )
        return LatticePWL(np.concatenate([f.theta for f in functions]), sets)

    def simplify(self, box: ArrayLike | None = None) -> LatticePWL:
        """Return the same function with fewer pieces and sets.

        Equal pieces become one. A set that contains another one never attains the minimum and is dropped, as are pieces
        in no set. With a ``box`` (minimum, maximum), pieces that are nowhere in the box above the others of their set
        are dropped too (found by linear programs); the function is then the same on the box only.

        >>> f = LatticePWL([[0.0, 1.0], [0.0, -1.0], [9.0, 0.0]], [(0, 1), (0, 1, 2), (1, 0)])
        >>> f.simplify().theta.shape, f.simplify().sets
        ((2, 2), ((0, 1),))
        """
        _, first, place = np.unique(self.theta, axis=0, return_index=True, return_inverse=True)
        # Equal pieces take the number of the first of them, so that the order stays.
        number = first[place.reshape(-1)]
        outputs = [_minimal({frozenset(int(number[j]) for j in s) for s in sets}) for sets in self.outputs]
        if box is not None:
            from knotwork.pwl.boxes import read_box
            from knotwork.pwl.domination import without_dominated

            sides = read_box(box, self.inputs)
            outputs = [_minimal({without_dominated(self.theta, s, sides) for s in sets}) for sets in outputs]
        used = sorted(frozenset().union(*(s for sets in outputs for s in sets)))
        renumber = {j: k for k, j in enumerate(used)}
        fresh = tuple(tuple(tuple(sorted(renumber[j] for j in s)) for s in sets) for sets in outputs)
        return LatticePWL(self.theta[used], fresh if _is_nested(self.sets) else fresh[0])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LatticePWL) and self.sets == other.sets and np.array_equal(self.theta, other.theta)
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.sets, self.theta.tobytes()))


def _is_nested(sets: Any) -> bool:
    """Whether sets are given per output: sequences of sequences of sequences."""
    try:
        inner = next(iter(next(iter(sets))))
    except (TypeError, StopIteration):
        return False
    return isinstance(inner, Iterable) and not isinstance(inner, (str, bytes))


def _read_sets(sets: Any, pieces: int) -> Sets:
    if not isinstance(sets, Iterable) or isinstance(sets, (str, bytes)) or getattr(sets, "ndim", 1) == 0:
        raise DataError(f"sets must be a sequence of sets of piece numbers, got {sets!r}")
    read = []
    for i, members in enumerate(sets):
        try:
            numbers = tuple(dict.fromkeys(_index(j) for j in members))
        except TypeError:
            raise DataError(f"a set must hold whole numbers of pieces, set {i} is {members!r}") from None
        if not numbers:
            raise DataError(f"a set must name at least one piece, set {i} is empty; leave it out")
        if not 0 <= min(numbers) <= max(numbers) < pieces:
            wrong = min(numbers) if min(numbers) < 0 else max(numbers)
            raise DataError(f"sets must name pieces 0 to {pieces - 1}, set {i} names {wrong}")
        read.append(numbers)
    if not read:
        raise DataError("a lattice needs at least one set of pieces, got none")
    return tuple(read)


def _index(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    return operator.index(value)


def _minimal(sets: Iterable[frozenset[int]]) -> list[frozenset[int]]:
    """Return the sets that contain no other one, smallest first."""
    kept: list[frozenset[int]] = []
    for candidate in sorted(set(sets), key=lambda s: (len(s), sorted(s))):
        if not any(smaller <= candidate for smaller in kept):
            kept.append(candidate)
    return kept
