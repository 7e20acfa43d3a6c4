"""The log-odds of two classes under the inequalities of monotone effects: Newton's method with constrained steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from knotwork.arrays import Floats
from knotwork.spline.logits import LogitFit, Point, Problem
from knotwork.spline.moments.moments import Hinges
from knotwork.spline.monotone import inequalities, least_squares

MAX_STEPS = 100
# A step that promises less than this share of the objective is the last.
TOLERANCE = 1e-14
SHORTEST = 1e-8


def constrained(fit: LogitFit, terms: Sequence[Hinges], signs: Sequence[int]) -> LogitFit:
    """Fit the same penalised likelihood under the inequalities, from the intercept alone.

    Each step minimises the quadratic model of the objective over all coefficients that the inequalities allow; they are
    convex, so that every point on the way there is allowed too.
    """
    problem = fit.problem
    G = inequalities(terms, signs) / problem.columns.scale
    G = np.column_stack([np.zeros(len(G)), G])
    point = problem.evaluate(problem.start())
    for _ in range(MAX_STEPS):
        factor = cholesky(problem.hessian(point.probabilities))
        theta, slope = point.theta[:, 0], point.slope[:, 0]
        goal = factor @ theta - solve_triangular(factor, slope, trans="T")
        step = theta - least_squares(factor, goal, G)
        gain = float(slope @ step)
        trial = _along(problem, point, step[:, None], gain)
        if trial is None:
            break
        point = trial
        if gain <= TOLERANCE * (1.0 + abs(point.objective)):
            break
    return replace(fit, point=point)


def _along(problem: Problem, point: Point, step: Floats, gain: float) -> Point | None:
    """Return the first of ever shorter steps that lowers the objective, None if rounding leaves none."""
    length = 1.0
    while length >= SHORTEST:
        trial = problem.evaluate(point.theta - length * step)
        if trial.objective <= point.objective - 1e-4 * length * gain:
            return trial
        length /= 2
    return None
