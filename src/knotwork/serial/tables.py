"""All that a saved model may name: what can be saved, the records and layers inside, the attributes of estimators.

Nothing found in a file is ever looked up anywhere else.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from itertools import islice
from typing import Any

from knotwork.errors import DataError

DOCUMENT = "model.json"
# Names that a refusal lists.
MAX_NAMED = 12

# What can be saved, and the modules that define it.
KINDS = {
    "DCMaxAffineRegressor": "knotwork.estimators.maxaffine",
    "HingingHyperplanesRegressor": "knotwork.estimators.hinging",
    "LatticePWL": "knotwork.pwl.lattice",
    "MarsClassifier": "knotwork.estimators.mars_classifier",
    "MarsRegressor": "knotwork.estimators.mars",
    "MaxAffineRegressor": "knotwork.estimators.maxaffine",
    "MaxSum": "knotwork.pwl.maxsum",
    "Sequential": "torch.nn.modules.container",
    "Spline": "knotwork.spline.model",
    "SplineNetClassifier": "knotwork.estimators.splinenet_classifier",
    "SplineNetRegressor": "knotwork.estimators.splinenet",
}
RECORDS = {
    "Calibration": "knotwork.estimators.conformal",
    "ClassFit": "knotwork.spline.likelihood",
    "Conversion": "knotwork.network.chain",
    "Coordinates": "knotwork.data.coordinates",
    "Date": "knotwork.data.columns.date",
    "Duration": "knotwork.data.columns.duration",
    "Hinge": "knotwork.spline.model",
    "History": "knotwork.network.train.history",
    "Knot": "knotwork.spline.result",
    "LatticePWL": "knotwork.pwl.lattice",
    "LevelMeans": "knotwork.data.columns.level_means",
    "Levels": "knotwork.data.columns.levels",
    "Limits": "knotwork.data.limits",
    "Linear": "knotwork.spline.model",
    "Min": "knotwork.spline.model",
    "Product": "knotwork.spline.model",
    "MaxSum": "knotwork.pwl.maxsum",
    "Member": "knotwork.estimators.members",
    "Number": "knotwork.data.columns.number",
    "Ordered": "knotwork.data.columns.ordered",
    "Part": "knotwork.data.columns.part",
    "PiecewiseFit": "knotwork.pwl.selection",
    "PruningPath": "knotwork.spline.prune",
    "Quality": "knotwork.spline.result",
    "Refit": "knotwork.spline.refit",
    "ResponseFit": "knotwork.spline.response",
    "ResponseLoss": "knotwork.data.losses",
    "SearchPath": "knotwork.spline.units",
    "Selection": "knotwork.spline.result",
    "Skipped": "knotwork.data.columns.skipped",
    "Spans": "knotwork.spline.knots",
    "Spline": "knotwork.spline.model",
    "SplineFit": "knotwork.spline.result",
    "StandardisedSearch": "knotwork.spline.result",
    "Step": "knotwork.spline.forward",
    "TableEncoder": "knotwork.data.table",
    "TermTable": "knotwork.spline.moments.moments",
    "TrainingRows": "knotwork.data.training_rows",
    "Units": "knotwork.spline.units",
}
# What the constructor of each module of torch.nn takes, and what that must be (``checks.OPTIONS``); a Linear's bias is
# known by its tensor.
_DROPOUT = {"p": "share", "inplace": "flag"}
LAYERS: dict[str, dict[str, str]] = {
    "AlphaDropout": _DROPOUT,
    "BlockLinear": {"members": "count", "in_features": "count", "out_features": "count"},
    "Dropout": _DROPOUT,
    "Dropout1d": _DROPOUT,
    "Dropout2d": _DROPOUT,
    "Dropout3d": _DROPOUT,
    "ELU": {"alpha": "finite", "inplace": "flag"},
    "FeatureAlphaDropout": _DROPOUT,
    "Flatten": {"start_dim": "integer", "end_dim": "integer"},
    "GELU": {"approximate": "approximation"},
    "Hardtanh": {"min_val": "number", "max_val": "number", "inplace": "flag"},
    "Identity": {},
    "LeakyReLU": {"negative_slope": "finite", "inplace": "flag"},
    "Linear": {"in_features": "count", "out_features": "count"},
    "PReLU": {"num_parameters": "count"},
    "ReLU": {"inplace": "flag"},
    "ReLU6": {"inplace": "flag"},
    "SiLU": {"inplace": "flag"},
    "Sigmoid": {},
    "Softplus": {"beta": "positive", "threshold": "finite"},
    "Tanh": {},
}
# Where layers with parameters come from, if not from torch.nn.
LAYER_HOMES = {"BlockLinear": "knotwork.network.blocks"}
# Layers of our own: the module that defines them, and their buffers, which the constructor takes by name: those that
# must be there, and those that may, whose numbers may be infinite.
OWN_LAYERS = {"Scaling": ("knotwork.network.scaling", ("centre", "scale"), ("lower", "upper"))}
# Splitters of sklearn.model_selection that an estimator's ``validation`` may be, and what their constructors take.
_FOLDS = ("n_splits", "shuffle", "random_state")
_DRAWS = ("n_splits", "test_size", "train_size", "random_state")
SPLITTERS = {
    "GroupKFold": _FOLDS,
    "GroupShuffleSplit": _DRAWS,
    "KFold": _FOLDS,
    "LeaveOneGroupOut": (),
    "PredefinedSplit": ("test_fold",),
    "ShuffleSplit": _DRAWS,
    "StratifiedGroupKFold": _FOLDS,
    "StratifiedKFold": _FOLDS,
    "StratifiedShuffleSplit": _DRAWS,
    "TimeSeriesSplit": ("n_splits", "max_train_size", "test_size", "gap"),
}
_SHARED = ("encoder_", "n_features_in_")
_PIECEWISE = ("pwl_", "fit_", "_flat_output", *_SHARED)
FITTED = {
    "DCMaxAffineRegressor": _PIECEWISE,
    "HingingHyperplanesRegressor": _PIECEWISE,
    "MaxAffineRegressor": _PIECEWISE,
    "MarsClassifier": ("fit_", "classes_", *_SHARED),
    "MarsRegressor": ("fit_", "_flat_output", *_SHARED),
    "SplineNetClassifier": ("network_", "spline_", "history_", "classes_", *_SHARED),
    "SplineNetRegressor": ("network_", "spline_", "history_", "_flat_output", *_SHARED),
}
# Names of the columns, for models fitted to a table; what set_output was told; what a network began with; a max-affine
# function in the coordinates it was fitted in; the range of the training rows, and what they were; the members of an
# ensemble and what each predicts for the rows it was not trained on; what the folds of ``cv`` left behind.
OPTIONAL = (
    "feature_names_in_", "_sklearn_output_config", "start_network_", "coordinates_", "_standardised", "limits_",
    "training_rows_", "members_", "oof_prediction_", "loss_", "calibration_", "temperature_", "calibration_error_",
    "fold_splines_", "fold_rows_", "fold_encoders_", "cv_results_",
)  # fmt: skip


# Characters of what was found that a message shows.
_SHOWN = 200


def name_in(table: Mapping[str, str], value: object) -> str | None:
    """Name of a value's class if it is one of the table's; a subclass is not, it would come back as something else."""
    name, home = type(value).__name__, type(value).__module__
    return name if table.get(name) == home else None


def layer_class(name: str) -> Any:
    """Return the class of a layer that is in ``LAYERS``."""
    return getattr(importlib.import_module(LAYER_HOMES.get(name, "torch.nn")), name)


def class_in(table: Mapping[str, str], name: str) -> Any:
    """Return the class of this name, if it is one of the table's."""
    require_known(table, name)
    return getattr(importlib.import_module(table[name]), name)


