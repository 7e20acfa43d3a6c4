"""The judgement calls of a fit, as a record: one algorithm, two sets of rules."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rules:
    """What the search and the pruning take for granted.

    in_span : a feature is in the model's span when the model leaves less than this share of its variance unexplained
    in_span_raw : or less than this sum of squares, in the data's units (so it depends on the choice of units)
    bend_gain : share by which a bend must reduce the RSS more than the straight line does
    collinear : minimum share of a hinge's variance that the model may leave unexplained before the hinge counts as
        new, once the model has ``early_columns`` columns; ``collinear_early`` before that
    max_jump : a knot that reduces the RSS by more than this many times the step before is not believed
    count_pairs : every step counts as two terms against ``max_terms``, also one that adds a single term
    free_knots : all knots that the spans allow are candidates, whatever their number
    prefixes : pruning keeps, for each size, the best of all orderings it passes through instead of the last one;
        with several responses only if ``prefixes_many``
    equal_ends : steps that explain all that is left but for rounding count as equal, so that the first is taken
    distance : how far apart two knots of a feature must be, in the mean of the share of rows and the share of the range
        between them, unless the closer one pays
    pays : a closer knot pays if it reduces the RSS by this many times log(n) variances of the residual
    neighbours : whether knots at two values with none between them may pay
    """

    in_span: float
    in_span_raw: float
    bend_gain: float
    collinear: float
    collinear_early: float
    early_columns: int
    max_jump: float
    count_pairs: bool
    free_knots: bool
    prefixes: bool
    prefixes_many: bool
    equal_ends: bool
    distance: float = 0.0
    pays: float = 0.0
    neighbours: bool = True


# Observed behaviour of R's earth 5.3.2 with fast.k=0.
EARTH = Rules(
    in_span=1e-8,
    in_span_raw=0.01,
    bend_gain=0.0,
    collinear=1e-5,
    collinear_early=0.01,
    early_columns=15,
    max_jump=10.0,
    count_pairs=True,
    free_knots=True,
    prefixes=True,
    prefixes_many=False,
    equal_ends=False,
)

# The same idea of a knot, fewer special cases.
FREE = Rules(
    in_span=1e-8,
    in_span_raw=0.0,
    bend_gain=1e-9,
    collinear=1e-5,
    # earth's 0.01 leaves curves of one feature half fitted: with knots at 2 and 5, one at 1 is 99 % explained.
    collinear_early=1e-5,
    early_columns=15,
    max_jump=float("inf"),
    count_pairs=False,
    free_knots=False,
    prefixes=True,
    prefixes_many=True,
    equal_ends=True,
)

# Ours: knots keep a distance that the data can tell, see benchmarks/knots.py. APART never bends at neighbouring values.
OWN = replace(FREE, distance=1 / 12, pays=1.5)
APART = replace(OWN, neighbours=False)


def gcv(rss: float, n: float, terms: int, penalty: float) -> float:
    """Generalised cross-validation: RSS/(n(1 − C/n)²) with C = M + penalty·(M − 1)/2 parameters; M with the intercept.

    Infinite when there are as many parameters as observations; RSS/n, no charge at all, for a penalty of −1.

    >>> gcv(rss=81.0, n=100.0, terms=6, penalty=1.6)
    1.0
    """
    if penalty == -1:
        return rss / n
    parameters = terms + penalty * (terms - 1) / 2
    return rss / (n * (1 - parameters / n) ** 2) if parameters < n else float("inf")
