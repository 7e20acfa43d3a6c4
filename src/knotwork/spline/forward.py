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
from knotwork.spline.knots import CandidateGrid
from knotwork.spline.model import Floats
from knotwork.spline.moments.moments import Opening, RowSums, Side, TermTable
from knotwork.spline.rules import Rules, gcv

# A feature is in the span when the model leaves less than this share of its variance unexplained.
IN_SPAN = 1e-8


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
    """

    terms: TermTable
    factor: Floats
    projection: Floats
    rss: float
    null_rss: float
    total: float
    steps: tuple[Step, ...]
    stopped: str


@compiled
def _best_candidate(offsets, norms, cross, dots, base, collinear, jump_limit, room):  # type: ignore[no-untyped-def]
    """Return (position, RSS drop) of the best next step; a feature's own position means that it enters linearly.

    norms, cross, dots : of the candidates' parts outside the span; base : the norms they had beside the intercept.
    Knots are tried from the highest down and a later one must be strictly better.
    """
    best, best_drop = -1, 0.0
    p = dots.shape[1]
    for f in range(offsets.size - 1):
        x = offsets[f]
        free = norms[x] > IN_SPAN * base[x]
        drop_x = 0.0
        if free:
            for k in range(p):
                drop_x += dots[x, k] ** 2 / norms[x]
            if drop_x > best_drop:
                best, best_drop = x, drop_x
            if room < 2:
                continue
        for i in range(offsets[f + 1] - 1, x, -1):
            slope = cross[i] / norms[x] if free else 0.0
            norm = norms[i] - slope * cross[i]
            if norm < collinear * base[i] or norm <= 0.0:
                continue
            drop = 0.0
            for k in range(p):
                drop += (dots[i, k] - slope * dots[x, k]) ** 2
            drop = drop_x + drop / norm
            if drop > best_drop and drop <= jump_limit:
                best, best_drop = i, drop
    return best, best_drop


@compiled
def _absorb(raw, length, projection, own, q, norms, cross, dots):  # type: ignore[no-untyped-def]
    """Set q = raw/length and take the parts along q out of the candidates' products."""
    for i in range(q.size):
        q[i] = raw[i] / length
    for i in range(q.size):
        norms[i] -= q[i] * q[i]
        cross[i] -= q[i] * q[own[i]]
        for k in range(projection.size):
            dots[i, k] -= q[i] * projection[k]


class _Span:
    """Products of the candidates with the model's orthonormal columns, and of what the columns leave over."""

    def __init__(self, opening: Opening, grid: CandidateGrid, most: int) -> None:
        self._own = grid.linear[grid.feature]  # position of each candidate's own feature
        candidates, responses = opening.responses.shape
        self.q = np.empty((most, candidates))
        self.factor = np.zeros((most, most))
        self.projection = np.zeros((most, responses))
        self.norms = opening.norms.copy()
        self.cross = opening.cross.copy()
        self.dots = opening.responses.copy()
        self.size = 0
        # The intercept; the responses are centred, so it explains nothing more of them.
        self._add(opening.sums, float(np.sqrt(opening.total)), np.zeros(responses))
        self.base = self.norms.copy()

    def append(self, position: int, products: Floats) -> None:
        """Add the candidate at a position, given its raw products with all candidates."""
        r = self.q[: self.size, position]
        length = float(np.sqrt(self.norms[position]))
        self.factor[: self.size, self.size] = r
        self._add(products - r @ self.q[: self.size], length, self.dots[position] / length)

    def _add(self, raw: Floats, length: float, projection: Floats) -> None:
        self.factor[self.size, self.size] = length
        self.projection[self.size] = projection
        _absorb(raw, length, projection, self._own, self.q[self.size], self.norms, self.cross, self.dots)
        self.size += 1


