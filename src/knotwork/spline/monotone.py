"""Monotone splines: what the coefficients must satisfy, least squares under it, and a certificate.

Along a feature, the terms of that feature alone add up to a piecewise-linear function whose slopes are sums of
coefficients: one inequality for every piece. A minimum of hinges moves one way along each of its features, so its
coefficient must have the sign that makes this the right way. Together that is enough for the whole function, wherever
the other features are, and on the whole line.

Inequalities G·β ≥ 0 all meet at β = 0, so there is always a solution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from knotwork.arrays import Floats
from knotwork.spline.moments.moments import Hinges
from knotwork.spline.triangular import inverse_of

if TYPE_CHECKING:
    from knotwork.spline.model import Spline, Term

# An inequality counts as one that holds with equality below this, relative to the sizes of its parts.
AT_BOUND = 1e-10


@dataclass(frozen=True)
class MonotoneColumn:
    """What is certain of a spline along one feature.

    sign : 1 for rising, −1 for falling
    min_slope : minimum over all pieces of sign·slope of the terms of the feature alone, computed exactly; 0 for none
    interactions : number of minima that include the feature
    min_interaction : minimum of their coefficients, signed so that the right way is positive; 0 for none
    """

    name: str
    sign: int
    min_slope: float
    interactions: int
    min_interaction: float

    @property
    def holds(self) -> bool:
        """Whether the spline is monotone along the feature, whatever the others are."""
        return self.min_slope >= 0 and self.min_interaction >= 0


@dataclass(frozen=True)
class MonotoneCertificate:
    """A proof that a spline is monotone along some features: every slope, checked exactly. True if it holds.

    >>> from knotwork.spline.model import Hinge, Spline
    >>> f = Spline((Hinge(0, 1.0, 1), Hinge(0, 1.0, -1)), [0.0], [[1.0], [-2.0]], ("x",))
    >>> print(certify(f, (1,)))
    x rises: its slopes are at least 1
    """

    columns: tuple[MonotoneColumn, ...]

    @property
    def holds(self) -> bool:
        """Whether it holds along all of the features."""
        return all(column.holds for column in self.columns)

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        lines = []
        for c in self.columns:
            way = ("rises" if c.sign > 0 else "falls") if c.holds else "is not monotone"
            text = (
                f"{c.name} {way}: its slopes are {'at least' if c.sign > 0 else 'at most'} {c.sign * c.min_slope:.6g}"
            )
            if c.interactions:
                text += (
                    f", and all {c.interactions} interactions go the same way"
                    if c.min_interaction >= 0
                    else (f", and {c.interactions} interactions do not all go the same way")
                )
            lines.append(text)
        return "\n".join(lines) if lines else "no column is constrained"


def inequalities(terms: Sequence[Hinges], signs: Sequence[int]) -> Floats:
    """Return G (k, terms) of G·β ≥ 0: (feature, knot, sign) of the hinges of each term, signs (d,) −1, 0 or 1.

    >>> inequalities([((0, 1.0, 1),), ((0, 1.0, -1),)], [1])
    array([[ 0., -1.],
           [ 1.,  0.]])
    """
    rows: dict[bytes, Floats] = {}

    def demand(row: Floats) -> None:
        if row.any():
            rows.setdefault(row.tobytes(), row)

    for f in np.flatnonzero(signs).tolist():
        way = float(signs[f])
        own = [(m, hinges[0]) for m, hinges in enumerate(terms) if len(hinges) == 1 and hinges[0][0] == f]
        for piece in _pieces([hinge[1] for _, hinge in own if hinge[2] != 0]):
            row = np.zeros(len(terms))
            for m, (_, knot, sign) in own:
                row[m] = way * _slope(knot, sign, piece)
            demand(row)
        for m, hinges in enumerate(terms):
            if len(hinges) > 1:
                for feature, _, sign in hinges:
                    if feature == f:
                        row = np.zeros(len(terms))
                        row[m] = way * sign
                        demand(row)
    return np.array(list(rows.values())).reshape(len(rows), len(terms))


def _pieces(knots: Sequence[float]) -> list[float]:
    """Return the left end of every piece of a line with knots: −inf first."""
    return [-math.inf, *sorted(set(knots))]


def _slope(knot: float, sign: int, piece: float) -> float:
    """Slope of a hinge, or of a line for sign 0, on the piece that begins there."""
    if sign == 0:
        return 1.0
    return float(sign) if (piece >= knot) == (sign > 0) else 0.0


def least_squares(factor: Floats, target: Floats, G: Floats) -> Floats:
    """Minimise ‖factor·β − target‖² under G·β ≥ 0: (n, n) upper triangular, (n,), (k, n) → (n,).

    The residual of the free solution is moved by the least distance that makes all inequalities true (Lawson and
    Hanson's LDP): non-negative least squares finds those that bind, and the solution on them is computed again from
    scratch.
    """
    inverse = inverse_of(factor)
    moved = G @ inverse
    norms = np.linalg.norm(moved, axis=1, keepdims=True)
    moved = moved / np.where(norms > 0, norms, 1.0)
    missing = -(moved @ target)
    size = max(float(np.linalg.norm(target)), np.finfo(float).tiny)
    if not (missing > 0).any():
        return np.asarray(inverse @ target)
    lifted = np.vstack([moved.T, missing / size])
    goal = np.zeros(len(lifted))
    goal[-1] = 1.0
    weights = nnls(lifted, goal, maxiter=100 * len(lifted) + 100 * lifted.shape[1])[0]
    binding = np.flatnonzero(weights > 0)
    shift = np.linalg.lstsq(moved[binding], missing[binding], rcond=None)[0] if binding.size else np.zeros(len(target))
    return np.asarray(inverse @ (target + shift))


def fit_columns(factor: Floats, target: Floats, terms: Sequence[Hinges], signs: Sequence[int]) -> Floats:
    """Fit [1, terms] under the inequalities, given their triangular factor and the response along it: (1 + M,)."""
    G = inequalities(terms, signs)
    beta = least_squares(factor, target, np.column_stack([np.zeros(len(G)), G]))
    # A minimum at its bound is exactly zero.
    bounds = G[np.count_nonzero(G, axis=1) == 1]
    at = np.nonzero(bounds)[1]
    sizes = np.abs(factor).max(axis=0)[1:] * np.abs(beta[1:])
    low = bounds[np.arange(len(at)), at] * beta[1 + at] <= 0
    small = sizes[at] <= AT_BOUND * max(float(np.abs(target).max(initial=0.0)), np.finfo(float).tiny)
    beta[1 + at[low | small]] = 0.0
    return beta


def made_exact(spline: Spline, signs: Sequence[int], output: int = 0) -> Spline:
    """Return a spline with an output whose slopes are right to the last bit, given one where they are but for rounding.

    Where a sum of coefficients falls short of zero, a coefficient of a term that moves there is raised by what is
    missing: that moves no other piece the wrong way.
    """
    coef = np.array(spline.coef)
    _make_exact(entries(spline.terms), coef[:, output], signs)
    return replace(spline, coef=coef)


def _make_exact(terms: Sequence[Hinges], beta: Floats, signs: Sequence[int]) -> None:
    for f in np.flatnonzero(signs).tolist():
        way = int(signs[f])
        for m, hinges in enumerate(terms):
            wrong = len(hinges) > 1 and any(g == f and sign * way * beta[m] < 0 for g, _, sign in hinges)
            if wrong:
                beta[m] = 0.0
        own = [(m, hinges[0]) for m, hinges in enumerate(terms) if len(hinges) == 1 and hinges[0][0] == f]
        for piece in _pieces([hinge[1] for _, hinge in own if hinge[2] != 0]):
            moving = [(m, _slope(knot, sign, piece)) for m, (_, knot, sign) in own if _slope(knot, sign, piece) != 0]
            while moving and (missing := -way * sum(Fraction(float(beta[m])) * int(s) for m, s in moving)) > 0:
                # The smallest coefficient has the finest steps; one step at least.
                m, s = min(moving, key=lambda pair: abs(beta[pair[0]]))
                raised = float(Fraction(float(beta[m])) + missing * int(s) * way)
                beta[m] = raised if raised != beta[m] else np.nextafter(beta[m], s * way * np.inf)


def certify(spline: Spline, signs: Sequence[int]) -> MonotoneCertificate:
    """Check a spline of one output along its features: signs (d,) −1, 0 or 1. The work is that of sorting the knots."""
    terms, beta = entries(spline.terms), spline.coef[:, 0].tolist()
    by_feature: dict[int, list[int]] = {}
    for m, hinges in enumerate(terms):
        for feature, _, _ in hinges:
            by_feature.setdefault(feature, []).append(m)
    columns = []
    for f in np.flatnonzero(signs).tolist():
        way, members = int(signs[f]), by_feature.get(f, [])
        own = [(m, terms[m][0]) for m in members if len(terms[m]) == 1]
        signed = [way * sign * beta[m] for m in members for g, _, sign in terms[m] if g == f and len(terms[m]) > 1]
        columns.append(
            MonotoneColumn(
                name=spline.feature_names[f],
                sign=way,
                min_slope=_min_slope([(knot, sign, beta[m]) for m, (_, knot, sign) in own], way),
                interactions=len(signed),
                min_interaction=min(signed, default=0.0) + 0.0,
            )
        )
    return MonotoneCertificate(tuple(columns))


def _min_slope(own: Sequence[tuple[float, int, float]], way: int) -> float:
    """Return the minimum of way·slope over the pieces of a sum of hinges and lines; no rounding on the way."""
    if not own:
        return 0.0
    # From the left: lines and falling hinges move there; at a knot one stops and another begins. Both add β.
    slope = sum((Fraction(beta) * (1 if sign == 0 else -1) for _, sign, beta in own if sign <= 0), Fraction(0))
    lowest = way * slope
    steps: dict[float, Fraction] = {}
    for knot, sign, beta in own:
        if sign != 0:
            steps[knot] = steps.get(knot, Fraction(0)) + Fraction(beta)
    for knot in sorted(steps):
        slope += steps[knot]
        lowest = min(lowest, way * slope)
    found = float(lowest)
    # A float cannot say how little is missing, but that something is.
    return -math.ulp(0.0) if lowest < 0 and found == 0 else found


def directions(spline: Spline, output: int) -> NDArray[np.intp]:
    """Return along which features an output only rises (1) or only falls (−1) for certain, else 0: (d,)."""
    part = replace(spline, intercept=spline.intercept[[output]], coef=spline.coef[:, [output]], output_limits=None)
    d = len(spline.feature_names)
    used = {f for term in spline.terms for f in term.features}
    found = np.zeros(d, dtype=np.intp)
    for way in (1, -1):
        checked = certify(part, [way if f in used else 0 for f in range(d)])
        for f, column in zip(sorted(used), checked.columns, strict=True):
            if column.holds and found[f] == 0:
                found[f] = way
    return found


def entries(terms: Sequence[Term]) -> list[Hinges]:
    """Return the hinges of each term, as the search has them. A product of hinges is monotone as a minimum is."""
    from knotwork.spline.model import Linear, hinges_of

    return [
        ((term.feature, 0.0, 0),)
        if isinstance(term, Linear)
        else tuple((h.feature, h.knot, h.sign) for h in hinges_of(term))
        for term in terms
    ]
