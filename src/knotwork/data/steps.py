"""Steps of scikit-learn that scale, one-hot encode and choose columns: what each of their results is made of.

Whatever such steps do, each number that comes out is (x − centre)·factor + offset of one feature x of the table that
went in. A column of the table is taken as a number or, where a OneHotEncoder reads it, by its categories. This is the
one reader of scikit-learn's scalers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats
from knotwork.data.columns.kinds import Column
from knotwork.data.columns.levels import Levels
from knotwork.data.columns.number import Number
from knotwork.data.columns.skipped import Skipped
from knotwork.data.limits import Limits
from knotwork.data.table import TableEncoder
from knotwork.errors import DataError

ZERO, ONE = np.longdouble(0), np.longdouble(1)


@dataclass(frozen=True)
class Affine:
    """Numbers of (x − centre)·factor + offset, feature by feature: (d,) each.

    The centre is taken off first: where a column lies far from zero, x·factor + offset would cancel.
    """

    centre: Floats
    factor: Floats
    offset: Floats

    @property
    def constant(self) -> NDArray[np.longdouble]:
        """Value at x = 0, in extended precision: (d,)."""
        return self.offset.astype(np.longdouble) - self.centre.astype(np.longdouble) * self.factor


@dataclass(frozen=True)
class Inputs:
    """How a model's features come from those of a table: feature j is made of feature place[j] of ``count``.

    place : (d,) positions; affine : (d,) numbers
    """

    place: NDArray[np.intp]
    affine: Affine
    count: int

    def knot(self, feature: int, knot: float) -> float:
        """Return where the table's feature is when the model's feature is at a knot."""
        a = self.affine
        return float(a.centre[feature] + (knot - a.offset[feature]) / a.factor[feature])

    def limits(self, limits: Limits) -> Limits:
        """Return the limits of the table's features, given those of the model's; none where it has none."""
        lower, upper = np.full(self.count, -np.inf), np.full(self.count, np.inf)
        for j in np.flatnonzero(self.affine.factor).tolist():
            place = self.place[j]
            low, high = sorted(self.knot(j, float(side[j])) for side in (limits.lower, limits.upper))
            # A column that is handed on twice has the same limits twice, up to rounding.
            lower[place], upper[place] = max(lower[place], low), min(upper[place], high)
        return Limits(np.minimum(lower, upper), upper)

    def units(self, centre: Floats, scale: Floats) -> tuple[Floats, Floats]:
        """Return centre and scale of the table's features, given those of the model's; 0 and 1 where it has none."""
        centres, scales = np.zeros(self.count), np.ones(self.count)
        for j in reversed(range(len(self.place))):  # the first feature of several that one is made into counts
            centres[self.place[j]] = self.knot(j, float(centre[j]))
            scales[self.place[j]] = scale[j] / abs(self.affine.factor[j])
        return centres, scales


def known_scaler(step: Any) -> Affine | None:
    """Return the numbers of a fitted StandardScaler, MinMaxScaler, MaxAbsScaler or RobustScaler; None for others."""
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

    kind = type(step)
    if kind is MinMaxScaler and not step.clip:
        factor, offset = (np.asarray(v, dtype=np.float64) for v in (step.scale_, step.min_))
        return Affine(np.zeros(len(factor)), factor, offset)
    if kind in (StandardScaler, RobustScaler, MaxAbsScaler) and not getattr(step, "clip", False):
        zeros = np.zeros(step.n_features_in_)
        scale = getattr(step, "scale_", None)
        factor = 1 / np.asarray(1.0 if scale is None else scale, dtype=np.float64) + zeros
        centred = {StandardScaler: "with_mean", RobustScaler: "with_centering"}.get(kind)
        if centred is None or not getattr(step, centred):
            return Affine(zeros, factor, zeros)
        centre = step.mean_ if kind is StandardScaler else step.center_
        return Affine(np.asarray(centre, dtype=np.float64), factor, zeros)
    return None


@dataclass(frozen=True)
class _Value:
    """One column as it goes through the steps: a column of the table, or one of the features that it is made into.

    Numbers of several steps are joined in extended precision: far from zero, offsets nearly cancel.
    """

    column: int
    feature: int | None = None
    centre: np.longdouble = ZERO
    factor: np.longdouble = ONE
    offset: np.longdouble = ZERO

    @property
    def untouched(self) -> bool:
        """Whether this is the column of the table as it came."""
        return self.feature is None and self.centre == 0 and self.factor == 1 and self.offset == 0

    def through(self, centre: float, factor: float, offset: float) -> _Value:
        """Return what an affine step makes of it."""
        if self.factor == 1 and self.offset == 0:
            return replace(
                self, centre=self.centre + centre, factor=np.longdouble(factor), offset=np.longdouble(offset)
            )
        return replace(self, factor=self.factor * factor, offset=(self.offset - centre) * factor + offset)

    @property
    def numbers(self) -> tuple[float, float, float]:
        """Centre, factor and offset as floats: the centre is what becomes 0, the offset what rounding it leaves."""
        centre = float(self.centre - self.offset / self.factor)
        return centre, float(self.factor), float(self.offset + (centre - self.centre) * self.factor)


class _Table:
    """The table that goes into the steps; collects how they encode those of its columns that are no numbers."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.columns: dict[int, Column] = {}

    def learn(self, place: int, column: Column) -> list[_Value]:
        """Remember how a column is encoded; return its features."""
        column = replace(column, name=self.names[place])
        known = self.columns.setdefault(place, column)
        if known != column:
            raise DataError(
                f"a column must have the same categories wherever a pipeline reads it, column {self.names[place]!r} "
                f"has {len(known.feature_names)} in one place and {len(column.feature_names)} in another; encode it "
                f"once"
            )
        return [_Value(place, k) for k in range(len(column.feature_names))]


