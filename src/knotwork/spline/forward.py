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
        strip = products[start:stop] / length
        for m in range(size):
            row, factor = q[m, start:stop], r[m] / length
            for i in range(strip.size):
                strip[i] -= factor * row[i]
        new[start:stop] = strip
    for i in range(candidates):
        norms[i] -= new[i] * new[i]
        cross[i] -= new[i] * new[own[i]]
        for k in range(projection.size):
            dots[i, k] -= new[i] * projection[k]


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
        self._add(opening.sums, np.empty(0), float(np.sqrt(opening.total)), np.zeros(responses))
        self.base = self.norms.copy()

    def append(self, position: int, products: Floats) -> None:
        """Add the candidate at a position, given its raw products with all candidates."""
        length = float(np.sqrt(self.norms[position]))
        self._add(products, self.q[: self.size, position].copy(), length, self.dots[position] / length)

    def _add(self, products: Floats, r: Floats, length: float, projection: Floats) -> None:
        m = self.size
        self.factor[:m, m] = r
        self.factor[m, m] = length
        self.projection[m] = projection
        _absorb(products, r, length, projection, self._own, self.q, self.norms, self.cross, self.dots)
        self.size += 1


def forward(
    rows: RowSums,
    *,
    max_terms: int,
    penalty: float,
    threshold: float,
    rules: Rules,
    scale: Floats,
    report: Callable[[Step], None] | None = None,
) -> ForwardPass:
    """Add terms until nothing is gained; ``max_terms`` counts the intercept, ``scale`` (d,) is that of the features."""
    grid, opening = rows.grid, rows.opening()
    span = _Span(opening, grid, max_terms + 1)
    least = rules.in_span * span.base[grid.linear]
    if rules.in_span_raw > 0:
        with np.errstate(over="ignore"):  # values so small that their squares do not exist are in no span
            least = np.maximum(least, rules.in_span_raw * scale**2)
    linear_products: dict[int, Floats] = {}
    chosen: list[tuple[int, float, int]] = []  # feature, knot, sign
    mix = np.eye(max_terms + 1)  # the terms, as columns, in the span's own: 1, and x or (x − t)₊ as they were appended
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
            grid.offsets, span.norms, span.cross, span.dots, span.base, least, 1 + rules.bend_gain,
            rules.collinear if counter >= rules.settled else rules.collinear_early,
            rules.greatest_jump * last_drop, room,
        )  # fmt: skip
        if position < 0:
            stopped = "no candidate improves the fit"
            break
        f, knot = int(grid.feature[position]), float(grid.knots[position])
        x = int(grid.offsets[f])
        is_linear, is_free = position == x, span.norms[x] > least[f]
        added = 2 if is_free and not is_linear else 1
        new_rss = max(rss - drop, 0.0)
        rsq = 1 - new_rss / null_rss
        grsq = 1 - gcv(new_rss, opening.total, len(chosen) + 1 + added, penalty) / null_gcv
        if drop / null_rss < threshold:
            stopped = f"the next term would raise R² by less than {threshold:g}"
            break
        if grsq < -10 and threshold > 0:
            stopped = "GRSq fell below -10: too many terms for so few observations"
            break

        if is_free:
            # Both hinges in one pass; x − t is their difference.
            above, below = rows.hinge_products(f, knot, BOTH)
            linear_products[f] = above - below + knot * opening.sums
            span.append(x, linear_products[f])
            if is_linear:
                chosen.append((f, 0.0, 0))
        elif f in linear_products and 2 * opening.mass[position] > opening.total:
            # The side with fewer rows is the cheaper pass: (x − t)₊ = (t − x)₊ + x − t.
            (below,) = rows.hinge_products(f, knot, (Side.BELOW,))
            above = below + linear_products[f] - knot * opening.sums
        else:
            (above,) = rows.hinge_products(f, knot, (Side.ABOVE,))
        if not is_linear:
            span.append(position, above)
            chosen.append((f, knot, 1))
            if is_free:
                chosen.append((f, knot, -1))
                # (x − t)₊ is the last column of the span, (t − x)₊ that less x plus t.
                hinge, mirrored = span.size - 2, span.size - 1
                mix[hinge, hinge], mix[mirrored, hinge] = 0.0, 1.0
                mix[0, mirrored], mix[hinge, mirrored], mix[mirrored, mirrored] = knot, -1.0, 1.0

        counter += 2 if rules.count_pairs else added
        rss, last_drop = new_rss, drop
        steps.append(Step(len(chosen) + 1, rss, rsq, grsq))
        if report is not None:
            report(steps[-1])
        if rsq >= 1 - threshold:
            stopped = f"R² reached {1 - threshold:g}"

    m = span.size
    # The terms as they are written, triangular again.
    rotation, factor = np.linalg.qr(span.factor[:m, :m] @ mix[:m, :m])
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
