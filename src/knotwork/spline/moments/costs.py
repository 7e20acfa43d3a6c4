"""What it takes to get the products of a feature's knots: by passes, from strata, from a table of all of them.

Nanoseconds of one thread, measured at 4000 to 500 000 rows; only their ratios matter.
"""

from __future__ import annotations

from dataclasses import dataclass

# A pass over the two hinges of a knot, and one over a hinge on the side of fewer rows, for a row of a feature.
PAIR_PASS, HINGE_PASS = 1.9, 0.6
# A joint histogram, for a row of a pair and for a cell; with counts a share of a row; and what a pair costs at least.
JOINT_ROW, JOINT_CELL, COUNT_SHARE, JOINT_PAIR = 4.5, 4.8, 0.3, 15_000.0
# Strata, for a row of a pair and for a cell. A look-up: for a row that it passes over, and for one of a feature that it
# adds, where the columns stay in the processor's cache and where they do not.
STRATA_ROW, STRATA_CELL, LOOK, NEAR_ROW, FAR_ROW = 2.1, 3.0, 0.8, 4.0, 14.0
NEAR_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Choice:
    """What a choice goes by: a table of so many rows and features, and how often one is chosen, now included.

    expected : number of times, in all; chosen : so far
    """

    rows: int
    features: int
    expected: float
    chosen: int

    @property
    def steps(self) -> float:
        """Number of times to come, now included: what was expected, or as many as there have been already."""
        return max(self.expected - self.chosen + 1, self.chosen - 1, 1.0)

    def passes(self) -> float:
        """Return what a pass for each knot costs; the first one sees both sides."""
        first = PAIR_PASS if self.chosen == 1 else HINGE_PASS
        return self.features * self.rows * (first + (self.steps - 1) * HINGE_PASS)

    def strata(self, strata: int, candidates: int) -> float:
        """Return what so many strata cost, for so many candidates of all features, and the look-ups."""
        others = self.features - 1
        row = NEAR_ROW if 8 * self.rows * self.features <= NEAR_BYTES else FAR_ROW
        look_up = self.rows * (LOOK + (others * row / (4 * strata) if strata > 1 else 0.0))
        return others * self.rows * STRATA_ROW + strata * candidates * STRATA_CELL + self.steps * look_up

    def table(self, others: int, products: int, *, counts: bool) -> float:
        """Return what a table costs: so many products, with so many of the other features.

        What others will use too, if they are to be chosen, costs each of the two half.
        """
        row = JOINT_ROW * (COUNT_SHARE if counts else 1.0)
        share = max(0.5, 1 - self.expected / 2)
        return share * (others * (self.rows * row + JOINT_PAIR) + products * JOINT_CELL)
