"""What the layers, networks and estimators of a saved model must be to predict, checked when their parts are there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knotwork.serial.checks import has_features, matches, require
from knotwork.serial.tables import FITTED, LAYERS, RECORDS, class_in

if TYPE_CHECKING:
    from torch import nn

# Layers and networks

OPTIONS: dict[str, Callable[[Any], bool]] = {
    "approximation": lambda value: value in ("none", "tanh"),
    "count": lambda value: matches(value, int) and value > 0,
    "finite": lambda value: matches(value, float) and math.isfinite(value),
    "flag": lambda value: isinstance(value, bool),
    "integer": lambda value: matches(value, int) and abs(value) < 100,
    "number": lambda value: matches(value, float) and not math.isnan(value),
    "positive": lambda value: matches(value, float) and 0 < value < math.inf,
    "share": lambda value: matches(value, float) and 0 <= value <= 1,
}


def check_layer(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that a layer cannot compute with."""
    for option, kind in LAYERS[name].items():
        require(OPTIONS[kind](options[option]), f"{name} whose {option} is {options[option]!r}")


def check_network(net: nn.Sequential) -> None:
    """Refuse layers that do not follow one another."""
    from torch import nn

    from knotwork.network.blocks import BlockLinear
    from knotwork.network.chain import Conversion, leaves, working_layers
    from knotwork.network.scaling import Scaling

    working_layers(net)
    dtypes = {p.dtype for p in net.parameters()}
    for _, layer in leaves(net):
        alike = not dtypes or not isinstance(layer, Scaling) or layer._like.dtype in dtypes
        require(alike, "a Scaling of another precision than all layers")
    inputs = width = None
    for _, layer in leaves(net):
        takes = gives = None
        if isinstance(layer, nn.Linear):
            takes, gives = layer.in_features, layer.out_features
        elif isinstance(layer, BlockLinear):
            takes, gives = layer.members * layer.in_features, layer.members * layer.out_features
        elif isinstance(layer, Scaling):
            takes = gives = len(layer.centre)
        elif isinstance(layer, nn.PReLU) and layer.num_parameters > 1:
            takes = gives = layer.num_parameters
        require(takes is None or width in (None, takes), f"a layer of {takes} inputs behind one of {width} outputs")
        inputs, width = inputs or takes, gives or width
    conversion = getattr(net, "conversion", None)
    require(conversion is None or isinstance(conversion, Conversion), "a conversion that is none")
    if conversion is not None and inputs is not None:
        box, encoder = conversion.box, conversion.encoder
        require(box is None or box.shape[1] == inputs, "a box of other features")
        require(encoder is None or len(encoder.feature_names) == inputs, "an encoder of other features")


# Estimators


def check_estimator(name: str, model: Any) -> None:
    """Refuse an estimator whose parts are not what it takes, or do not fit together."""
    state = vars(model)
    for key in FITTED[name]:
        require(_ATTRIBUTES[key](state[key]), f"{name} whose {key} is {type(state[key]).__name__}")
    encoder, columns = model.encoder_, len(model.encoder_.columns)
    features = len(encoder.feature_names)
    require(model.n_features_in_ == columns, f"{model.n_features_in_} features where there are {columns}")
    names = state.get("feature_names_in_")
    if names is not None:
        text = isinstance(names, np.ndarray) and names.dtype == object
        require(text and names.tolist() == [c.name for c in encoder.columns], "names of other columns")
    limits = state.get("limits_")
    known = limits is None or _is_record("Limits")(limits)
    require(known and (limits is None or len(limits) == features), "limits of other features")
    seen = state.get("training_rows_")
    require(seen is None or _is_record("TrainingRows")(seen), "training rows that are none")
    output = state.get("_sklearn_output_config", {})
    known = isinstance(output, dict) and set(output) <= {"transform"}
    require(known and set(output.values()) <= {"default", "pandas", "polars"}, "output of an unknown kind")
    outputs = _check_function(name, model, features)
    known = state.get("calibration_")
    require(known is None or _is_record("Calibration")(known), "a calibration that is none")
    if known is not None:
        wanted = None if "classes_" in state else features
        own = None if known.spread is None else len(known.spread.feature_names)
        require(own == wanted, "a spread of other features")
    for key in ("temperature_", "calibration_error_"):
        value = state.get(key)
        require(value is None or (matches(value, float) and 0 <= value < math.inf), f"{key} out of range")
    if "loss_" in state:
        loss = state["loss_"]
        require(_is_record("ResponseLoss")(loss), "a loss that is none")
        require(outputs == 1 or loss.name == "squared_error", f"a loss {loss.name} of several responses")
    if "fold_splines_" in state:
        _check_folds(state, features, outputs)
    if "classes_" in state:
        classes = state["classes_"]
        distinct = classes.ndim == 1 and len(classes) >= 2 and len(np.unique(classes)) == len(classes)
        require(distinct, "classes that are not distinct")
        expected = 1 if len(classes) == 2 else len(classes)
        require(outputs == expected, f"{outputs} outputs for {len(classes)} classes")
    else:
        require(outputs == 1 or not state["_flat_output"], f"{outputs} outputs where there is to be one")
    if name.startswith("SplineNet"):
        _check_members(model, features, outputs)


