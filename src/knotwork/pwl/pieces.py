"""Functions given piece by piece: polytopes with an affine function on each, checked for continuity, as a lattice."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.spatial import ConvexHull, HalfspaceIntersection, QhullError

from knotwork.arrays import Floats, FrozenArrays, read_numbers
from knotwork.errors import DataError, one_line
from knotwork.parameters import checked, is_sequence, number, shown
from knotwork.pwl.cells import clip, cut
from knotwork.pwl.lattice import LatticePWL

# Differences of values, relative to the largest value on the pieces, that count as none.
CLOSE = 1e-9
# Distance, relative to the largest coordinate, at which corners touch; how many times that a cut may go too far.
NEAR, FAR = 1e-11, 1e4


@dataclass(frozen=True, eq=False)
class Piece(FrozenArrays):
    """An affine function on a bounded polytope.

    Parameters
    ----------
    A, b : (m, d) and (m,), the polytope A·x ≤ b
    theta : (d + 1,) or (outputs, d + 1), the function theta·[1, x]

    Examples
    --------
    >>> piece = Piece(A=[[1.0], [-1.0]], b=[1.0, 0.0], theta=[2.0, 3.0])  # 2 + 3·x on [0, 1]
    >>> piece.theta
    array([[2., 3.]])
    """

    A: Floats
    b: Floats
    theta: Floats

    def __post_init__(self) -> None:
        A = np.array(read_numbers(self.A, "A"), ndmin=2)
        b = np.array(read_numbers(self.b, "b"), ndmin=1)
        theta = np.array(read_numbers(self.theta, "theta"), ndmin=2)
        if A.ndim != 2 or b.shape != (len(A),) or theta.shape[1:] != (A.shape[1] + 1,):
            raise DataError(
                f"a piece takes A (m, d), b (m,) and theta (d + 1,) or (outputs, d + 1), got {A.shape}, {b.shape} and "
                f"{np.shape(self.theta)}"
            )
        if not all(np.isfinite(v).all() for v in (A, b, theta)):
            raise DataError("a piece must be finite, got NaN or inf")
        length = np.linalg.norm(A, axis=1)
        used = length > 0
        for name, value in (("A", A[used] / length[used, None]), ("b", b[used] / length[used]), ("theta", theta)):
            value.setflags(write=False)
            object.__setattr__(self, name, value)

    @classmethod
    def hull(cls, points: ArrayLike, theta: ArrayLike) -> Piece:
        """Make a piece of the convex hull of points (n, d).

        >>> import knotwork as kw
        >>> kw.Piece.hull([[0, 0], [1, 0], [0, 1]], [0.0, 1.0, 1.0])([[0.25, 0.25]]).tolist()
        [[0.5]]
        """
        corners = np.array(read_numbers(points, "points"), ndmin=2)
        if corners.ndim != 2 or corners.size == 0 or not np.isfinite(corners).all():
            raise DataError(f"points must be finite, of shape (n, d), got shape {corners.shape}")
        if corners.shape[1] == 1:
            low, high = corners.min(), corners.max()
            return cls(np.array([[-1.0], [1.0]]), np.array([-low, high]), read_numbers(theta, "theta"))
        try:
            hull = ConvexHull(corners)
        except QhullError as error:
            raise DataError(
                f"points must span {corners.shape[1]} dimensions, at least {corners.shape[1] + 1} of them, got "
                f"{len(corners)} that do not ({one_line(error, 80)})"
            ) from None
        equations = np.unique(hull.equations, axis=0)
        piece = cls(equations[:, :-1], -equations[:, -1], read_numbers(theta, "theta"))
        piece.__dict__["points"] = corners[hull.vertices]
        return piece

    @cached_property
    def points(self) -> Floats:
        """The corners of the polytope, going around it in two dimensions: (n, d).

        >>> import knotwork as kw
        >>> kw.Piece.hull([[0, 0], [1, 0], [0, 1]], [0.0, 1.0, 1.0]).points.shape
        (3, 2)
        """
        if self.A.shape[1] == 1:
            up = self.A[:, 0] > 0
            if not (up.any() and (~up).any()):
                raise _unbounded()
            ends = [(self.b / self.A[:, 0])[~up].max(), (self.b / self.A[:, 0])[up].min()]
            if ends[0] >= ends[1]:
                raise DataError(f"a polytope must have an interior, got the interval from {ends[0]:g} to {ends[1]:g}")
            return np.array(ends)[:, None]
        centre = _centre(self.A, self.b)
        try:
            corners = HalfspaceIntersection(np.column_stack([self.A, -self.b]), centre).intersections
            corners = np.unique(np.round(corners - centre, 14), axis=0) + centre
            return corners[ConvexHull(corners).vertices]
        except (QhullError, ValueError) as error:
            raise DataError(f"a polytope must be bounded with an interior: {one_line(error, 80)}") from None

    def __call__(self, X: ArrayLike) -> Floats:
        """Evaluate the affine function, inside the polytope or not: (N, d) → (N, outputs)."""
        return self._rows(X) @ self.theta[:, 1:].T + self.theta[:, 0]

    @checked(tolerance=number())
    def contains(self, X: ArrayLike, tolerance: float = 1e-9) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether rows lie in the polytope, to within a distance: (N, d) → (N,).

        >>> import knotwork as kw
        >>> triangle = kw.Piece.hull([[0, 0], [1, 0], [0, 1]], [0.0, 1.0, 1.0])
        >>> triangle.contains([[0.25, 0.25], [2.0, 2.0]]).tolist()
        [True, False]
        """
        return np.asarray((self._rows(X) @ self.A.T <= self.b + tolerance).all(axis=1))

    def _rows(self, X: ArrayLike) -> Floats:
        rows = read_numbers(X, "X")
        if rows.ndim != 2 or rows.shape[1] != self.theta.shape[1] - 1:
            features = self.theta.shape[1] - 1
            raise DataError(f"a piece of {features} features takes rows of shape (N, {features}), got {rows.shape}")
        return rows


