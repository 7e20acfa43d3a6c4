"""Forward selection in candidate space: sees sums, never rows.

The model's span is kept as orthonormal columns q_0, q_1, … of which only the products with the candidates exist.
With b a new column and R_l = ⟨q_l, b⟩ (in the table already, b having been a candidate itself),

    ⟨q, c⟩ = (⟨b, c⟩ − Σ_l R_l ⟨q_l, c⟩) / ‖b⊥‖        for every candidate c,

so one pass over the rows for ⟨b, c⟩ updates everything that scores the next step. A step adds the reflected pair
of hinges at one knot, which together with the intercept span x and (x − t)₊; once x is in the span a step adds
(x − t)₊ alone, and a feature that no knot improves enters as x.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from knotwork.spline.compiled import compiled
from knotwork.spline.model import Floats
from knotwork.spline.moments.moments import BOTH, Opening, RowSums, Side, TermTable
from knotwork.spline.rules import Rules, gcv

BETTER = 1 + 1e-11


@dataclass(frozen=True)
class Step:
    """One step of the search: how many terms there are after it (with the intercept) and what they reach."""

    terms: int
    rss: float
    rsq: float
    grsq: float


@dataclass(frozen=True)
class ForwardPass:
    """The terms found, in order, and their triangular factor: [1, B] = Q·factor with ⟨Q, y⟩ = projection.

    factor : (1 + M, 1 + M) upper triangular; column 0 is the intercept
    projection : (1 + M, p)
    rss : residual sum of squares of all terms, summed over responses
    null_rss : that of the intercept alone
    opening : what the search started from
    """

    terms: TermTable
    factor: Floats
    projection: Floats
    rss: float
    null_rss: float
    opening: Opening
    steps: tuple[Step, ...]
    stopped: str


@compiled
def _best_candidate(offsets, norms, cross, dots, base, least, bend_gain, collinear, jump_limit, room):  # type: ignore[no-untyped-def]
    """Return (position, RSS drop) of the best next step; a feature's own position means that it enters linearly.

    norms, cross, dots : of the candidates' parts outside the span; base : the norms they had beside the intercept.
    least : norms up to which each feature counts as in the span.
    Knots are tried from the highest down. A later feature must be better by more than rounding, so that of two equal
    columns the first is taken.
    """
    best, best_drop = -1, 0.0
    p = dots.shape[1]
    for f in range(offsets.size - 1):
        x = offsets[f]
        free = norms[x] > least[f]
        drop_x = 0.0
        own, own_drop = -1, 0.0
        if free:
            for k in range(p):
                drop_x += dots[x, k] ** 2 / norms[x]
            own, own_drop = x, drop_x * bend_gain
        first = x if not free or room >= 2 else offsets[f + 1] - 1
        for i in range(offsets[f + 1] - 1, first, -1):
            slope = cross[i] / norms[x] if free else 0.0
            norm = norms[i] - slope * cross[i]
            if norm < collinear * base[i] or norm <= 0.0:
                continue
            drop = 0.0
            for k in range(p):
                drop += (dots[i, k] - slope * dots[x, k]) ** 2
            drop = drop_x + drop / norm
            if drop > own_drop and drop <= jump_limit:
                own, own_drop = i, drop
        if own_drop > best_drop * BETTER:
            best, best_drop = own, drop_x if own == x else own_drop
    return best, best_drop


@compiled
def _absorb(products, r, length, projection, own, q, norms, cross, dots):  # type: ignore[no-untyped-def]
    """Write the next row of q, from a column's raw products and its products r with the earlier rows.

    The parts along q are taken out of the candidates' norms, cross terms and products with the residual. Candidates
    are done in strips that stay in the nearest cache while all rows of q pass over them.
    """
    size, candidates = r.size, products.size
    new = q[size]
    for start in range(0, candidates, 1024):
        stop = min(start + 1024, candidates)
        for i in range(start, stop):
            new[i] = products[i] / length
        strip = new[start:stop]
        for m in range(size):
            row, factor = q[m, start:stop], r[m] / length
            for i in range(strip.size):
                strip[i] -= factor * row[i]
    for i in range(candidates):
        norms[i] -= new[i] * new[i]
        cross[i] -= new[i] * new[own[i]]
        for k in range(projection.size):
            dots[i, k] -= new[i] * projection[k]


class _Search:
    """The state of a forward pass: candidates outside the span of the model, and the model's terms so far.

    The span is held as orthonormal columns, of which only the products with the candidates exist (``q``), and
    as their triangular factor over the raw columns 1, and x or (x − t)₊ in the order in which they were appended.
    """

    def __init__(self, rows: RowSums, rules: Rules, scale: Floats, max_terms: int) -> None:
        self.rows, self.rules, self.max_terms = rows, rules, max_terms
        self.grid, self.opening = rows.grid, rows.opening()
        self.rss = self.null_rss = float(self.opening.squares.sum())
        self.counter, self.last_drop = 1, np.inf
        self.terms: list[tuple[int, float, int]] = []  # feature, knot, sign
        self._own = self.grid.linear[self.grid.feature]  # position of each candidate's own feature
        self._linear_products: dict[int, Floats] = {}
        candidates, responses = self.opening.responses.shape
        self._size, most = 0, max_terms + 1
        self._q = np.empty((most, candidates))
        self._factor = np.zeros((most, most))
        self._projection = np.zeros((most, responses))
        self._mix = np.eye(most)  # the terms, as columns, in the raw columns of the span
        self._norms, self._cross = self.opening.norms.copy(), self.opening.cross.copy()
        self._dots = self.opening.responses.copy()
        # The intercept; the responses are centred, so it explains nothing more of them.
        self._extend(self.opening.sums, np.empty(0), float(np.sqrt(self.opening.total)), np.zeros(responses))
        self._base = self._norms.copy()
        self._least = rules.in_span * self._base[self.grid.linear]
        if rules.in_span_raw > 0:
            with np.errstate(over="ignore"):  # values so small that their squares do not exist are in every span
                self._least = np.maximum(self._least, rules.in_span_raw * scale**2)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another step."""
        return self.max_terms - self.counter < (2 if self.rules.count_pairs else 1)

    def best(self) -> tuple[int, float]:
        """Return position and RSS drop of the best step; position −1 if none improves the fit."""
        early = self.counter < self.rules.settled
        return _best_candidate(
            self.grid.offsets, self._norms, self._cross, self._dots, self._base, self._least,
            1 + self.rules.bend_gain, self.rules.collinear_early if early else self.rules.collinear,
            self.rules.greatest_jump * self.last_drop, self.max_terms - self.counter,
        )  # fmt: skip

    def is_free(self, position: int) -> bool:
        """Whether the feature of a candidate is not in the span yet."""
        f = self.grid.feature[position]
        return bool(self._norms[self._own[position]] > self._least[f])

    def terms_of(self, position: int) -> int:
        """How many terms a step adds."""
        return 2 if self.is_free(position) and position != self._own[position] else 1

    def take(self, position: int, drop: float) -> None:
        """Add the terms of a step: one pass over the rows."""
        f, knot, x = int(self.grid.feature[position]), float(self.grid.knots[position]), int(self._own[position])
        is_free, is_linear, added = self.is_free(position), position == x, self.terms_of(position)
        if is_free:
            # Both hinges in one pass; x − t is their difference.
            above, below = self.rows.hinge_products(f, knot, BOTH)
            self._linear_products[f] = above - below + knot * self.opening.sums
            self._append(x, self._linear_products[f])
        elif f in self._linear_products and 2 * self.opening.mass[position] > self.opening.total:
            # The side with fewer rows is the cheaper pass: (x − t)₊ = (t − x)₊ + x − t.
            (below,) = self.rows.hinge_products(f, knot, (Side.BELOW,))
            above = below + self._linear_products[f] - knot * self.opening.sums
        else:
            (above,) = self.rows.hinge_products(f, knot, (Side.ABOVE,))
        if is_linear:
            self.terms.append((f, 0.0, 0))
        else:
            self._append(position, above)
            self.terms.append((f, knot, 1))
        if added == 2:
            self.terms.append((f, knot, -1))
            # (x − t)₊ is the last column of the span, and (t − x)₊ is that less x plus t.
            first, second = self._size - 2, self._size - 1
            self._mix[first, first], self._mix[second, first] = 0.0, 1.0
            self._mix[0, second], self._mix[first, second] = knot, -1.0
        self.counter += 2 if self.rules.count_pairs else added
        self.rss, self.last_drop = max(self.rss - drop, 0.0), drop

    def result(self, steps: list[Step], stopped: str) -> ForwardPass:
        """Return the terms as they are written, with a triangular factor of their own."""
        m = self._size
        rotation, factor = np.linalg.qr(self._factor[:m, :m] @ self._mix[:m, :m])
        table = np.array(self.terms, dtype=np.float64).reshape(-1, 3)
        return ForwardPass(
            terms=TermTable(table[:, 0].astype(np.int64), table[:, 1].copy(), table[:, 2].astype(np.int64)),
            factor=factor,
            projection=rotation.T @ self._projection[:m],
            rss=self.rss,
            null_rss=self.null_rss,
            opening=self.opening,
            steps=tuple(steps),
            stopped=stopped,
        )

    def _append(self, position: int, products: Floats) -> None:
        """Add a candidate to the span, given its raw products with all candidates."""
        length = float(np.sqrt(self._norms[position]))
        self._extend(products, self._q[: self._size, position].copy(), length, self._dots[position] / length)

    def _extend(self, products: Floats, r: Floats, length: float, projection: Floats) -> None:
        m = self._size
        self._factor[:m, m] = r
        self._factor[m, m] = length
        self._projection[m] = projection
        _absorb(products, r, length, projection, self._own, self._q, self._norms, self._cross, self._dots)
        self._size += 1


