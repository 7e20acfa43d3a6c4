"""Effect curves: what one column does to the prediction, the others left as they are in the data.

A curve is the mean prediction over some rows with the column set to each value of a grid, its own mean over those rows
taken off. For an additive spline that is the column's part itself, exactly, and the grid has all its knots. Accumulated
local effects move each row only within its neighbourhood, for correlated columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.columns.part import Part
from knotwork.errors import DataError
from knotwork.explanation.bands import Band, Function, OtherFits, band_of, fits_of
from knotwork.explanation.subject import Rows, Subject, codes_of, matrix_of, parts_of, sources
from knotwork.explanation.usage import Usage, flat_where_rounding, usage
from knotwork.spline.model import hinges_of

if TYPE_CHECKING:
    import pandas as pd

# Rows that a curve is a mean over: enough for a line in a picture, few enough for a network and many columns.
BACKGROUND = 256
# Points between the ends of a column, besides the knots; the network bends anywhere.
POINTS = 41
BINS = 30
# Multiples of a step that tell numbers rounded to it from any others.
MAX_PLACES = 1e7
CURVES = ("partial", "accumulated")


@dataclass(frozen=True)
class Missing:
    """What a missing number does: (p,) of spline and network, around the same zero as the curve; rows without one."""

    spline: Floats | None
    network: Floats | None
    count: int | None


@dataclass(frozen=True)
class Effect:
    """One column's curve, or its bars if it has categories.

    column : its name; outputs : names of the p outputs
    grid : (G,) values, or positions of the categories; categories : their labels, None for numbers
    spline, network : (G, p) curves around zero, None for what the model does not have
    knots : (K,) of the spline in this column
    edges, counts : histogram of the data, (B + 1,) and (B,); for categories the counts of each; None without data
    missing : what a missing number does, None for columns without gaps
    part : how its values are shown: those of dates as dates, say
    binary : whether the data have only 0 and 1 in it; the grid is then these two, and pictures show two bars
    used_by_spline, used_by_network : whether a term, or a path of weights, has the column at all; curves of what does
        not are exactly zero
    band : the range of the curve over ensemble members or folds, None for a single fit
    """

    column: str
    outputs: tuple[str, ...]
    grid: Floats
    categories: tuple[str, ...] | None
    spline: Floats | None
    network: Floats | None
    knots: Floats
    edges: Floats | None = None
    counts: NDArray[np.int64] | None = None
    missing: Missing | None = None
    part: Part | None = None
    binary: bool = False
    used_by_spline: bool = True
    used_by_network: bool = True
    band: Band | None = None

    def __repr__(self) -> str:
        if not self.used:
            return f"Effect({self.column!r}, not used)"
        shape = f"{len(self.categories)} categories" if self.categories is not None else f"{len(self.knots)} knots"
        return f"Effect({self.column!r}, {shape}, {self.size:.4g} from lowest to highest)"

    @property
    def used(self) -> bool:
        """Whether the model uses the column: its network where it has one, or its spline."""
        return self.used_by_network if self.network is not None else self.used_by_spline

    @property
    def size(self) -> float:
        """Difference between the highest and the lowest point of the model's own curve, over all outputs."""
        trained = self.network is not None
        curve = self.network if trained else self.spline
        if curve is None:
            return 0.0
        gap = None if self.missing is None else self.missing.network if trained else self.missing.spline
        return float(np.ptp(curve if gap is None else np.vstack([curve, gap]), axis=0).max())

    def to_frame(self) -> pd.DataFrame:
        """Return the curve as a frame, one row per point of the grid; a last one, NaN, for missing numbers."""
        import pandas as pd

        index: Any = self.grid if self.categories is None else list(self.categories)
        curves = [("spline", self.spline), ("network", self.network)]
        if self.missing is not None:
            index = np.append(index, np.nan)
            gaps = (self.missing.spline, self.missing.network)
            curves = [(name, _with_gap(values, gap)) for (name, values), gap in zip(curves, gaps, strict=True)]
        parts = {}
        for name, values in curves:
            for k, output in enumerate(self.outputs if values is not None else ()):
                assert values is not None
                parts[name if len(self.outputs) == 1 else f"{name} {output}"] = values[:, k]
        return pd.DataFrame(parts, index=pd.Index(index, name=self.column))