def read_steps(steps: Sequence[tuple[str, Any]], inner: TableEncoder) -> tuple[TableEncoder, Inputs]:
    """Read the steps in front of a model that encodes what it is given by ``inner``.

    Parameters
    ----------
    steps : (name, fitted step), the model itself left out; at least one
    inner : from the table that the model is given to its features

    Returns
    -------
    the encoder of the table that the first step takes, and how the model's features come from its features

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> scaler = StandardScaler().fit([[1.0], [3.0]])
    >>> encoder, inputs = read_steps([("scale", scaler)], TableEncoder((Number("x0"),)))
    >>> encoder.feature_names, inputs.affine.centre, inputs.affine.factor
    (('x0',), array([2.]), array([1.]))
    """
    names = _input_names(steps) or tuple(column.name for column in inner.columns)
    table = _Table(names)
    values = [_Value(k) for k in range(len(names))]
    for name, step in steps:
        values = _after(name, step, values, table)
    features: list[_Value] = []
    numbers: dict[int, Number] = {}
    for value, column in zip(values, inner.columns, strict=True):
        if isinstance(column, Number) and value.feature is not None:
            features.append(value)
        elif isinstance(column, Number):
            features += _numbers(value, column, numbers)
        elif value.untouched:
            features += table.learn(value.column, column)
        else:
            raise DataError(
                f"text must reach the model as it is or one-hot encoded, column {table.names[value.column]!r} does not"
            )
    return _encoder_and_inputs(table, numbers, features, inner.missing)


def _numbers(value: _Value, column: Number, numbers: dict[int, Number]) -> list[_Value]:
    """Remember a column of numbers, its fill in the table's own unit of measurement; return its features."""
    centre, factor, offset = value.numbers
    fill = None if column.fill is None else centre + (column.fill - offset) / factor
    known = numbers.setdefault(value.column, Number("", fill, column.indicator))
    if column.indicator and not known.indicator:
        numbers[value.column] = Number("", fill, True)
    return [value, _Value(value.column, 1)] if column.indicator else [value]