def _centre(A: Floats, b: Floats) -> Floats:
    """Return the centre of the largest ball in a polytope."""
    d = A.shape[1]
    result = linprog(
        np.r_[np.zeros(d), -1.0],
        A_ub=np.column_stack([A, np.ones(len(A))]),
        b_ub=b,
        bounds=[*[(None, None)] * d, (0, None)],
        method="highs",
    )
    if result.status in (3, 4):
        raise _unbounded()
    if result.status != 0 or -result.fun <= 0:
        raise DataError("a polytope must have an interior, got A·x ≤ b with none")
    return result.x[:-1]


def _unbounded() -> DataError:
    return DataError("a polytope must be bounded, got an unbounded one; add the sides of a box to it")


@dataclass(frozen=True, eq=False)
class Pieces:
    """A function given by its pieces, which together cover a convex set (a box, say).

    Attributes
    ----------
    pieces : tuple of Piece, with the same numbers of features and outputs
    exact : whether these are all the pieces; False if they were found by sampling
    coverage : share of the set that they cover: 1, or an estimate from fresh samples

    Examples
    --------
    >>> left = Piece([[1.0], [-1.0]], [0.0, 1.0], [0.0, -1.0])  # -x on [-1, 0]
    >>> right = Piece([[1.0], [-1.0]], [1.0, 0.0], [0.0, 1.0])  # x on [0, 1]
    >>> f = Pieces((left, right))  # |x|
    >>> len(f), f.check_continuity(), f.to_lattice()([[-0.5]]).tolist()
    (2, 0.0, [0.5])
    """

    pieces: tuple[Piece, ...]
    exact: bool = True
    coverage: float = 1.0

    def __post_init__(self) -> None:
        if not is_sequence(self.pieces) or not all(isinstance(p, Piece) for p in self.pieces):
            raise DataError(f"pieces must be a tuple of Piece, got {shown(self.pieces)}")
        object.__setattr__(self, "pieces", tuple(self.pieces))
        shapes = {piece.theta.shape for piece in self.pieces}
        if len(shapes) != 1:
            raise DataError(
                f"pieces must be at least one and alike, got theta of shapes {', '.join(map(str, sorted(shapes)))}"
                if shapes
                else "pieces must be at least one, got none"
            )

    def __len__(self) -> int:
        return len(self.pieces)

    def __call__(self, X: ArrayLike) -> Floats:
        """Evaluate by finding the piece of each row: (N, d) → (N,) or (N, outputs); NaN where there is none."""
        rows = self.pieces[0]._rows(X)
        out = np.full((len(rows), len(self.pieces[0].theta)), np.nan)
        for piece in self.pieces:
            missing = np.flatnonzero(np.isnan(out[:, 0]))
            inside = missing[piece.contains(rows[missing])]
            out[inside] = piece(rows[inside])
        return out[:, 0] if out.shape[1] == 1 else out

    @checked(tolerance=number(0).optional)
    def check_continuity(self, tolerance: float | None = None) -> float:
        """Return the largest difference of two pieces where they meet; refuse more than the tolerance.

        The message names the two pieces and a place where they disagree. None is 1e-9 of the largest value.
        """
        size = max(float(np.abs(piece(piece.points)).max()) for piece in self.pieces)
        limit = CLOSE * size if tolerance is None else tolerance
        reach = float(np.abs(np.concatenate([piece.points for piece in self.pieces])).max())
        near = NEAR * reach
        boxes = [(p.points.min(axis=0) - near, p.points.max(axis=0) + near) for p in self.pieces]
        low, high = (np.array([box[k] for box in boxes]) for k in (0, 1))
        worst = 0.0
        for i, first in enumerate(self.pieces):
            others = np.flatnonzero((low[i + 1 :] <= high[i]).all(axis=1) & (high[i + 1 :] >= low[i]).all(axis=1))
            for j in (others + i + 1).tolist():
                common, slack = _meeting_points(first, self.pieces[j], near)
                gap = np.abs(first(common) - self.pieces[j](common)).max(axis=1, initial=0.0)
                excess = gap - slack * float(np.abs(first.theta - self.pieces[j].theta)[:, 1:].sum(axis=1).max())
                if not len(gap):
                    continue
                k = int(excess.argmax())
                if excess[k] > limit:
                    raise DataError(
                        f"pieces must agree where they meet, pieces {i} and {j} differ by {gap[k]:.3g} at "
                        f"x = [{', '.join(f'{v:.6g}' for v in common[k])}]: the function is not continuous there; "
                        f"correct one of them, or fit kw.MarsRegressor to its values"
                    )
                worst = max(worst, float(excess[k]))
        return worst

    def to_lattice(self) -> LatticePWL:
        """Write the function as a lattice, equal to it wherever the pieces are.

        There is one set for every cell in which the order of the affine functions is constant: those that are not above
        the function there. (One set per piece is not enough in general: another affine function may cross the piece.)
        """
        if not self.exact:
            raise DataError(
                f"a lattice needs all pieces, these were found by sampling and cover {self.coverage:.1%} of the box; "
                f"use a network of one or two inputs, or fit kw.DCMaxAffineRegressor to its outputs"
            )
        self.check_continuity()
        lattices = [self._output_lattice(k) for k in range(len(self.pieces[0].theta))]
        return lattices[0] if len(lattices) == 1 else LatticePWL.stack(lattices)

    def _output_lattice(self, output: int) -> LatticePWL:
        corners = np.concatenate([piece.points for piece in self.pieces])
        all_theta = np.array([piece.theta[output] for piece in self.pieces])
        values = corners @ all_theta[:, 1:].T + all_theta[:, 0]
        tolerance = CLOSE * float(np.abs(values).max() or 1.0)
        theta, number = _distinct(all_theta, values, tolerance)
        found: list[int] = []
        for piece, active in zip(self.pieces, number, strict=True):
            _add_order_sets(piece.points, theta - theta[active], tolerance, found)
        sets = tuple(tuple(j for j in range(len(theta)) if mask >> j & 1) for mask in found)
        lattice = LatticePWL(theta, sets).simplify()
        self._require_equal(lattice, output, tolerance)
        return lattice

    def _require_equal(self, lattice: LatticePWL, output: int, tolerance: float) -> None:
        """Refuse pieces that the lattice is not equal to: it holds for functions on convex sets only."""
        for k, piece in enumerate(self.pieces):
            X = np.vstack([piece.points, piece.points.mean(axis=0)])
            gap = np.abs(lattice(X) - piece(X)[:, output])
            if gap.max() > 100 * tolerance:
                raise DataError(
                    f"pieces must cover a convex set, these do not: no lattice of them is piece {k} (off by "
                    f"{gap.max():.3g}); add the pieces that are missing in between"
                )