def _with_gap(curve: Floats | None, gap: Floats | None) -> Floats | None:
    return None if curve is None or gap is None else np.vstack([curve, gap])


@dataclass(frozen=True)
class Surface:
    """What the spline's terms of exactly two columns add: values (Ga, Gb, p) over the two grids."""

    columns: tuple[str, str]
    grids: tuple[Floats, Floats]
    categories: tuple[tuple[str, ...] | None, tuple[str, ...] | None]
    values: Floats


def background(subject: Subject, rows: Rows | None) -> Floats:
    """Return the rows that curves are means over, as codes; without data, the one row of means that a fit remembers."""
    if rows is not None:
        if len(rows) <= BACKGROUND:
            return rows.codes
        return rows.codes[np.sort(np.random.default_rng(0).choice(len(rows), BACKGROUND, replace=False))]
    if subject.search is None:
        raise DataError(f"the effects of a {subject.kind} are drawn over data, got no X; pass explain(model, X)")
    return codes_of(subject.parts, subject.search.coordinates.x_centre[None])


def effects(subject: Subject, rows: Rows | None, curves: str = "partial") -> dict[str, Effect]:
    """Return the effect of each column, by name."""
    if curves not in CURVES:
        raise DataError(f"curves must be one of {', '.join(CURVES)}, got {curves!r}")
    around = background(subject, rows)
    used, others = usage(subject), fits_of(subject)
    return {name: _effect(subject, rows, around, c, curves, used, others) for c, name in enumerate(subject.columns)}


def _effect(
    subject: Subject,
    rows: Rows | None,
    around: Floats,
    c: int,
    curves: str,
    used: Usage,
    others: OtherFits | None,
) -> Effect:
    part = subject.parts[c]
    knots = column_knots(subject, c)
    grid = _grid(subject, rows, c, knots)
    # A missing number is one more point of the curve.
    points = grid if part.fill is None else np.append(grid, np.nan)

    def curve(function: Function, is_used: bool = True) -> Floats:
        if not is_used:
            return np.zeros((len(points), len(subject.output_names)))
        found = partial(function, subject, around, c, points)
        if curves == "accumulated" and part.categories is None and rows is not None:
            found[: len(grid)] = _accumulated(function, subject, rows.codes, c, grid)
        return found

    edges = counts = None
    binary = part.categories is None and grid.tolist() == [0.0, 1.0]
    present = None if rows is None else rows.codes[~np.isnan(rows.codes[:, c]), c]
    if present is not None and (part.categories is not None or binary):
        counts = np.array([(present == g).sum() for g in grid])
    elif present is not None and present.size:
        counts, edges = _histogram(present)
    by_spline = used.spline is not None and bool(used.spline[c])
    by_network = used.network is not None and bool(used.network[c])
    spline = curve(subject.evaluate_spline, by_spline) if subject.spline is not None else None
    band = network = None
    if others is not None:
        fits = curve(others.function).reshape(len(points), others.count, -1)
        band = band_of(fits[: len(grid)], others.what)
        if others.averaged and by_network:
            network = fits.mean(axis=1)
    if subject.network is not None and network is None:
        network = curve(subject.evaluate_network, by_network)
    missing = None
    if part.fill is not None:
        count = None if rows is None or present is None else len(rows) - len(present)
        missing = Missing(None if spline is None else spline[-1], None if network is None else network[-1], count)
    return Effect(
        column=part.name,
        outputs=subject.output_names,
        grid=grid,
        categories=part.categories,
        spline=None if spline is None else spline[: len(grid)],
        network=None if network is None else network[: len(grid)],
        knots=knots,
        edges=edges,
        counts=counts,
        missing=missing,
        part=part,
        binary=binary,
        used_by_spline=by_spline,
        used_by_network=by_network,
        band=band,
    )


