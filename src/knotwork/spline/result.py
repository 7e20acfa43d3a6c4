"""What a fit leaves behind, in records that name their units of measurement.

The units of the data are those of the features and responses that the fit was given. The standardised units are those
of the search: features and responses are centred and multiplied by powers of two, see :mod:`knotwork.spline.scaling`.
Only :class:`StandardisedSearch` and what it holds are in standardised units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.data.limits import Limits
from knotwork.errors import DataError
from knotwork.spline.forward import Step
from knotwork.spline.knots import Spans
from knotwork.spline.model import Spline, Term
from knotwork.spline.prune import PruningPath
from knotwork.spline.refit import Refit, feature_costs, term_costs
from knotwork.spline.units import SearchPath


@dataclass(frozen=True)
class Knot:
    """A knot, in the units of its feature, and the training rows that carry its value: all, or the first 1000.

    count : number of those rows; rows : (min(count, 1000),) their numbers
    """

    feature: int
    value: float
    count: int
    rows: NDArray[np.intp]


@dataclass(frozen=True)
class Quality:
    """How well a spline fits its training rows.

    rss, gcv : in squared units of the responses that the fit was given, summed over them
    rsq, grsq : shares of those of the intercept alone, dimensionless
    """

    rss: float
    gcv: float
    rsq: float
    grsq: float


@dataclass(frozen=True)
class Selection:
    """How the terms were selected, in the units of the data.

    forward_terms : all terms of the forward pass, in order
    selected : (M,) positions in ``forward_terms`` of the terms that pruning kept, in rising order
    steps, stopped : the forward pass, step by step, and why it ended
    observations : their number, Σw with weights
    spans, penalty : as the fit used them, defaults filled in
    gcv_by_degree : of models that earlier versions saved: GCV of the fits of degree 1, 2, … among which this one was
        chosen; else empty
    held_out_by_degree : mean held-out losses of degrees 1, 2, … by which the degree was chosen; empty if it was given
    """

    forward_terms: tuple[Term, ...]
    selected: NDArray[np.intp]
    steps: tuple[Step, ...]
    stopped: str
    observations: float
    spans: Spans
    penalty: float
    gcv_by_degree: tuple[float, ...]
    held_out_by_degree: tuple[float, ...]


@dataclass(frozen=True)
class StandardisedSearch:
    """The search behind a spline, in standardised units.

    pruning : the best subset of each size
    refit : least squares on the subset with the minimum GCV, whose terms are those of the spline
    rss_unit : what one unit of a standardised sum of squares is worth, in squared units of the responses
    """

    pruning: PruningPath
    refit: Refit
    rss_unit: float


@dataclass(frozen=True)
class SplineFit:
    """A fitted spline and how it came about: all in the units of the data but ``standardised``.

    spline : the pruned spline
    knots : the knots of the spline's hinges, each once, in the order of the terms
    quality : RSS, GCV and their shares
    coordinates : means and stds of features and responses (1 for the std of a constant)
    selection : the forward pass and what pruning kept of it
    standardised : the search in its own coordinates, for measures that need its triangular factor
    limits : range of the features as they were fitted; None in models that earlier versions saved
    path : what the splines of other sizes follow from; None likewise
    """

    spline: Spline
    knots: tuple[Knot, ...]
    quality: Quality
    coordinates: Coordinates
    selection: Selection
    standardised: StandardisedSearch
    limits: Limits | None
    path: SearchPath | None

    @property
    def sizes(self) -> int:
        """Number of sizes there are subsets of: 1, the intercept alone, to so many terms."""
        return len(self.standardised.pruning.members)

    def of_size(self, terms: int) -> Spline:
        """Return the spline of so many terms, the intercept included: the best subset that pruning found.

        Its coefficients come from the sums of the search: exact to rounding times the condition of the terms.
        """
        if self.path is None:
            raise DataError(
                "splines of other sizes follow from the search, which this model does not have: it was saved by an "
                "earlier version; fit it again"
            )
        columns = self.standardised.pruning.of_size(terms)
        beta, own = self.path.coefficients(columns), columns[1:] - 1
        chosen = [self.selection.forward_terms[m] for m in own]
        found = self.path.units[own].spline(chosen, beta[0], beta[1:], self.spline.feature_names, self.spline.limits)
        return replace(found, output_limits=self.spline.output_limits)

    @property
    def term_costs(self) -> Floats:
        """Rise in RSS without each term, the others fitted again, in the units of ``quality.rss``: (M,)."""
        return term_costs(self.standardised.refit) * self.standardised.rss_unit

    @property
    def feature_costs(self) -> Floats:
        """The same without all terms of each feature: (d,)."""
        costs = feature_costs(self.standardised.refit, len(self.spline.feature_names))
        return costs * self.standardised.rss_unit
