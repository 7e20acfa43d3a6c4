"""What the records of a saved model must be: types, shapes, ranges, finite numbers, checked as they are read.

The types of a record's fields are those that its class states. What else must hold is a function here for each record
that needs one.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from knotwork.serial.tables import RECORDS, class_in, not_as_written


def require(holds: bool, found: str) -> None:
    """Refuse a document with the given thing in it unless something holds."""
    if not holds:
        raise not_as_written(found)


def is_finite(array: NDArray[Any]) -> bool:
    """Whether all numbers of an array are finite."""
    return bool(np.isfinite(array).all())


def check_text(value: Any) -> str:
    """Refuse what is no text that can be written down; half a surrogate pair cannot."""
    require(isinstance(value, str), f"{type(value).__name__} where text belongs")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise not_as_written(f"text with half a character, {value[:50]!r}") from None
    return str(value)


# Types


def check_record(name: str, record: Any) -> None:
    """Refuse a record with a field of another type than its class states, or out of range."""
    for field, hint in _hints(name).items():
        value = getattr(record, field)
        require(matches(value, hint), f"{name} whose {field} is {type(value).__name__}")
    if name in RULES:
        RULES[name](record)


@cache
def _hints(name: str) -> dict[str, Any]:
    return get_type_hints(class_in(RECORDS, name))


# From Python 3.12 on numpy's array type is an alias with a name of its own.
ARRAY = get_origin(NDArray[Any])


def matches(value: Any, hint: Any) -> bool:
    """Whether a value is of the type that an annotation states, all the way down.

    >>> matches((1.0, 2), tuple[float, ...]), matches([True], list[int]), matches(np.zeros(2), NDArray[np.float64])
    (True, False, True)
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(matches(value, option) for option in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(matches(item, arguments[0]) for item in value)
    if origin is list:
        return isinstance(value, list) and all(matches(item, arguments[0]) for item in value)
    if origin in (np.ndarray, ARRAY):
        kind = arguments[0] if origin is not np.ndarray else get_args(arguments[1])[0]
        return isinstance(value, np.ndarray) and np.issubdtype(value.dtype, _family(kind))
    if hint is float:
        # Whole numbers that numpy does not have are objects to it.
        return isinstance(value, float) or (type(value) is int and -(2**63) <= value < 2**63)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _family(kind: type[np.generic]) -> type[np.generic]:
    """Return all integers for one of them: which one numpy counts rows with depends on the machine."""
    return np.integer if issubclass(kind, np.integer) else kind


# Records


def _finite(record: Any, *names: str) -> None:
    for name in names:
        value = getattr(record, name)
        require(is_finite(np.asarray(value)), f"{type(record).__name__} whose {name} is not finite")


def _shapes(record: Any, **shapes: tuple[int, ...]) -> None:
    for name, shape in shapes.items():
        found = getattr(record, name).shape
        require(found == shape, f"{type(record).__name__} whose {name} has shape {found}, not {shape}")


def _linear(term: Any) -> None:
    require(term.feature >= 0, f"a term of feature {term.feature}")


def _hinge(term: Any) -> None:
    _linear(term)
    _finite(term, "knot")
    require(term.sign in (-1, 1), f"a hinge of sign {term.sign}")


def _spline(spline: Any) -> None:
    _finite(spline, "intercept", "coef")
    require(spline.intercept.ndim == 1 and spline.intercept.size > 0, "a spline without outputs")


def _part(part: Any) -> None:
    from knotwork.data.columns.instants import moment_text

    require(part.categories is None or len(part.categories) > 0, f"part {part.name!r} without categories")
    for name in ("fill", "origin"):
        value = getattr(part, name)
        require(value is None or bool(np.isfinite(value)), f"part {part.name!r} whose {name} is not finite")
    try:
        moment_text(part.origin or 0.0, part.zone, part.daily)
    except Exception:  # of the time zone's library
        require(False, f"part {part.name!r} in a time zone that is none")


def _max_sum(function: Any) -> None:
    _finite(function, "coef", "affine")


def _coordinates(c: Any) -> None:
    require(c.x_centre.ndim == 1 and c.y_centre.ndim == 1, "coordinates that are no vectors")
    _shapes(c, x_scale=c.x_centre.shape)
    _finite(c, "x_centre", "x_scale", "y_centre", "y_scale")
    require(bool((c.x_scale > 0).all()) and bool((c.y_scale > 0).all()), "scales that are not positive")
    require(c.limits is None or len(c.limits) == len(c.x_centre), "limits of other features")
    require(c.y_limits is None or len(c.y_limits) == len(c.y_centre), "limits of other responses")


def _number(column: Any) -> None:
    require(column.fill is None or bool(np.isfinite(column.fill)), f"column {column.name!r} with a fill that is none")
    require(column.fill is not None or not column.indicator, f"column {column.name!r} with gaps and no fill")


def _plain_categories(column: Any) -> None:
    plain = all(isinstance(c, (str, int, float)) for c in column.known)
    require(plain, f"column {column.name!r} with categories that are neither text nor numbers")
    require(len(column.known) > 0, f"column {column.name!r} without categories")


def _level_means(column: Any) -> None:
    _plain_categories(column)
    levels, measures = len(column.levels), len(column.measures)
    require(measures > 0 and column.means.shape == (levels, measures), f"column {column.name!r} with other means")
    require(column.default.shape == (measures,), f"column {column.name!r} with other defaults")
    require(column.gap is None or column.gap.shape == (measures,), f"column {column.name!r} with other gaps")
    _finite(column, "means", "default", *(["gap"] if column.gap is not None else []))


def _ordered(column: Any) -> None:
    _plain_categories(column)
    _number(column)


def _date(column: Any) -> None:
    from knotwork.data.columns.date import CALENDAR
    from knotwork.data.columns.instants import moment_text

    _number(column)
    _finite(column, "origin")
    require(set(column.calendar) <= set(CALENDAR), f"column {column.name!r} with parts of another calendar")
    try:
        moment_text(column.origin, column.zone, column.daily)
    except Exception:  # of the time zone's library
        require(False, f"column {column.name!r} in a time zone that is none")


def _duration(column: Any) -> None:
    from knotwork.data.columns.instants import UNITS

    _number(column)
    require(column.unit in UNITS, f"column {column.name!r} in another unit")


def _table_encoder(encoder: Any) -> None:
    require(encoder.missing in ("indicator", "error"), f"an encoder that does {encoder.missing!r} about gaps")


def _history(history: Any) -> None:
    lengths = {len(getattr(history, name)) for name in ("train_loss", "validation_loss", "learning_rate", "seconds")}
    require(len(lengths) == 1, "a history whose columns differ in length")
    epochs = range(max(1, *lengths))
    require(history.best_epoch in epochs and all(k in epochs for k in history.undone), "a history of other epochs")
    require(isinstance(history.validation_unseen, bool), "a history that does not say which rows it was judged by")


def _member(member: Any) -> None:
    rows = member.held_out
    ordered = rows.ndim == 1 and bool((rows >= 0).all()) and bool((np.diff(rows) > 0).all())
    require(ordered, "a member that holds out rows that are none")


def _knot(knot: Any) -> None:
    counted = knot.rows.ndim == 1 and len(knot.rows) <= knot.count and bool((knot.rows >= 0).all())
    require(knot.feature >= 0 and counted, "a knot of rows that are none")
    _finite(knot, "value")


def _term_table(table: Any) -> None:
    hinges = len(table.feature) if table.feature.ndim == 1 else -1
    _shapes(table, knot=(hinges,), sign=(hinges,), slope=(hinges,))
    start = table.start
    require(start.ndim == 1 and len(start) > 0 and start[0] == 0 and start[-1] == hinges, "terms without hinges")
    require(bool((np.diff(start) > 0).all()) and bool((table.feature >= 0).all()), "terms without hinges")


def _refit(fit: Any) -> None:
    terms, outputs = len(fit.terms.start) - 1, fit.intercept.size
    _shapes(fit, intercept=(outputs,), coef=(terms, outputs), rss=(outputs,), inverse=(1 + terms, 1 + terms))
    _finite(fit, "intercept", "coef", "inverse")
    # Of a triangular factor, which importances invert again.
    whole = not np.tril(fit.inverse, -1).any() and bool((np.diagonal(fit.inverse) != 0).all())
    require(whole, "a triangular factor that has no inverse")


def _pruning_path(path: Any) -> None:
    require(path.members.ndim == 2 and len(path.members) > 0, "a pruning path without subsets")
    _shapes(path, rss=path.members.shape[:1], gcv=path.members.shape[:1])


def _selection(selection: Any) -> None:
    chosen, terms = selection.selected, len(selection.forward_terms)
    inside = chosen.ndim == 1 and bool(((chosen >= 0) & (chosen < terms)).all())
    require(inside, "a selection of terms that are none")


def _spline_fit(fit: Any) -> None:
    features, terms = len(fit.spline.feature_names), len(fit.spline.terms)
    has_features(fit.coordinates, features)
    require(fit.limits is None or len(fit.limits) == features, "limits of other features")
    require(all(knot.feature < features for knot in fit.knots), "a knot of a feature that is none")
    refit, pruning = fit.standardised.refit, fit.standardised.pruning
    fits = len(refit.coef) == terms == len(fit.selection.selected) and refit.intercept.size == fit.spline.intercept.size
    require(fits, "a spline and a search of other terms")
    require(not refit.terms.feature.size or refit.terms.feature.max() < features, "a search of features that are none")
    used = [f for term in fit.selection.forward_terms for f in term.features]
    require(max(used, default=0) < max(features, 1), "forward terms of features that are none")
    columns = 1 + len(fit.selection.forward_terms)
    require(pruning.members.shape[1] == columns and len(pruning.members) > terms, "a pruning path of other terms")
    if fit.path is not None:
        same = len(fit.path.factor) == columns and fit.path.units.y_scale.size == fit.spline.intercept.size
        require(same, "a path of other terms")


def _units(units: Any) -> None:
    terms, outputs = units.factor.size, units.y_scale.size
    _shapes(units, factor=(terms,), shift=(terms,), y_scale=(outputs,), y_centre=(outputs,))
    _finite(units, "shift", "y_scale", "y_centre")
    require(bool((units.y_scale > 0).all()), "scales that are not positive")


def _search_path(path: Any) -> None:
    columns, outputs = 1 + path.units.factor.size, path.units.y_scale.size
    _shapes(path, factor=(columns, columns), projection=(columns, outputs))
    _finite(path, "factor", "projection")


def _class_fit(fit: Any) -> None:
    features, terms = len(fit.spline.feature_names), len(fit.spline.terms)
    _shapes(fit, term_costs=(terms,), feature_costs=(features,))
    require(fit.shares.ndim == 1 and len(fit.search.spline.terms) == terms, "classes and a search of other terms")
    require(len(fit.search.spline.feature_names) == features, "a search of other features")
    _finite(fit, "shares", "deviance", "null_deviance")
    require(fit.null_deviance > 0, "a deviance that is not positive")


def _response_fit(fit: Any) -> None:
    features, terms = len(fit.spline.feature_names), len(fit.spline.terms)
    _shapes(fit, term_costs=(terms,), feature_costs=(features,))
    require(len(fit.search.spline.terms) == terms and fit.spline.intercept.size == 1, "a search of other terms")
    require(len(fit.search.spline.feature_names) == features, "a search of other features")
    _finite(fit, "deviance", "null_deviance", "y_centre", "y_scale")
    require(fit.deviance >= 0 and fit.null_deviance >= 0 and fit.y_scale > 0, "a deviance or scale below zero")
    require(fit.loss.name != "squared_error", "a fit by another loss of squared errors")


def _calibration(known: Any) -> None:
    require(known.rule in ("split", "cross"), "scores of an unknown rule")
    require(known.scores.ndim == 1 and known.scores.size > 0, "scores of no row")
    _shapes(known, weights=known.scores.shape)
    _finite(known, "scores", "weights")
    require(bool((np.diff(known.scores) >= 0).all()) and bool((known.weights > 0).all()), "scores that are not sorted")
    require(known.folds.shape in ((0,), known.scores.shape), "folds of other scores")
    require(known.spread is None or known.spread.intercept.size == 1, "a spread of several responses")


def _response_loss(loss: Any) -> None:
    from knotwork.data.losses import LOSSES

    require(loss.name in LOSSES, "a loss of an unknown name")
    _finite(loss, "quantile", "power", "width")
    powers = {"poisson": loss.power == 1, "gamma": loss.power == 2, "tweedie": loss.power >= 1}
    require(powers.get(loss.name, loss.power == 0), f"a loss {loss.name} of power {loss.power!r}")
    require(0 < loss.quantile < 1 and loss.width >= 0, "a quantile or a width out of range")


def _conversion(conversion: Any) -> None:
    from knotwork.data.links import LINKS

    require(conversion.bound >= 0 and conversion.link in LINKS, "a conversion of another bound or link")
    box = conversion.box
    require(box is None or (box.ndim == 2 and len(box) == 2), "a box of another shape")


def has_features(coordinates: Any, features: int) -> None:
    """Refuse coordinates of another number of features."""
    found = len(coordinates.x_centre)
    require(found == features, f"coordinates of {found} features where there are {features}")


def _training_rows(rows: Any) -> None:
    require(rows.count >= 0, f"{rows.count} training rows")
    require(rows.smallest.ndim == 1 and rows.smallest.dtype.itemsize == 8, "numbers of rows that are no vector")


RULES: dict[str, Callable[[Any], None]] = {
    "Calibration": _calibration,
    "ClassFit": _class_fit,
    "Conversion": _conversion,
    "Coordinates": _coordinates,
    "Date": _date,
    "Duration": _duration,
    "Hinge": _hinge,
    "History": _history,
    "Knot": _knot,
    "LevelMeans": _level_means,
    "Levels": _plain_categories,
    "Linear": _linear,
    "MaxSum": _max_sum,
    "Member": _member,
    "Number": _number,
    "Ordered": _ordered,
    "Part": _part,
    "PruningPath": _pruning_path,
    "Refit": _refit,
    "ResponseFit": _response_fit,
    "ResponseLoss": _response_loss,
    "SearchPath": _search_path,
    "Selection": _selection,
    "Spline": _spline,
    "SplineFit": _spline_fit,
    "TableEncoder": _table_encoder,
    "TermTable": _term_table,
    "TrainingRows": _training_rows,
    "Units": _units,
}