def _meeting_points(first: Piece, second: Piece, near: float) -> tuple[Floats, Floats]:
    """Return corners of the set where two pieces meet, and how far each may be from it."""
    touching = [first.points[second.contains(first.points, near)], second.points[first.contains(second.points, near)]]
    # Where pieces overlap, or faces cross without a corner on either side: cut out, which at sharp angles goes too far.
    cut_out = clip(first.points, second.A, second.b, near)
    if cut_out is not None:
        touching.append(cut_out)
    slack = [np.full(len(points), k) for points, k in zip(touching, (2 * near, 2 * near, FAR * near), strict=False)]
    return np.concatenate(touching), np.concatenate(slack)


def _distinct(theta: Floats, values: Floats, tolerance: float) -> tuple[Floats, list[int]]:
    """Merge affine functions whose values at the corners are the same to within the tolerance."""
    kept: list[int] = []
    number = []
    for k in range(len(theta)):
        same = [i for i, j in enumerate(kept) if np.abs(values[:, k] - values[:, j]).max() <= tolerance]
        number.append(same[0] if same else len(kept))
        if not same:
            kept.append(k)
    return theta[kept], number


def _add_order_sets(points: Floats, difference: Floats, tolerance: float, found: list[int]) -> None:
    """Cut a piece where other functions cross its own, and add the set of every cell to ``found``, as bits of a number.

    A set that contains another one is of no use, so a cell is cut no further once the functions that are below its own
    all over it contain a set that was found; cells with few of them come first.
    """
    cells = [points]
    while cells:
        cell = cells.pop()
        values = cell @ difference[:, 1:].T + difference[:, 0]
        above, below = (values > tolerance).any(axis=0), (values < -tolerance).any(axis=0)
        mask = int.from_bytes(np.packbits(~above, bitorder="little").tobytes(), "little")
        if any(known & ~mask == 0 for known in found):
            continue
        crossing = np.flatnonzero(above & below)
        if crossing.size == 0:
            found.append(mask)
            continue
        low, high = cut(cell, values[:, crossing[0]], tolerance)
        cells += [part for part in (low, high) if part is not None]
