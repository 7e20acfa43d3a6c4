"""Forward selection in candidate space: sees sums, never rows.

A step adds the reflected pair of hinges at one knot, which together with the intercept span x and (x − t)₊; once x is
in the span a step adds (x − t)₊ alone, and a feature that no knot improves enters as x. With interactions a step may
add the children of a term instead, see :mod:`knotwork.spline.interactions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from knotwork.arrays import Floats
from knotwork.compute.compiled import compiled
from knotwork.spline.candidates import BETTER, Candidates, Known
from knotwork.spline.interactions import Families, Interactions, Move
from knotwork.spline.moments.moments import Hinges, Opening, RowSums, TermTable
from knotwork.spline.rules import Rules, gcv
from knotwork.spline.spacing import Spacing
from knotwork.spline.triangular import triangular


@dataclass(frozen=True)
class Step:
    """One step of the search: how many terms there are after it (with the intercept) and what they reach.

    rss : in the responses' squared units of measurement, summed over them
    """

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
    slopes : (d,) of the features' hinges in a minimum
    """

    terms: TermTable
    factor: Floats
    projection: Floats
    rss: float
    null_rss: float
    opening: Opening
    slopes: Floats
    steps: tuple[Step, ...]
    stopped: str


@compiled
def _best_candidate(  # type: ignore[no-untyped-def]
    offsets, norms, cross, dots, base, minimum, bend_gain, collinear, jump_limit, room, all_of_it, drops
):
    """Return (position, RSS drop) of the best next step; a feature's own position means that it enters linearly.

    norms, cross, dots : of the candidates' parts orthogonal to the span; base : those orthogonal to the intercept.
    minimum : norms up to which each feature counts as in the span.
    drops : room for the RSS drops of all candidates, which are computed first: without branches, several at once
    Knots are tried from the highest down. A later feature must be better by more than rounding, so that of two equal
    columns the first is taken. Drops that differ by rounding from ``all_of_it``, the whole RSS, are equal, too: once
    the span is all but complete, many candidates explain the rest.
    """
    best, best_drop = -1, 0.0
    p = len(dots)
    for f in range(offsets.size - 1):
        x, last = np.uint64(offsets[f]), offsets[f + 1]
        free = norms[x] > minimum[f]
        drop_x = 0.0
        own, own_drop = -1, 0.0
        if free:
            for k in range(p):
                drop_x += dots[k, x] * dots[k, x] / norms[x]
            own, own_drop = offsets[f], drop_x * bend_gain
        first = offsets[f] if not free or room >= 2 else last - 1
        for j in range(first + 1, last):
            drops[np.uint64(j)] = 0.0
        for k in range(p):
            along, norm_x = dots[k, x] if free else 0.0, norms[x] if free else 1.0
            for j in range(first + 1, last):
                i = np.uint64(j)
                rest = dots[k, i] - cross[i] / norm_x * along
                drops[i] += rest * rest
        for j in range(first + 1, last):
            i = np.uint64(j)
            slope = cross[i] / norms[x] if free else 0.0
            norm = norms[i] - slope * cross[i]
            drop = drop_x + drops[i] / norm
            drop = all_of_it if drop * BETTER > all_of_it else drop
            is_new = (norm >= collinear * base[i]) & (norm > 0.0) & (drop <= jump_limit)
            drops[i] = drop if is_new else 0.0
        for j in range(last - 1, first, -1):
            if drops[j] > own_drop:
                own, own_drop = j, drops[j]
        if own_drop > best_drop * BETTER:
            best, best_drop = own, drop_x if own == offsets[f] else own_drop
    return best, best_drop


@compiled
def _append_column(factor, projection, column, q, norm, dots, along):  # type: ignore[no-untyped-def]
    """Write a column of a triangular factor, and of the responses along it, given what is known of the column.

    q : its products with the first columns of the span, all of them or all but the last
    norm, dots : of its part orthogonal to those; along : its product with the last one, if that is not in q
    """
    for k in range(q.size):
        factor[k, column] = q[k]
    if q.size < column:
        factor[column - 1, column] = along
        norm -= along * along
    root = math.sqrt(norm)
    factor[column, column] = root
    for k in range(dots.size):
        dot = dots[k] - along * projection[column - 1, k] if q.size < column else dots[k]
        projection[column, k] = dot / root