def require_known(table: Mapping[str, object], name: object) -> None:
    """Refuse a name that is not in a table."""
    if not isinstance(name, str) or name not in table:
        known = ", ".join([*islice(table, MAX_NAMED), *(["…"] if len(table) > MAX_NAMED else [])])
        raise DataError(
            f"{DOCUMENT} may name one of {known} here, got {shown(repr(name))}; load it with the version "
            f"of knotwork that wrote it, or save the model again"
        )


def require_keys(entries: Mapping[str, Any], expected: set[str], name: str) -> None:
    """Refuse entries that are not exactly the expected ones of the thing called ``name``."""
    wrong = sorted(set(entries) ^ expected)
    if wrong:
        raise not_as_written(f"{name} with {', '.join(wrong)} missing or unknown")


class NotAsWritten(DataError):
    """A document that no save wrote; ``found`` is what is wrong with it."""

    found = ""


def not_as_written(found: str) -> DataError:
    """Return the error for a document that has been changed."""
    error = NotAsWritten(f"{DOCUMENT} must be as save wrote it, got {shown(found)}; save the model again")
    error.found = shown(found)
    return error


def shown(text: str) -> str:
    """Shorten what came from a file, and write line breaks and terminal escapes as escapes."""
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"
    return text if text.isprintable() else ascii(text)[1:-1]