def column_knots(subject: Subject, c: int) -> Floats:
    """Return the spline's knots in a numeric column, in rising order."""
    if subject.spline is None or subject.parts[c].categories is not None:
        return np.empty(0)
    number = sources(subject.parts).index(c)  # what says that it is missing comes behind it
    hinges = [h for term in subject.spline.terms for h in hinges_of(term)]
    return np.unique([h.knot for h in hinges if h.feature == number])


def _histogram(values: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Count values in equal bins; in one where floats are too coarse, or the range too large, for more.

    Bins of whole numbers, or of numbers rounded to a digit, have the same number of possible values each, the last one
    fewer and less wide: equal bins that do not say so have teeth that the data do not have.

    >>> counts, edges = _histogram(np.arange(1990.0, 2025.0))
    >>> counts[:3].tolist(), counts[-1].item(), edges[:3].tolist(), edges[-1].item()
    ([2, 2, 2], 1, [1989.5, 1991.5, 1993.5], 2024.5)
    """
    try:
        with np.errstate(over="raise", invalid="raise"):
            step = _spacing(values)
            if step is None:
                return np.histogram(values, bins=BINS)
            first, count = float(values.min()), round(float(np.ptp(values)) / step) + 1
            cuts = np.append(np.arange(0, count, -(-count // BINS)), count)
            edges = first + (cuts - 0.5) * step
            if (np.diff(edges) > 0).all():
                return np.histogram(values, bins=edges)
    except (ValueError, FloatingPointError):
        pass
    return np.array([len(values)]), np.array([values.min(), values.max()])


def _spacing(values: Floats) -> float | None:
    """Return the step that values are multiples of from the smallest on, None if there is none or one value."""
    distinct = np.unique(values)
    if len(distinct) < 2:
        return None
    smallest = float(np.diff(distinct).min())
    for step in (smallest, 1.0):
        places = (distinct - distinct[0]) / step
        if places[-1] < MAX_PLACES and np.abs(places - places.round()).max() < 1e-3:
            return step
    return None


def _grid(subject: Subject, rows: Rows | None, c: int, knots: Floats) -> Floats:
    part = subject.parts[c]
    if part.categories is not None:
        return np.arange(len(part.categories), dtype=np.float64)
    if rows is not None and part.plain and _is_binary(rows.codes[:, c], knots):
        return np.array([0.0, 1.0])
    if rows is not None and not np.isnan(rows.codes[:, c]).all():
        low, high = np.nanmin(rows.codes[:, c]), np.nanmax(rows.codes[:, c])
    elif rows is not None:
        low, high = min([part.fill or 0.0, *knots]), max([part.fill or 0.0, *knots])
    else:
        assert subject.search is not None
        f = sources(subject.parts).index(c)
        centre, std = subject.search.coordinates.x_centre[f], subject.search.coordinates.x_scale[f]
        low, high = min([centre - 2 * std, *knots]), max([centre + 2 * std, *knots])
    bends = np.concatenate([knots, _ends(subject, c)])
    inside = bends[(bends > low) & (bends < high)]
    share = np.linspace(0, 1, POINTS)
    # The span of a column may be beyond the range of floats.
    spread = np.linspace(low, high, POINTS) if abs(low) < 1e300 > abs(high) else low * (1 - share) + high * share
    return np.unique(np.concatenate([spread, inside]))


def _is_binary(values: Floats, knots: Floats) -> bool:
    """Whether values are 0 and 1, both of them, with no bend in between."""
    present = values[~np.isnan(values)]
    if not present.size or present.min() != 0 or present.max() != 1 or ((knots > 0) & (knots < 1)).any():
        return False
    return bool(((present == 0) | (present == 1)).all())


def _ends(subject: Subject, c: int) -> Floats:
    """Return the limits that a numeric column is held at, beyond which its curve is flat."""
    limits = [] if subject.spline is None else [subject.spline.limits]
    limits += [] if subject.network is None else [subject.network.coordinates.limits]
    f = sources(subject.parts).index(c)
    return np.array([side[f] for known in limits if known is not None for side in (known.lower, known.upper)])


def partial(function: Function, subject: Subject, around: Floats, c: int, grid: Floats) -> Floats:
    """Mean of a function over rows with column c at each value of the grid, around zero: (G, p)."""
    codes = np.repeat(around[None], len(grid), axis=0)
    codes[:, :, c] = grid[:, None]
    values = function(matrix_of(subject.parts, codes.reshape(-1, around.shape[1])))
    curve: Floats = values.reshape(len(grid), len(around), -1).mean(axis=1)
    curve = curve - _mean_over(curve, grid, around[:, c], subject.parts[c].categories is None)
    return flat_where_rounding(curve, float(np.abs(values).max(initial=0.0)))


def _mean_over(curve: Floats, grid: Floats, values: Floats, numeric: bool) -> Floats:
    """Mean of a curve over data values; the curve's value where they are missing is at the grid's end, at NaN."""
    if numeric:
        gaps, points = np.isnan(values), ~np.isnan(grid)
        heights = np.empty((len(values), curve.shape[1]))
        for k in range(curve.shape[1]):
            heights[~gaps, k] = np.interp(values[~gaps], grid[points], curve[points, k])
        heights[gaps] = curve[-1]
        mean: Floats = heights.mean(axis=0)
        return mean
    known = values[values >= 0].astype(int)
    return curve[known].mean(axis=0) if known.size else curve.mean(axis=0)


def _accumulated(function: Function, subject: Subject, codes: Floats, c: int, grid: Floats) -> Floats:
    """Accumulated local effects: sums of mean differences between neighbouring quantiles, around zero: (G, p)."""
    codes = codes[~np.isnan(codes[:, c])]
    if len(codes) > 8 * BACKGROUND:
        codes = codes[np.random.default_rng(0).choice(len(codes), 8 * BACKGROUND, replace=False)]
    x = codes[:, c]
    edges = np.unique(np.quantile(x, np.linspace(0, 1, POINTS))) if x.size else x
    if len(edges) < 2:
        return np.zeros((len(grid), len(subject.output_names)))
    bins = np.clip(np.searchsorted(edges, x, side="left") - 1, 0, len(edges) - 2)
    low, high = codes.copy(), codes.copy()
    low[:, c], high[:, c] = edges[bins], edges[bins + 1]
    above, below = function(matrix_of(subject.parts, high)), function(matrix_of(subject.parts, low))
    steps = above - below
    sums = np.zeros((len(edges) - 1, steps.shape[1]))
    np.add.at(sums, bins, steps)
    means = sums / np.maximum(np.bincount(bins, minlength=len(edges) - 1), 1)[:, None]
    heights = np.concatenate([np.zeros((1, steps.shape[1])), np.cumsum(means, axis=0)])
    curve = np.stack([np.interp(grid, edges, heights[:, k]) for k in range(heights.shape[1])], axis=1)
    curve = curve - _mean_over(curve, grid, x, numeric=True)
    return flat_where_rounding(curve, float(np.abs(above).max(initial=0.0)))


def surfaces(subject: Subject, rows: Rows | None) -> dict[tuple[str, str], Surface]:
    """Return a surface for each pair of columns that some term of the spline joins, and no other column with them."""
    spline, parts = subject.spline, subject.parts
    if spline is None:
        return {}
    pairs: dict[tuple[int, int], list[int]] = {}
    for m, term in enumerate(spline.terms):
        used = parts_of(term, parts)
        if len(used) == 2:
            pairs.setdefault((used[0], used[1]), []).append(m)
    found = {}
    for (a, b), members in pairs.items():
        grids = tuple(_grid(subject, rows, c, column_knots(subject, c)) for c in (a, b))
        around = background(subject, rows)[:1]
        codes = np.repeat(around, len(grids[0]) * len(grids[1]), axis=0)
        codes[:, a] = np.repeat(grids[0], len(grids[1]))
        codes[:, b] = np.tile(grids[1], len(grids[0]))
        matrix = matrix_of(parts, codes)
        held = matrix if spline.limits is None else spline.limits.hold(matrix)
        total = sum(np.outer(spline.terms[m](held), spline.coef[m]) for m in members)
        names = (parts[a].name, parts[b].name)
        values = np.asarray(total).reshape(len(grids[0]), len(grids[1]), -1)
        found[names] = Surface(names, (grids[0], grids[1]), (parts[a].categories, parts[b].categories), values)
    return found