def forward(
    rows: RowSums,
    *,
    max_terms: int,
    penalty: float,
    threshold: float,
    rules: Rules,
    report: Callable[[Step], None] | None = None,
) -> ForwardPass:
    """Add terms until nothing is gained; ``max_terms`` counts the intercept."""
    grid, opening = rows.grid, rows.opening()
    span = _Span(opening, grid, max_terms + 1)
    linear_products: dict[int, Floats] = {}
    chosen: list[tuple[int, float, int]] = []  # feature, knot, sign
    mixing = [np.array([1.0])]  # each term in the span's columns: 1, and x or (x − t)₊ as they were appended
    null_rss = rss = float(opening.squares.sum())
    null_gcv = gcv(null_rss, opening.total, 1, penalty)
    counter, last_drop = 1, np.inf
    steps = [Step(1, rss, 0.0, 0.0)]
    stopped = "the response is constant" if null_rss <= 0 else ""

    while not stopped:
        room = max_terms - counter
        if room < (2 if rules.count_pairs else 1):
            stopped = f"reached max_terms ({max_terms})"
            break
        position, drop = _best_candidate(
            grid.offsets, span.norms, span.cross, span.dots, span.base,
            rules.collinear if counter >= rules.settled else rules.collinear_early,
            rules.greatest_jump * last_drop, room,
        )  # fmt: skip
        if position < 0:
            stopped = "no candidate improves the fit"
            break
        f, knot = int(grid.feature[position]), float(grid.knots[position])
        x = int(grid.offsets[f])
        is_linear, is_free = position == x, span.norms[x] > IN_SPAN * span.base[x]
        added = 2 if is_free and not is_linear else 1
        new_rss = max(rss - drop, 0.0)
        rsq = 1 - new_rss / null_rss
        grsq = 1 - gcv(new_rss, opening.total, len(chosen) + 1 + added, penalty) / null_gcv
        if drop / null_rss < threshold:
            stopped = f"the next term would raise R² by less than {threshold:g}"
            break
        if grsq < -10:
            stopped = "GRSq fell below -10: too many terms for so few observations"
            break

        if is_free:
            # Both hinges in one pass; x − t is their difference.
            above, below = rows.hinge_products(f, knot, (Side.ABOVE, Side.BELOW))
            linear_products[f] = above - below + knot * opening.sums
            span.append(x, linear_products[f])
            if is_linear:
                chosen.append((f, 0.0, 0))
                mixing.append(np.eye(span.size)[-1])
        elif f in linear_products and 2 * opening.mass[position] > opening.total:
            # The side with fewer rows is the cheaper pass: (x − t)₊ = (t − x)₊ + x − t.
            (below,) = rows.hinge_products(f, knot, (Side.BELOW,))
            above = below + linear_products[f] - knot * opening.sums
        else:
            (above,) = rows.hinge_products(f, knot, (Side.ABOVE,))
        if not is_linear:
            span.append(position, above)
            unit = np.eye(span.size)
            chosen.append((f, knot, 1))
            mixing.append(unit[-1])
            if is_free:
                chosen.append((f, knot, -1))
                mixing.append(unit[-1] - unit[-2] + knot * unit[0])

        counter += 2 if rules.count_pairs else added
        rss, last_drop = new_rss, drop
        steps.append(Step(len(chosen) + 1, rss, rsq, grsq))
        if report is not None:
            report(steps[-1])
        if rsq >= 1 - threshold:
            stopped = f"R² reached {1 - threshold:g}"

    m = span.size
    mix = np.zeros((m, m))
    for k, column in enumerate(mixing):
        mix[: column.size, k] = column
    # The terms as they are written, triangular again.
    rotation, factor = np.linalg.qr(span.factor[:m, :m] @ mix)
    table = np.array(chosen, dtype=np.float64).reshape(-1, 3)
    return ForwardPass(
        terms=TermTable(table[:, 0].astype(np.int64), table[:, 1].copy(), table[:, 2].astype(np.int64)),
        factor=factor,
        projection=rotation.T @ span.projection[:m],
        rss=rss,
        null_rss=null_rss,
        total=opening.total,
        steps=tuple(steps),
        stopped=stopped,
    )