def _encoder_and_inputs(
    table: _Table, numbers: dict[int, Number], features: list[_Value], missing: str
) -> tuple[TableEncoder, Inputs]:
    both = sorted(set(numbers) & set(table.columns))
    if both:
        raise DataError(
            f"a column must enter as a number or by its categories, column {table.names[both[0]]!r} enters as both; "
            f"give the table a second column with its values"
        )
    columns: list[Column] = [
        replace(numbers[k], name=name) if k in numbers else table.columns.get(k, Skipped(name))
        for k, name in enumerate(table.names)
    ]
    starts = np.cumsum([0, *(len(column.feature_names) for column in columns)])
    place = np.array([starts[v.column] + (v.feature or 0) for v in features], dtype=np.intp)
    centre, factor, offset = np.array([v.numbers for v in features]).reshape(-1, 3).T
    return TableEncoder(tuple(columns), missing), Inputs(place, Affine(centre, factor, offset), int(starts[-1]))


def _after(name: str, step: Any, values: list[_Value], table: _Table) -> list[_Value]:
    """Return what comes out of a step."""
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

    if step is None or (isinstance(step, str) and step == "passthrough"):
        return values
    if isinstance(step, str) and step == "drop":
        return []
    affine = known_scaler(step)
    if affine is not None:
        numbers = zip(affine.centre.tolist(), affine.factor.tolist(), affine.offset.tolist(), strict=True)
        return [value.through(*these) for value, these in zip(values, numbers, strict=True)]
    kind = type(step)
    if kind is Pipeline:
        for inner_name, inner in step.steps:
            values = _after(inner_name, inner, values, table)
        return values
    if kind is ColumnTransformer:
        return _chosen(name, step, values, table)
    if kind is OneHotEncoder:
        return _one_hot(name, step, values, table)
    if kind is FunctionTransformer:
        if step.func is None:
            return values
        raise refused_step(name, step, f"with func={getattr(step.func, '__name__', step.func)}")
    raise refused_step(name, step, "with clip=True" if getattr(step, "clip", False) else "")


def _chosen(name: str, step: Any, values: list[_Value], table: _Table) -> list[_Value]:
    if step.transformer_weights:
        raise refused_step(name, step, "with transformer_weights")
    found: list[_Value] = []
    for part, transformer, _ in step.transformers_:
        places = step._transformer_to_input_indices[part]
        if len(places):  # a part without columns is never fitted
            found += _after(part, transformer, [values[k] for k in places], table)
    return found


def _one_hot(name: str, step: Any, values: list[_Value], table: _Table) -> list[_Value]:
    for option in ("min_frequency", "max_categories"):
        if getattr(step, option) is not None:
            raise refused_step(name, step, f"with {option}={getattr(step, option)}")
    if not all(value.untouched for value in values):
        raise refused_step(name, step, "behind a step that changes its columns")
    dropped = [None] * len(values) if step.drop_idx_ is None else list(step.drop_idx_)
    found: list[_Value] = []
    for value, categories, drop in zip(values, step.categories_, dropped, strict=True):
        listed = categories.tolist()
        if any(category is None or category != category for category in listed):
            raise refused_step(name, step, f"with a category for missing values in {table.names[value.column]!r}")
        indicators = table.learn(value.column, Levels(table.names[value.column], tuple(listed)))
        found += [indicator for k, indicator in enumerate(indicators) if k != drop]
    return found


def first_step(steps: Sequence[tuple[str, Any]]) -> Any:
    """Return the first step, inside pipelines too, that knows its columns; None if no step of these does."""
    for _, step in steps:
        inner = getattr(step, "steps", None)
        found = step if inner is None and hasattr(step, "n_features_in_") else first_step(inner or ())
        if found is not None:
            return found
    return None


def _input_names(steps: Sequence[tuple[str, Any]]) -> tuple[str, ...] | None:
    """Return the names of the columns that the first step takes, None if no step of these knows."""
    step = first_step(steps)
    if step is None:
        return None
    return tuple(map(str, getattr(step, "feature_names_in_", [f"x{k}" for k in range(step.n_features_in_)])))


def refused_step(name: str, step: Any, detail: str = "") -> DataError:
    """Return the error for a step that is not affine in single columns."""
    kind = f"{type(step).__name__} {detail}".rstrip()
    return DataError(
        f"the steps in front of a model must scale single columns (StandardScaler, MinMaxScaler without clip, "
        f"MaxAbsScaler, RobustScaler), one-hot encode them or choose them (ColumnTransformer), got the step {name!r}, "
        f"a {kind}; apply it to the table first, or convert the last step alone"
    )