class _Search:
    """The state of a forward pass: candidates outside the span of the model, and the model's terms so far.

    The span is held as the triangular factor of its orthonormal columns over the raw columns: 1, x, hinges and
    interactions in the order in which they were appended.
    """

    def __init__(
        self, rows: RowSums, rules: Rules, scale: Floats, max_terms: int, interactions: Interactions | None
    ) -> None:
        self.rows, self.rules, self.max_terms = rows, rules, max_terms
        self.grid, self.opening = rows.grid, rows.opening()
        self.rss = self.null_rss = float(self.opening.squares.sum())
        self.counter, self.last_drop = 1, np.inf
        self.terms: list[Hinges] = []
        self._own = self.grid.linear[self.grid.feature]  # position of each candidate's own feature
        responses = self.opening.responses.shape[1]
        max_columns = max_terms + 1
        self._columns = 0  # of the span
        self._factor = np.zeros((max_columns, max_columns))
        self._projection = np.zeros((max_columns, responses))
        self._mix = np.eye(max_columns)  # the terms, as columns, in the raw columns of the span
        self._table = Candidates(
            self._own, self.opening.norms, self.opening.cross, self.opening.responses.T, max_columns
        )
        self._drops = np.empty(self.grid.knots.size)
        self._families = None
        if interactions is not None:
            self._families = Families(rows, self.opening, interactions, max_columns, rules.collinear)
        self._spacing = Spacing(self.grid, self.opening, rules) if rules.distance > 0 else None
        self.slopes = np.ones(len(scale)) if self._families is None else self._families.slopes
        self.product = interactions is not None and interactions.product
        # The intercept; the responses are centred, so it explains nothing more of them.
        self._advance([()], ())
        self._extend([(np.empty(0), self.opening.total, np.zeros(responses))], 0.0)
        self._absorb(self.opening.sums[None])
        self._minimum = rules.in_span * self._table.base[self.grid.linear]
        if rules.in_span_raw > 0:
            with np.errstate(over="ignore"):  # values so small that their squares do not exist are in every span
                self._minimum = np.maximum(self._minimum, rules.in_span_raw * scale**2)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another step."""
        return self.max_terms - self.counter < (2 if self.rules.count_pairs else 1)

    @property
    def _all_of_it(self) -> float:
        """The RSS, if steps that explain all of it are to count as equal."""
        return self.rss if self.rules.equal_ends else np.inf

    def best(self) -> Move | None:
        """Return the best next step, None if no candidate improves the fit."""
        table, spacing = self._table, self._spacing
        position, drop = self._best_hinge(table.norms)
        close = spacing is not None and position >= 0 and bool(spacing.close[position])
        if spacing is not None and close and not spacing.pays(position, drop, self.rss, len(self.terms)):
            # Another one that is close may pay only if this one does: it explains less.
            position, drop = self._best_hinge(np.where(spacing.close, -np.inf, table.norms))
        best = Move(drop, self._terms_of(position), position) if position >= 0 else None
        if self._families is not None:
            child = self._families.best()
            if child is not None and (best is None or child.drop > best.drop * BETTER):
                return child
        return best

    def _best_hinge(self, norms: Floats) -> tuple[int, float]:
        """Return the position of the best candidate and its RSS drop; norms of the candidates, −inf for none."""
        rules, table = self.rules, self._table
        found: tuple[int, float] = _best_candidate(
            self.grid.offsets, norms, table.cross, table.dots, table.base, self._minimum, 1 + rules.bend_gain,
            rules.collinear_early if self.counter < rules.early_columns else rules.collinear,
            rules.max_jump * self.last_drop, self.max_terms - self.counter, self._all_of_it, self._drops,
        )  # fmt: skip
        return found

    def take(self, move: Move) -> None:
        """Add the terms of a step: one pass over the rows, and one over those of each parent, if a step may follow."""
        self.counter += 2 if self.rules.count_pairs else len(move.terms)
        hinges, is_pair = move.parent is None, move.parent is None and len(move.terms) == 2
        columns: Sequence[Hinges]
        if not hinges:
            assert self._families is not None
            # The two children of a knot have nothing in common.
            columns, known, between = move.terms, self._families.known(move, self._columns), 0.0
        elif is_pair:  # the feature itself, which is not in the span yet, and (x − t)₊
            above, x = move.terms[0], int(self._own[move.position])
            columns, between = [((above[0][0], 0.0, 0),), above], float(self.opening.cross[move.position])
            known = [self._table.known(x), self._table.known(move.position)]
        else:
            columns, known, between = move.terms, [self._table.known(move.position)], 0.0
        if not self.is_full:
            # First, because where rows are read the products of the columns come from the same reading.
            self._advance(columns, move.terms)
            products = self._hinge_products(move) if hinges else self.rows.products(self._as_table(columns))
        self._extend(known, between)
        if is_pair:
            self._mix_pair(move.terms[0][0][1])
        if self._spacing is not None and hinges:
            self._spacing.take(move.position)
        self.terms += move.terms
        self.rss, self.last_drop = max(self.rss - move.drop, 0.0), move.drop
        if not self.is_full:
            self._absorb(products)

    def _terms_of(self, position: int) -> tuple[Hinges, ...]:
        """Return the terms of a candidate: a feature itself, a pair of hinges, or one if its feature is in the span."""
        f, own = int(self.grid.feature[position]), int(self._own[position])
        if position == own:
            return (((f, 0.0, 0),),)
        knot = float(self.grid.knots[position])
        if self._table.norms[own] > self._minimum[f]:
            return ((f, knot, 1),), ((f, knot, -1),)
        return (((f, knot, 1),),)

    def _hinge_products(self, move: Move) -> Floats:
        """Products of the columns of a hinge, or a pair, with all hinges: (k, C)."""
        ((f, knot, sign),) = move.terms[0]
        if sign == 0:
            return self.rows.line_products(f)[None]
        return self.rows.pair_products(f, knot) if len(move.terms) == 2 else self.rows.hinge_products(f, knot)

    def _mix_pair(self, knot: float) -> None:
        """Write the terms (x − t)₊ and (t − x)₊ in the last two columns of the span, x and (x − t)₊."""
        x, above = self._columns - 2, self._columns - 1
        self._mix[x, x], self._mix[above, x] = 0.0, 1.0
        self._mix[0, above], self._mix[x, above] = knot, -1.0

    def result(self, steps: list[Step], stopped: str) -> ForwardPass:
        """Return the terms as they are written, with a triangular factor of their own."""
        m = self._columns
        factor, projection = triangular(self._factor[:m, :m] @ self._mix[:m, :m], self._projection[:m])
        return ForwardPass(
            terms=self._as_table(self.terms),
            factor=factor,
            projection=projection,
            rss=self.rss,
            null_rss=self.null_rss,
            opening=self.opening,
            slopes=self.slopes,
            steps=tuple(steps),
            stopped=stopped,
        )

    def _as_table(self, terms: Sequence[Hinges]) -> TermTable:
        return TermTable.of(terms, self.slopes, self.product)

    def _extend(self, known: Sequence[Known], between: float) -> None:
        """Add one or two columns to the span, given what is known of their orthogonal parts and their product."""
        factor = self._factor
        for q, norm, dots in known:
            m, along = self._columns, 0.0
            if q.size < m:  # what is known is from before the first column of the step
                along = float(between - np.dot(factor[: m - 1, m - 1], q)) / float(factor[m - 1, m - 1])
            _append_column(factor, self._projection, m, q, norm, dots, along)
            self._columns = m + 1

    def _advance(self, columns: Sequence[Hinges], terms: Sequence[Hinges]) -> None:
        """Sum what interactions need of new columns, and of the terms they are for."""
        if self._families is not None:
            self._families.advance(self._as_table(columns), terms)

    def _absorb(self, products: Floats) -> None:
        """Take the last columns of the span into account: their products with all hinges, (k, C)."""
        self._table.absorb(products, self._factor, self._projection)
        if self._families is not None:
            first, room = self._columns - len(products), self.max_terms - self.counter
            self._families.absorb(first, self._factor, self._projection, room, self._all_of_it)


def forward(
    rows: RowSums,
    *,
    max_terms: int,
    penalty: float,
    threshold: float,
    rules: Rules,
    scale: Floats,
    interactions: Interactions | None = None,
    unit: float = 1.0,
    report: Callable[[Step], None] | None = None,
) -> ForwardPass:
    """Add terms until nothing is gained.

    ``max_terms`` counts the intercept; ``scale`` (d,) is that of the features; ``interactions`` says which there may
    be, None for none; ``unit`` is what one unit of a sum of squares is worth in the steps reported.
    """
    search = _Search(rows, rules, scale, max_terms, interactions)
    total, null_rss = search.opening.total, search.null_rss
    null_gcv = gcv(null_rss, total, 1, penalty)
    steps = [Step(1, null_rss * unit, 0.0, 0.0)]
    stopped = "" if null_rss > 0 else "the response is constant"
    while not stopped:
        if search.is_full:
            stopped = f"reached max_terms ({max_terms})"
            break
        move = search.best()
        if move is None:
            stopped = "no candidate improves the fit"
            break
        terms = len(search.terms) + 1 + len(move.terms)
        rss = max(search.rss - move.drop, 0.0)
        step = Step(terms, rss * unit, rsq=1 - rss / null_rss, grsq=1 - gcv(rss, total, terms, penalty) / null_gcv)
        if move.drop / null_rss < threshold:
            stopped = f"the next term would raise R² by less than {threshold:g}"
        elif step.grsq < -10 and threshold > 0:
            stopped = "GRSq fell below -10: too many terms for so few observations"
        else:
            search.take(move)
            steps.append(step)
            if report is not None:
                report(step)
            if step.rsq >= 1 - threshold:
                stopped = f"R² reached {1 - threshold:g}"
    return search.result(steps, stopped)
