"""Standardised coordinates of a table, and the way back.

A function f of the data looks in coordinates c like g with g(c.features(x)) = c.responses(f(x)). For splines, lattices
and sums of maxima ``pwl.through.in_coordinates`` returns g, for chains of layers ``Chain.in_coordinates``; the way back
is the same with ``c.inverse``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.limits import Limits, moved_limits
from knotwork.data.steps import Inputs

# Columns that vary less count as constant: a slope of 1 std of y to 1 std of x would soon be no float.
MIN_STD = 1e-300


@dataclass(frozen=True)
class Coordinates:
    """Means and stds of features, (d,) each, and of responses, (p,) each; one number is the std of all responses.

    With limits, which are in the units of the data, features are held at them before anything else, and with y_limits
    responses that come back are held at those.
    """

    x_centre: Floats
    x_scale: Floats
    y_centre: Floats
    y_scale: Floats
    limits: Limits | None = None
    y_limits: Limits | None = None

    def __post_init__(self) -> None:
        for name in ("x_centre", "x_scale", "y_centre"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        scale = np.broadcast_to(np.asarray(self.y_scale, dtype=np.float64), self.y_centre.shape)
        object.__setattr__(self, "y_scale", scale.copy())

    @classmethod
    def of(cls, X: Floats, y: Floats, weight: Floats | None = None) -> Coordinates:
        """Measure rows X (N, d), y (N, p)."""
        return cls(*mean_and_std(X, weight), *mean_and_std(y, weight))

    @classmethod
    def at_data(cls, X: Floats, y: Floats, weight: Floats | None = None) -> Coordinates:
        """Measure rows as ``of`` does, but centre at the data values nearest to the means.

        Differences of data values that lie together are exact: data that are moved look the same in these coordinates,
        bit for bit, and so do data times a power of two.
        """
        return cls(*value_and_std(X, weight), *value_and_std(y, weight))

    @classmethod
    def of_features(cls, centre: Floats, scale: Floats, outputs: int) -> Coordinates:
        """Coordinates that leave the responses as they are."""
        return cls(centre, scale, np.zeros(outputs), np.ones(outputs))

    @classmethod
    def identity(cls, features: int, outputs: int) -> Coordinates:
        """Coordinates that change nothing."""
        return cls.of_features(np.zeros(features), np.ones(features), outputs)

    @property
    def inverse(self) -> Coordinates:
        """The way back: ``c.inverse.features(c.features(X))`` is X, up to rounding, or X held at the limits.

        >>> c = Coordinates.of(np.array([[1.0], [3.0]]), np.array([[0.0], [4.0]]))
        >>> c.inverse.features(c.features(np.array([[7.0]]))), c.inverse.responses(np.array([[1.0]]))
        (array([[7.]]), array([[4.]]))
        """
        return Coordinates(
            -self.x_centre / self.x_scale, 1 / self.x_scale, -self.y_centre / self.y_scale, 1 / self.y_scale
        )

    def of_inputs(self, inputs: Inputs) -> Coordinates:
        """Return the coordinates of a table's features that a model's features are made of."""
        x_centre, x_scale = inputs.units(self.x_centre, self.x_scale)
        limits = None if self.limits is None else inputs.limits(self.limits)
        return replace(self, x_centre=x_centre, x_scale=x_scale, limits=limits)

    def with_outputs(self, gain: Floats, shift: Floats) -> Coordinates:
        """Return the coordinates of the responses gain·y + shift, (p,) each."""
        y_limits = None if self.y_limits is None else moved_limits(self.y_limits, gain, shift)
        return replace(self, y_centre=self.y_centre * gain + shift, y_scale=self.y_scale * gain, y_limits=y_limits)

    def relative_to(self, other: Coordinates) -> Coordinates:
        """Return r with r.features(other.features(X)) = self.features(X), and likewise for responses.

        Centres are compared before anything is divided: coordinates of data far from zero lose nothing.
        """
        limits = None if self.limits is None else other.limits_inside(self.limits)
        y_limits = None if self.y_limits is None else other.y_limits_inside(self.y_limits)
        return Coordinates(
            (self.x_centre - other.x_centre) / other.x_scale,
            self.x_scale / other.x_scale,
            (self.y_centre - other.y_centre) / other.y_scale,
            self.y_scale / other.y_scale,
            limits,
            y_limits,
        )

    def limits_inside(self, limits: Limits) -> Limits:
        """Return limits of the data as those of the standardised features; ``inverse`` is the way back."""
        return Limits(*((side - self.x_centre) / self.x_scale for side in (limits.lower, limits.upper)))

    def y_limits_inside(self, limits: Limits) -> Limits:
        """Return limits of the responses as those of the standardised ones; ``inverse`` is the way back."""
        return Limits(*(self.responses(side) for side in (limits.lower, limits.upper)))

    @property
    def held_inside(self) -> Limits | None:
        """What standardised responses are held at; None for nothing."""
        return None if self.y_limits is None else self.y_limits_inside(self.y_limits)

    def features(self, X: Floats) -> Floats:
        """Standardise rows: (N, d) → (N, d)."""
        if self.limits is None:
            Z = X - self.x_centre
        else:
            Z = self.limits.hold(X)
            Z -= self.x_centre
        Z /= self.x_scale  # in place: one copy of the table, not two
        return Z

    def responses(self, y: Floats) -> Floats:
        """Standardise responses: (N, p) → (N, p)."""
        return (y - self.y_centre) / self.y_scale

    def original_responses(self, z: Floats) -> Floats:
        """Undo :meth:`responses`; the mean is added last, so that nothing is rounded twice: (N, p) → (N, p)."""
        y = z * self.y_scale + self.y_centre
        return y if self.y_limits is None else self.y_limits.hold(y)


# By how much a robust scale may be smaller than the std, and from which share of it on it takes its place.
MIN_ROBUST, HEAVY = 0.2, 0.9
# Interquartile range of a normal variable, in stds.
NORMAL_RANGE = 1.349


def robust(c: Coordinates, X: Floats, weight: Floats | None = None) -> Coordinates:
    """Return the coordinates of rows X (N, d) by median and interquartile range in columns with long tails.

    Such a column has an interquartile range that is small for its std: most of its values are then close together in
    standardised coordinates, and far from the others. The scale is at least a fifth of the std, so that the others do
    not become too large. Columns of two values stay as they are.

    >>> X = np.append(np.arange(-10.0, 11.0), [1000.0, -1000.0])[:, None]
    >>> c = Coordinates.of_features(X.mean(axis=0), X.std(axis=0), 1)
    >>> float(c.x_scale[0]).__round__(), float(robust(c, X).x_scale[0]).__round__()
    (295, 59)
    """
    centre, scale = c.x_centre.copy(), c.x_scale.copy()
    held = X if c.limits is None else c.limits.hold(X)
    for f, column in enumerate(held.T):
        low, middle, high = np.quantile(column, [0.25, 0.5, 0.75], weights=weight, method="inverted_cdf")
        own = max((high - low) / NORMAL_RANGE, MIN_ROBUST * scale[f])
        ends = (column == column.min()) | (column == column.max())
        if high > low and own < HEAVY * scale[f] and not ends.all():
            centre[f], scale[f] = middle, own
    return replace(c, x_centre=centre, x_scale=scale)


def mean_and_std(values: Floats, weight: Floats | None = None) -> tuple[Floats, Floats]:
    """Return mean and std of each column, 1 for the std of a constant: (N, d) → (d,), (d,)."""
    return Measured.of(values, weight).mean_and_std()


@dataclass(frozen=True)
class Measured:
    """What there is to know about the columns of a table: its weight, and of each column, (d,) each, these.

    std : as it is, 0 for a constant
    """

    weight: float
    low: Floats
    high: Floats
    mean: Floats
    std: Floats

    @classmethod
    def of(cls, values: Floats, weight: Floats | None = None) -> Measured:
        """Measure the columns of a table (N, d)."""
        start, high, scale, mean, std = _measured(values, weight)
        total = float(len(values) if weight is None else weight.sum())
        return cls(total, start, high, start + mean / scale, std)

    @classmethod
    def pooled(cls, parts: Sequence[Measured]) -> Measured:
        """Return the measures of all rows of several tables.

        >>> X = np.array([[1.0, 7.0], [2.0, 7.0], [6.0, 7.0], [7.0, 8.0]])
        >>> both = Measured.pooled([Measured.of(X[:3]), Measured.of(X[3:])])
        >>> np.allclose(both.mean_and_std(), mean_and_std(X))
        True
        """
        shares = np.array([part.weight for part in parts])
        shares = shares / shares.sum()
        # Differences from one of them: means far from zero have no digits to lose.
        first = parts[0].mean
        mean = first + sum(share * (part.mean - first) for share, part in zip(shares, parts, strict=True))
        around = np.array([np.hypot(part.std, part.mean - mean) for part in parts])
        largest = np.where(around.max(axis=0) > 0, around.max(axis=0), 1.0)  # squares of 1e200 do not exist
        std = largest * np.sqrt(shares @ np.square(around / largest))
        low, high = np.min([part.low for part in parts], axis=0), np.max([part.high for part in parts], axis=0)
        return cls(sum(part.weight for part in parts), low, high, mean, std)

    def mean_and_std(self) -> tuple[Floats, Floats]:
        """Return means and stds, 1 for the std of a constant."""
        return self.mean, _usable(self.std, self.low, self.high)


def value_and_std(values: Floats, weight: Floats | None = None) -> tuple[Floats, Floats]:
    """Return the data value nearest to the mean, and the std, of each column, 1 for the std of a constant.

    >>> value_and_std(np.array([[1e12 + 1], [1e12 + 2], [1e12 + 6]]))[0] - 1e12
    array([2.])
    """
    start, high, scale, mean, std = _measured(values, weight)
    nearest = [
        np.abs((column - first) * unit - centre).argmin()
        for column, first, unit, centre in zip(values.T, start, scale, mean, strict=True)
    ]
    return values[nearest, np.arange(values.shape[1])], _usable(std, start, high)


def _measured(values: Floats, weight: Floats | None) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return minimum, maximum, scale, mean of (values − minimum)·scale, and std of the values, by column: (d,) each.

    Differences from the minimum lose next to nothing where data lie far from zero, and scales are powers of two, which
    lose nothing: squares of 1e200 do not exist.
    """
    low, high = values.min(axis=0), values.max(axis=0)
    # Halved first: the difference of two large values of opposite sign may not exist.
    _, exponent = np.frexp(high / 2 - low / 2)
    scale = np.ldexp(0.5, np.minimum(-exponent, 1023))
    mean, std = np.empty((2, values.shape[1]))
    for k, column in enumerate(values.T):  # one at a time: no copy of the table
        moved = column * scale[k] - low[k] * scale[k]
        mean[k] = np.average(moved, weights=weight)
        moved -= mean[k]
        np.square(moved, out=moved)
        std[k] = np.sqrt(np.average(moved, weights=weight)) / scale[k]
    return low, high, scale, mean, std


def _usable(std: Floats, low: Floats, high: Floats) -> Floats:
    """Return stds to divide by: 1 for that of a constant."""
    size = np.maximum(np.abs(low), np.abs(high))
    # What varies less than rounding is constant, and so is what varies too little for its reciprocal to exist.
    constant = (std <= 1e-15 * size) | (std < MIN_STD)
    return np.where(constant, 1.0, std)
