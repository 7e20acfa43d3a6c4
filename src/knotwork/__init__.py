"""knotwork: fit a continuous piecewise-linear spline in milliseconds and start a neural network from it.

Names are imported on first use, so that ``import knotwork`` costs next to nothing and a spline fit never loads torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knotwork.data import datasets as datasets
    from knotwork.data.batches import Batches as Batches
    from knotwork.data.limits import Limits as Limits
    from knotwork.estimators.hinging import HingingHyperplanesRegressor as HingingHyperplanesRegressor
    from knotwork.estimators.mars import MarsRegressor as MarsRegressor
    from knotwork.estimators.mars_classifier import MarsClassifier as MarsClassifier
    from knotwork.estimators.maxaffine import DCMaxAffineRegressor as DCMaxAffineRegressor
    from knotwork.estimators.maxaffine import MaxAffineRegressor as MaxAffineRegressor
    from knotwork.estimators.splinenet import SplineNetRegressor as SplineNetRegressor
    from knotwork.estimators.splinenet_classifier import SplineNetClassifier as SplineNetClassifier
    from knotwork.explanation.explanation import Explanation as Explanation
    from knotwork.explanation.explanation import explain as explain
    from knotwork.export.onnx_file import export_onnx as export_onnx
    from knotwork.io import load as load
    from knotwork.io import save as save
    from knotwork.network.compile.convert import fold as fold
    from knotwork.network.compile.convert import to_network as to_network
    from knotwork.network.compile.regions import from_network as from_network
    from knotwork.network.compile.size import network_size as network_size
    from knotwork.network.compile.to_relu import to_relu as to_relu
    from knotwork.network.reshape import deepen as deepen
    from knotwork.network.reshape import reshape as reshape
    from knotwork.network.reshape import widen as widen
    from knotwork.network.resolve import as_pwl as as_pwl
    from knotwork.network.scaling import Scaling as Scaling
    from knotwork.network.start.heads import init_head_ as init_head_
    from knotwork.network.start.init import init_ as init_
    from knotwork.network.start.with_spline import with_spline as with_spline
    from knotwork.network.train.train import train as train
    from knotwork.pwl.lattice import LatticePWL as LatticePWL
    from knotwork.pwl.maxsum import MaxSum as MaxSum
    from knotwork.pwl.pieces import Piece as Piece
    from knotwork.pwl.pieces import Pieces as Pieces
    from knotwork.spline.model import Hinge as Hinge
    from knotwork.spline.model import Linear as Linear
    from knotwork.spline.model import Min as Min
    from knotwork.spline.model import Product as Product
    from knotwork.spline.model import Spline as Spline

__version__ = "0.2.0"

_HOME = {
    "Batches": "knotwork.data.batches",
    "Explanation": "knotwork.explanation.explanation",
    "DCMaxAffineRegressor": "knotwork.estimators.maxaffine",
    "Hinge": "knotwork.spline.model",
    "HingingHyperplanesRegressor": "knotwork.estimators.hinging",
    "LatticePWL": "knotwork.pwl.lattice",
    "Limits": "knotwork.data.limits",
    "Linear": "knotwork.spline.model",
    "MarsClassifier": "knotwork.estimators.mars_classifier",
    "MarsRegressor": "knotwork.estimators.mars",
    "Min": "knotwork.spline.model",
    "Product": "knotwork.spline.model",
    "MaxAffineRegressor": "knotwork.estimators.maxaffine",
    "MaxSum": "knotwork.pwl.maxsum",
    "Piece": "knotwork.pwl.pieces",
    "Pieces": "knotwork.pwl.pieces",
    "Scaling": "knotwork.network.scaling",
    "Spline": "knotwork.spline.model",
    "SplineNetClassifier": "knotwork.estimators.splinenet_classifier",
    "SplineNetRegressor": "knotwork.estimators.splinenet",
    "as_pwl": "knotwork.network.resolve",
    "deepen": "knotwork.network.reshape",
    "export_onnx": "knotwork.export.onnx_file",
    "explain": "knotwork.explanation.explanation",
    "fold": "knotwork.network.compile.convert",
    "from_network": "knotwork.network.compile.regions",
    "init_": "knotwork.network.start.init",
    "init_head_": "knotwork.network.start.heads",
    "load": "knotwork.io",
    "network_size": "knotwork.network.compile.size",
    "reshape": "knotwork.network.reshape",
    "save": "knotwork.io",
    "to_network": "knotwork.network.compile.convert",
    "to_relu": "knotwork.network.compile.to_relu",
    "train": "knotwork.network.train.train",
    "widen": "knotwork.network.reshape",
    "with_spline": "knotwork.network.start.with_spline",
}
_MODULES = {"datasets": "knotwork.data.datasets"}

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        if not globals().keys() & _HOME.keys():  # the first of them
            importlib.import_module("knotwork.compute.blas").take_buffer()
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    else:
        raise AttributeError(f"module 'knotwork' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
