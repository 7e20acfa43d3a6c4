"""knotwork: fit a continuous piecewise-linear spline in milliseconds and start a neural network from it.

Names are imported on first use, so that ``import knotwork`` costs next to nothing and a spline fit never loads torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knotwork.data import datasets as datasets
    from knotwork.estimators.mars import MarsRegressor as MarsRegressor
    from knotwork.estimators.mars_classifier import MarsClassifier as MarsClassifier
    from knotwork.estimators.splinenet import SplineNetRegressor as SplineNetRegressor
    from knotwork.estimators.splinenet_classifier import SplineNetClassifier as SplineNetClassifier
    from knotwork.explanation.explanation import Explanation as Explanation
    from knotwork.explanation.explanation import explain as explain
    from knotwork.export import export_onnx as export_onnx
    from knotwork.io import load as load
    from knotwork.io import save as save
    from knotwork.network.convert import to_network as to_network
    from knotwork.network.heads import init_head_ as init_head_
    from knotwork.network.init import init_ as init_
    from knotwork.network.reshape import deepen as deepen
    from knotwork.network.reshape import reshape as reshape
    from knotwork.network.reshape import widen as widen
    from knotwork.network.train import train as train
    from knotwork.spline.model import Hinge as Hinge
    from knotwork.spline.model import Linear as Linear
    from knotwork.spline.model import Min as Min
    from knotwork.spline.model import Product as Product
    from knotwork.spline.model import Spline as Spline

__version__ = "0.1.0"

_HOME = {
    "Explanation": "knotwork.explanation.explanation",
    "Hinge": "knotwork.spline.model",
    "Linear": "knotwork.spline.model",
    "MarsClassifier": "knotwork.estimators.mars_classifier",
    "MarsRegressor": "knotwork.estimators.mars",
    "Min": "knotwork.spline.model",
    "Product": "knotwork.spline.model",
    "Spline": "knotwork.spline.model",
    "SplineNetClassifier": "knotwork.estimators.splinenet_classifier",
    "SplineNetRegressor": "knotwork.estimators.splinenet",
    "deepen": "knotwork.network.reshape",
    "export_onnx": "knotwork.export",
    "explain": "knotwork.explanation.explanation",
    "init_": "knotwork.network.init",
    "init_head_": "knotwork.network.heads",
    "load": "knotwork.io",
    "reshape": "knotwork.network.reshape",
    "save": "knotwork.io",
    "to_network": "knotwork.network.convert",
    "train": "knotwork.network.train",
    "widen": "knotwork.network.reshape",
}
_MODULES = {"datasets": "knotwork.data.datasets"}

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    else:
        raise AttributeError(f"module 'knotwork' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