def _check_folds(state: Mapping[str, Any], features: int, outputs: int) -> None:
    """Check what folds left behind: all of it, of as many folds as there are splines."""
    splines, rows, encoders = (state.get(key) for key in ("fold_splines_", "fold_rows_", "fold_encoders_"))
    known = isinstance(splines, tuple) and len(splines) > 0 and all(_is_record("Spline")(s) for s in splines)
    require(known, "folds without splines")
    alike = all((len(s.feature_names), s.intercept.size) == (features, outputs) for s in splines)  # type: ignore[union-attr]
    require(alike, "folds whose splines have another shape")
    found = state.get("oof_prediction_")
    predicted = isinstance(found, np.ndarray) and found.dtype == np.float64 and found.ndim in (1, 2)
    require(predicted, "predictions of held-out rows that are none")
    inside = isinstance(rows, tuple) and len(rows) == len(splines) and all(  # type: ignore[arg-type]
        matches(r, NDArray[np.intp]) and r.ndim == 1 and r.size and r.min() >= 0 and r.max() < len(found)  # type: ignore[arg-type]
        for r in rows
    )  # fmt: skip
    require(inside, "folds of rows that are none")
    own = encoders is None or (
        isinstance(encoders, tuple) and len(encoders) == len(splines)  # type: ignore[arg-type]
        and all(_is_record("TableEncoder")(e) and len(e.feature_names) == features for e in encoders)
    )  # fmt: skip
    require(own, "folds whose encoders have other features")
    results = state.get("cv_results_")
    expected = {"degree", "size", "penalty", "mean_error", "standard_error", "fold_errors"}
    known = isinstance(results, dict) and set(results) == expected
    known = known and all(isinstance(v, np.ndarray) and v.ndim in (1, 2) for v in results.values())  # type: ignore[union-attr]
    require(known and len({len(v) for v in results.values()}) == 1, "results of folds that are none")  # type: ignore[union-attr]


def _check_function(name: str, model: Any, features: int) -> int:
    """Check what an estimator computes with; return its number of outputs."""
    if name.startswith("Mars"):
        from knotwork.spline.likelihood import ClassFit

        require(isinstance(model.fit_, ClassFit) == hasattr(model, "classes_"), "the fit of another estimator")
        found, outputs = len(model.fit_.spline.feature_names), model.fit_.spline.intercept.size
        if hasattr(model, "classes_"):
            require(len(model.fit_.shares) == len(model.classes_), "shares of other classes")
    elif name.startswith("SplineNet"):
        found, outputs = _check_networks(model)
    else:
        from knotwork.pwl.through import inputs_of, outputs_of

        found, outputs = inputs_of(model.pwl_), outputs_of(model.pwl_)
        has_features(model.fit_.coordinates, features)
        centres = len(model.fit_.coordinates.y_centre)
        require(centres == outputs, f"coordinates of {centres} outputs where there are {outputs}")
        own = vars(model).get("_standardised", model.pwl_)
        require(_ATTRIBUTES["pwl_"](own), "a function that is none")
        require((inputs_of(own), outputs_of(own)) == (found, outputs), "two functions of different shapes")
    require(found == features, f"a function of {found} features where there are {features}")
    return outputs


def _check_networks(model: Any) -> tuple[int, int]:
    from torch import nn

    from knotwork.data.coordinates import Coordinates
    from knotwork.network.chain import read_chain

    state = vars(model)
    chain = read_chain(model.network_)
    shape = chain.inputs, chain.outputs
    start, coordinates, spline = state.get("start_network_"), state.get("coordinates_"), state["spline_"]
    if start is not None:
        require(isinstance(start, nn.Sequential), "a start that is no network")
        before = read_chain(start)
        require((before.inputs, before.outputs) == shape, "a start of another shape")
    if coordinates is not None:
        require(isinstance(coordinates, Coordinates), "coordinates that are none")
        found = len(coordinates.x_centre), len(coordinates.y_centre)
        require(found == shape, f"coordinates of {found[0]} features and {found[1]} outputs, not {shape}")
    if spline is not None:
        require((len(spline.feature_names), spline.intercept.size) == shape, "a spline of another shape")
    return shape


def _check_members(model: Any, features: int, outputs: int) -> None:
    """Check what is known of the members of an ensemble."""
    from knotwork.network.chain import read_chain

    state = vars(model)
    members, unseen = state.get("members_", ()), state.get("oof_prediction_")
    known = isinstance(members, tuple) and all(map(_is_record("Member"), members))
    require(known, "members that are none")
    for member in members:
        before = read_chain(member.start_network)
        require((before.inputs, before.outputs) == (features, outputs), "a member of another shape")
        has_features(member.coordinates, features)
    if unseen is not None:
        columns = len(state["classes_"]) if "classes_" in state else outputs
        flat = state.get("_flat_output", False)
        right = isinstance(unseen, np.ndarray) and unseen.dtype == np.float64 and unseen.ndim == (1 if flat else 2)
        require(right and (flat or unseen.shape[1] == columns), "out-of-fold predictions of another shape")
        held = [row for member in members for row in member.held_out[-1:]]
        require(all(row < len(unseen) for row in held), "members that hold out rows that are none")


def _is_record(*names: str) -> Callable[[Any], bool]:
    return lambda value: any(isinstance(value, class_in(RECORDS, name)) for name in names)


def _is_network(value: Any) -> bool:
    from torch import nn

    return isinstance(value, nn.Sequential)


_ATTRIBUTES: dict[str, Callable[[Any], bool]] = {
    "_flat_output": lambda value: isinstance(value, bool),
    "classes_": lambda value: isinstance(value, np.ndarray),
    "encoder_": _is_record("TableEncoder"),
    "fit_": _is_record("SplineFit", "ClassFit", "ResponseFit", "PiecewiseFit"),
    "history_": _is_record("History"),
    "n_features_in_": lambda value: matches(value, int),
    "network_": _is_network,
    "pwl_": _is_record("LatticePWL", "MaxSum"),
    "spline_": lambda value: value is None or _is_record("Spline")(value),
}
