"""Documents of earlier schemas, brought to the present one before anything is built from them.

A schema is the set of records of a saved model and their fields. When one changes, ``SCHEMA`` goes up by one and
``STEPS`` gets the rewrites from the schema before: functions from the fields of a record, as JSON, to the record of the
next schema, as JSON, and from the parameters of an estimator to what they become. Arrays stay where they are: fields
name them, and a field takes the name along when it moves.
The reader knows the present schema alone, and no field has a value that the document does not state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from knotwork.serial.tables import require_keys

SCHEMA = 8

Fields = dict[str, Any]
Rewrite = Callable[[Fields], dict[str, Any]]


def migrate(model: Any, schema: int) -> Any:
    """Return the model of a document, written in a schema from 1 to ``SCHEMA``, in the present one.

    >>> migrate({"record": "Linear", "fields": {"feature": 0}}, schema=1)
    {'record': 'Linear', 'fields': {'feature': 0}}
    """
    for step in range(schema, SCHEMA):
        model = _rewritten(model, STEPS[step])
    return model


def _rewritten(value: Any, rewrites: Mapping[str, Rewrite]) -> Any:
    """Rewrite the records inside a JSON value, then the value itself."""
    match value:
        case list():
            return [_rewritten(item, rewrites) for item in value]
        case {"dict": dict(entries)}:  # somebody's own keys, which may look like a record's
            return {"dict": {key: _rewritten(item, rewrites) for key, item in entries.items()}}
        case {"record": str(name), "fields": dict(entries)}:
            fields = {key: _rewritten(item, rewrites) for key, item in entries.items()}
            return rewrites[name](fields) if name in rewrites else _record(name, fields)
        case {"estimator": str(name), "parameters": dict(parameters), "state": state} if name in rewrites:
            own = {key: _rewritten(item, rewrites) for key, item in parameters.items()}
            return {**value, **rewrites[name](own), "state": _rewritten(state, rewrites)}
        case dict():
            return {key: _rewritten(item, rewrites) for key, item in value.items()}
    return value


def _record(name: str, fields: Fields) -> dict[str, Any]:
    return {"record": name, "fields": fields}


def gains(name: str, **values: Any) -> Rewrite:
    """Return the rewrite of a record that has gained fields: their values, as JSON, say what it did without them.

    >>> gains("Spans", unit="rows")({"minspan": 1, "endspan": 2})
    {'record': 'Spans', 'fields': {'minspan': 1, 'endspan': 2, 'unit': 'rows'}}
    """
    return lambda fields: _record(name, {**fields, **values})


def gains_parameters(**values: Any) -> Rewrite:
    """Return the rewrite of an estimator's parameters that have become more: their values say what it did before."""
    return lambda parameters: {"parameters": {**parameters, **values}}


# From schema 1 to 2: the nineteen fields of SplineFit become records that name their units of measurement; a conversion
# names its link and its encoder.

_SPLINE_FIT_1 = {
    "spline", "forward_terms", "selected", "knots", "rss", "gcv", "rsq", "grsq", "steps", "stopped", "pruning",
    "standardised", "unit", "feature_centre", "feature_scale", "spans", "penalty", "total", "degrees",
}  # fmt: skip
_PIECEWISE_FIT_1 = {"feature_centre", "feature_scale", "sizes", "errors"}


def _spline_fit_1(fields: Fields) -> dict[str, Any]:
    require_keys(fields, _SPLINE_FIT_1, "SplineFit")
    selection = {key: fields[key] for key in ("forward_terms", "selected", "steps", "stopped", "spans", "penalty")}
    selection |= {"observations": fields["total"], "gcv_by_degree": fields["degrees"]}
    standardised = {"pruning": fields["pruning"], "refit": fields["standardised"], "rss_unit": fields["unit"]}
    return _record(
        "SplineFit",
        {
            "spline": fields["spline"],
            "knots": fields["knots"],
            "quality": _record("Quality", {key: fields[key] for key in ("rss", "gcv", "rsq", "grsq")}),
            "coordinates": _spline_coordinates_1(fields),
            "selection": _record("Selection", selection),
            "standardised": _record("StandardisedSearch", standardised),
        },
    )


def _piecewise_fit_1(fields: Fields) -> dict[str, Any]:
    require_keys(fields, _PIECEWISE_FIT_1, "PiecewiseFit")
    y_centre = [0.0] * len(fields["sizes"]["tuple"])  # it did not keep its responses' moments
    return _record(
        "PiecewiseFit",
        {"coordinates": _coordinates_1(fields, y_centre, 1.0), "sizes": fields["sizes"], "errors": fields["errors"]},
    )


def _spline_coordinates_1(fields: Fields) -> dict[str, Any]:
    """It kept RSS and R² of the responses, which give their std, but no mean: the intercept is the best substitute."""
    intercept = fields["spline"]["fields"]["intercept"]
    left = 1.0 - fields["rsq"]
    variance = fields["rss"] / left / (fields["total"] * intercept["shape"][0]) if left > 0 else 0.0
    return _coordinates_1(fields, intercept, math.sqrt(variance) or 1.0)


def _coordinates_1(fields: Fields, y_centre: Any, y_scale: float) -> dict[str, Any]:
    x = {"x_centre": fields["feature_centre"], "x_scale": fields["feature_scale"]}
    return _record("Coordinates", {**x, "y_centre": y_centre, "y_scale": y_scale})


# From schema 3 to 4: a column is a record of its kind; an encoder says what it does about gaps: it refused them.


def _column_3(fields: Fields) -> dict[str, Any]:
    require_keys(fields, {"name", "categories"}, "Column")
    if fields["categories"] is None:
        return _record("Number", {"name": fields["name"], "fill": None, "indicator": False})
    if fields["categories"] == {"tuple": []}:
        return _record("Skipped", {"name": fields["name"], "reason": "is not used"})
    return _record("Levels", {**fields, "pooled": {"tuple": []}, "gaps": False})


# By the schema to rewrite from: the records that changed.
STEPS: dict[int, dict[str, Rewrite]] = {
    1: {
        "SplineFit": _spline_fit_1,
        "PiecewiseFit": _piecewise_fit_1,
        "Conversion": gains("Conversion", link="identity", encoder=None),
    },
    # The document got a digest and names its file of arrays. Saved histories are those of estimators.
    2: {"History": gains("History", validation_unseen=True)},
    # Columns became records of their kind, and gaps were errors; nothing was held at limits.
    3: {
        "Column": _column_3,
        "TableEncoder": gains("TableEncoder", missing="error"),
        "Coordinates": gains("Coordinates", limits=None),
        "Spline": gains("Spline", limits=None),
        "SplineFit": gains("SplineFit", limits=None),
        "MarsClassifier": gains_parameters(extrapolate="linear"),
        "MarsRegressor": gains_parameters(extrapolate="linear"),
        "SplineNetClassifier": gains_parameters(extrapolate="linear"),
        "SplineNetRegressor": gains_parameters(extrapolate="linear"),
    },
    # An estimator was one network. Fits kept the chosen spline only.
    4: {
        "SplineFit": gains("SplineFit", path=None),
        "SplineNetClassifier": gains_parameters(n_members=1),
        "SplineNetRegressor": gains_parameters(n_members=1),
    },
    # Splines know what people read in their features.
    5: {"Spline": gains("Spline", parts=None)},
    # Degrees were chosen by GCV.
    6: {"Selection": gains("Selection", held_out_by_degree={"tuple": []})},
    # Predictions were not held.
    7: {"Coordinates": gains("Coordinates", y_limits=None), "Spline": gains("Spline", output_limits=None)},
}