def forward(
    rows: RowSums,
    *,
    max_terms: int,
    penalty: float,
    threshold: float,
    rules: Rules,
    scale: Floats,
    unit: float = 1.0,
    report: Callable[[Step], None] | None = None,
) -> ForwardPass:
    """Add terms until nothing is gained.

    ``max_terms`` counts the intercept; ``scale`` (d,) is that of the features; ``unit`` is what one unit of a sum of
    squares is worth in the steps reported.
    """
    search = _Search(rows, rules, scale, max_terms)
    total, null_rss = search.opening.total, search.null_rss
    null_gcv = gcv(null_rss, total, 1, penalty)
    steps = [Step(1, null_rss * unit, 0.0, 0.0)]
    stopped = "" if null_rss > 0 else "the response is constant"
    while not stopped:
        if search.is_full:
            stopped = f"reached max_terms ({max_terms})"
            break
        position, drop = search.best()
        if position < 0:
            stopped = "no candidate improves the fit"
            break
        terms = len(search.terms) + 1 + search.terms_of(position)
        rss = max(search.rss - drop, 0.0)
        step = Step(terms, rss * unit, rsq=1 - rss / null_rss, grsq=1 - gcv(rss, total, terms, penalty) / null_gcv)
        if drop / null_rss < threshold:
            stopped = f"the next term would raise R² by less than {threshold:g}"
        elif step.grsq < -10 and threshold > 0:
            stopped = "GRSq fell below -10: too many terms for so few observations"
        else:
            search.take(position, drop)
            steps.append(step)
            if report is not None:
                report(step)
            if step.rsq >= 1 - threshold:
                stopped = f"R² reached {1 - threshold:g}"
    return search.result(steps, stopped)
