"""Slow, obvious oracles: explicit columns, explicit least squares, no recurrences.

Nothing here shares code with the engine. Weights are integers and mean repetition.
"""

from __future__ import annotations

import itertools
import math

import numpy as np


def spans(n: int, d: int) -> tuple[int, int]:
    minspan = math.floor(-math.log2(-math.log(0.95) / (d * n)) / 2.5)
    endspan = math.floor(3 - math.log2(0.05 / d))
    return max(1, minspan), max(1, min(endspan, n // 2 - 1))


def knots(column: np.ndarray, minspan: int, endspan: int) -> list[float]:
    """Candidate knots of one column, falling: every minspan-th of the sorted values not within endspan of an end.

    Tied maxima move all positions down; the greatest value is no knot (its hinge is zero) and neither is the least
    (its hinge is the feature itself).
    """
    values = sorted(column.tolist())
    n = len(values)
    rest = (n - 2 * endspan) % minspan
    position = n - endspan - (minspan // 2 if rest == 0 else rest // 2)
    tied = values.count(values[-1])
    found: list[float] = []
    while position > endspan:
        index = position - (tied - 1)
        if index > endspan:
            value = values[index - 1]
            if value not in (values[-1], values[0]) and value not in found:
                found.append(value)
        position -= minspan
    return found


def hinge(x: np.ndarray, knot: float, sign: int) -> np.ndarray:
    return np.array([max(0.0, sign * (v - knot)) for v in x])


def residual_norm(basis: np.ndarray, column: np.ndarray) -> float:
    """Squared length of what a basis leaves of a column."""
    coefficients, *_ = np.linalg.lstsq(basis, column, rcond=None)
    return float(np.sum((column - basis @ coefficients) ** 2))


def rss(basis: np.ndarray, y: np.ndarray) -> float:
    coefficients, *_ = np.linalg.lstsq(basis, y, rcond=None)
    return float(np.sum((y - basis @ coefficients) ** 2))


def triangular_factor(basis: np.ndarray) -> np.ndarray:
    """Products of columns with the orthonormal columns that Gram and Schmidt make of them, one after the other."""
    factor = np.zeros((basis.shape[1], basis.shape[1]))
    orthonormal: list[np.ndarray] = []
    for m, column in enumerate(basis.T):
        rest = column.copy()
        for k, q in enumerate(orthonormal):
            factor[k, m] = q @ column
            rest -= factor[k, m] * q
        factor[m, m] = math.sqrt(rest @ rest)
        orthonormal.append(rest / factor[m, m])
    return factor


def gcv(rss: float, n: float, terms: int, penalty: float) -> float:
    charge = terms + penalty * (terms - 1) / 2
    if penalty == -1:
        return rss / n
    return math.inf if charge >= n else rss / (n * (1 - charge / n) ** 2)


class Search:
    """The forward search with explicit columns: scores every candidate by a least-squares fit of its own."""

    def __init__(self, X: np.ndarray, y: np.ndarray, minspan: int, endspan: int) -> None:
        self.X, self.y = X, y
        self.knots = [knots(X[:, f], minspan, endspan) for f in range(X.shape[1])]
        self.columns = [np.ones(len(X))]
        self.rss = rss(self.basis, y)

    @property
    def basis(self) -> np.ndarray:
        return np.stack(self.columns, axis=1)

    def is_free(self, f: int) -> bool:
        """Whether the feature itself is not in the span of the model."""
        x = self.X[:, f]
        return residual_norm(self.basis, x) > 1e-8 * np.sum((x - x.mean()) ** 2)

    def scores(self, collinear: float) -> dict[tuple[int, float | None], float]:
        """RSS drop of every admissible step: (feature, knot), knot None for a linear entry."""
        out: dict[tuple[int, float | None], float] = {}
        for f in range(self.X.shape[1]):
            x = self.X[:, f]
            basis = self.basis
            if self.is_free(f):
                basis = np.column_stack([basis, x])
                out[f, None] = self.rss - rss(basis, self.y)
            for knot in self.knots[f]:
                h = hinge(x, knot, 1)
                share = residual_norm(basis, h) / np.sum((h - h.mean()) ** 2)
                if share >= collinear:
                    out[f, knot] = self.rss - rss(np.column_stack([basis, h]), self.y)
        return out

    def add(self, f: int, knot: float | None) -> None:
        x = self.X[:, f]
        if knot is None:
            self.columns.append(x)
        else:
            free = self.is_free(f)
            self.columns.append(hinge(x, knot, 1))
            if free:
                self.columns.append(hinge(x, knot, -1))
        self.rss = rss(self.basis, self.y)


def backward(basis: np.ndarray, y: np.ndarray, *, prefixes: bool) -> list[float]:
    """Least RSS found for 1, 2, … columns by dropping the weakest column again and again; column 0 stays.

    With ``prefixes``, each dropped column moves to the end of the order, and every prefix of every order counts.
    """
    order = list(range(basis.shape[1]))
    size = len(order)
    best = [math.inf] * size
    while True:
        for k in range(1, size + 1) if prefixes else [size]:
            best[k - 1] = min(best[k - 1], rss(basis[:, order[:k]], y))
        if size == 1:
            return best
        costs = {m: rss(basis[:, [c for c in order[:size] if c != m]], y) for m in order[1:size]}
        weakest = min(costs, key=costs.__getitem__)
        order.remove(weakest)
        order.insert(size - 1, weakest)
        size -= 1


class ChildSearch(Search):
    """The search with interactions: explicit columns for every child of every parent.

    A term is a frozenset of hinges (feature, knot, sign); slopes are one over the features' deviations.
    """

    def __init__(
        self, X: np.ndarray, y: np.ndarray, minspan: int, endspan: int, *, degree: int, product: bool, min_mass: float
    ) -> None:
        super().__init__(X, y, minspan, endspan)
        self.degree, self.product, self.min_mass = degree, product, min_mass
        std = X.std(axis=0)
        self.slopes = 1 / np.where(std > 0, std, 1.0)
        # A feature that never bends tells rows apart by its least value.
        self.child_knots = [k or ([min(x)] if s > 0 else []) for k, x, s in zip(self.knots, X.T, std, strict=True)]
        self.parents: list[frozenset[tuple[int, float, int]]] = []

    def column(self, term: frozenset[tuple[int, float, int]]) -> np.ndarray:
        hinges = [hinge(self.X[:, f], t, s) * (1.0 if self.product else self.slopes[f]) for f, t, s in term]
        return np.prod(hinges, axis=0) if self.product else np.min(hinges, axis=0)

    def child_scores(self, collinear: float, room: int) -> dict[frozenset, float]:
        """RSS drop of every admissible step that adds children: the set of new terms → drop."""
        out: dict[frozenset, float] = {}
        basis = self.basis
        for parent in self.parents:
            b = self.column(parent)
            for f in set(range(self.X.shape[1])) - {h[0] for h in parent}:
                for knot in self.child_knots[f]:
                    above = self.X[:, f] > knot
                    if min(np.sum((b > 0) & above), np.sum((b > 0) & ~above)) < self.min_mass:
                        continue
                    pair = [parent | {(f, knot, 1)}, parent | {(f, knot, -1)}]
                    for terms, drop in self._steps(basis, pair, collinear, room).items():
                        out[terms] = max(out.get(terms, 0.0), drop)
        return out

    def _steps(self, basis, pair, collinear, room):
        """The pair if both are new beside each other, else each that is new on its own."""

        def is_new(columns, column):
            return column.any() and residual_norm(columns, column) >= collinear * np.sum((column - column.mean()) ** 2)

        new = [term for term in pair if is_new(basis, self.column(term))]
        if len(new) == 2 and room >= 2:
            first, second = (self.column(term) for term in pair)
            wider = np.column_stack([basis, first])
            if is_new(wider, second):
                return {frozenset(pair): self.rss - rss(np.column_stack([wider, second]), self.y)}
        return {frozenset([t]): self.rss - rss(np.column_stack([basis, self.column(t)]), self.y) for t in new}

    def add_terms(self, terms) -> None:
        for term in terms:
            self.columns.append(self.column(term))
        self.rss = rss(self.basis, self.y)


def multinomial_logits(
    basis: np.ndarray, codes: np.ndarray, classes: int, weights: np.ndarray, ridge: float, units: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric logits by explicit Newton steps on one coefficient per class and column, row by row.

    Their sum over the classes is free; the ridge and a share of the intercepts' squares put it at zero.
    """
    n, terms = basis.shape
    columns = np.column_stack([np.ones(n), basis / units - np.average(basis / units, axis=0, weights=weights)])
    penalty = np.repeat(np.array([1e-8] + [ridge] * terms), classes)
    theta = np.zeros((1 + terms) * classes)
    for _ in range(60):
        slope, curvature = penalty * theta, np.diag(penalty).astype(float)
        for b, code, w in zip(columns, codes, weights, strict=True):
            odds = np.exp(b @ theta.reshape(1 + terms, classes))
            p = odds / odds.sum()
            slope += w * np.kron(b, p - np.eye(classes)[code])
            curvature += w * np.kron(np.outer(b, b), np.diag(p) - np.outer(p, p))
        step = np.linalg.lstsq(curvature, slope, rcond=1e-14)[0]
        theta = theta - step * min(1.0, 5.0 / np.abs(step).max())
        if np.abs(step).max() < 1e-9:
            break
    table = theta.reshape(1 + terms, classes)
    table = table - table.mean(axis=1, keepdims=True)
    coef = table[1:] / units[:, None]
    return table[0] - np.average(basis, axis=0, weights=weights) @ coef, coef


def lattice(theta: np.ndarray, sets: list[tuple[int, ...]], x: np.ndarray) -> float:
    """Least of the greatest values, one number at a time."""
    values = [float(t[0]) + sum(float(w) * float(v) for w, v in zip(t[1:], x, strict=True)) for t in theta]
    return min(max(values[j] for j in members) for members in sets)


def chord_error(curve, low: float, high: float, knots: np.ndarray) -> float:
    """Largest distance between a curve and the polygon through its values at the knots, on a fine grid."""
    x = np.linspace(low, high, 20_001)
    return float(np.abs(curve(x) - np.interp(x, knots, curve(knots))).max())


def ridge_without_each_row(X, y, ridge):
    """Predict every row by the ridge regression of the others; (N, d), (N, p) → (N, p). All rows set the units."""
    n, d = X.shape
    scale = X.std(axis=0)
    Z = np.column_stack([np.ones(n), (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1.0)])
    penalty = np.diag([0.0, *[ridge * n] * d])
    predicted = np.empty(y.shape)
    for i in range(n):
        A, b = np.delete(Z, i, axis=0), np.delete(y, i, axis=0)
        predicted[i] = Z[i] @ np.linalg.solve(A.T @ A + penalty, A.T @ b)
    return predicted


def constrained_least_squares(A, b, G):
    """Minimise ‖A·x − b‖² under G·x ≥ 0 by trying every set of inequalities that may hold with equality."""
    best, cost = np.zeros(A.shape[1]), float(np.sum(np.square(b)))
    for size in range(min(len(G), A.shape[1]) + 1):
        for binding in itertools.combinations(range(len(G)), size):
            # Inside the null space of the binding rows the problem is free.
            _, s, v = np.linalg.svd(G[list(binding)].reshape(size, A.shape[1]))
            null = v[np.count_nonzero(s > 1e-12) :].T
            x = null @ np.linalg.lstsq(A @ null, b, rcond=None)[0] if null.size else np.zeros(A.shape[1])
            found = float(np.sum(np.square(A @ x - b)))
            if found < cost and (G @ x >= -1e-9).all():
                best, cost = x, found
    return best


def share_in_common(residuals: np.ndarray, left_out: np.ndarray, weights: np.ndarray) -> float:
    """Correlation of two members' residuals, (M, n), over all pairs of different members that trained on a row."""
    products = squares = pairs = singles = 0.0
    for row in range(residuals.shape[1]):
        trained = [m for m in range(len(residuals)) if m != left_out[row]]
        for one, other in itertools.permutations(trained, 2):
            products += weights[row] * residuals[one, row] * residuals[other, row]
            pairs += weights[row]
        for one in trained:
            squares += weights[row] * residuals[one, row] ** 2
            singles += weights[row]
    return (products / pairs) / (squares / singles)
