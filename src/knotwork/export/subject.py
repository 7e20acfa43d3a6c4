"""What is exported: the chain of a model, our own prediction to check against, and what a file says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import nn

from knotwork import __version__
from knotwork.arrays import Floats
from knotwork.data.columns.date import Date
from knotwork.data.columns.duration import Duration
from knotwork.data.columns.kinds import Column
from knotwork.data.columns.level_means import LevelMeans
from knotwork.data.columns.levels import Levels
from knotwork.data.columns.number import Number
from knotwork.data.columns.ordered import Ordered
from knotwork.data.columns.skipped import Skipped
from knotwork.errors import NetworkError
from knotwork.network.chain import Chain
from knotwork.network.compile.convert import model_chain, resolve_network
from knotwork.network.resolve import Resolved

Precision = Literal["float32", "float64"]

# Share of a column's std that rounding its rows to the file's precision may move them.
MAX_ROUNDING = 1e-3


@dataclass(frozen=True)
class Subject:
    """A model to export.

    chain : of its encoded features; parts : the model taken apart, which evaluates itself
    about : what the file says about itself
    output : name of what the chain computes
    """

    chain: Chain
    parts: Resolved
    about: dict[str, Any]
    output: str

    @property
    def inputs(self) -> int:
        """Number of encoded features."""
        return self.chain.inputs

    @property
    def outputs(self) -> int:
        """Number of outputs of the chain."""
        return len(self.chain.output.bias)

    @property
    def layers(self) -> list[tuple[Floats, Floats] | nn.Module]:
        """Weight and bias of each affine layer and the activations, in order."""
        chain = self.chain
        layers: list[tuple[Floats, Floats] | nn.Module] = []
        for layer, module in zip(chain.hidden, chain.modules, strict=True):
            layers += [(layer.weight.numpy(), layer.bias.numpy()), module]
        return [*layers, (chain.output.weight.numpy(), chain.output.bias.numpy())]

    def rounding(self, dtype: Precision) -> Floats:
        """Return how far rows of this precision are off, in stds of each feature: (d,), zeros if nobody knows them."""
        c = self.chain.scaling
        if c is None:
            return np.zeros(self.inputs)
        return np.abs(c.x_centre) * float(np.finfo(dtype).eps) / c.x_scale

    def precision(self, dtype: str | None) -> Precision:
        """Return the precision asked for, or the one that rows of encoded features need."""
        if dtype is None:
            return "float64" if self.rounding("float32").max(initial=0.0) > MAX_ROUNDING else "float32"
        match dtype:
            case "float32" | "float64":
                return dtype
        raise NetworkError(f"dtype must be 'float32' or 'float64', got {dtype!r}")


def subject_of(model: Any) -> Subject:
    """Take a model apart: its network, or the layers of its function."""
    parts = resolve_network(model)
    output = "prediction" if parts.classes is None else "decision"
    output = output if parts.link == "identity" else f"{parts.link}_{output}"
    bare = parts.network if parts.estimator is None else None
    chain = model_chain(parts) if bare is None else bare
    # Where there is a function, its own evaluation judges the layers: the independent way.
    return Subject(chain, parts, _about(parts, model), output)


def _about(parts: Resolved, model: Any) -> dict[str, Any]:
    """Return what a file says about itself."""
    kind = type(model).__name__ if parts.estimator is None else parts.kind
    about: dict[str, Any] = {"version": __version__, "model": kind, "link": parts.link}
    if parts.encoder is not None:
        about["feature_names"] = list(parts.encoder.feature_names)
        if parts.estimator is not None or parts.network is not None:
            about["columns"] = [_column(column) for column in parts.encoder.columns]
    if parts.classes is not None:
        about["classes"] = [str(name) for name in parts.classes]
    return about


def _column(column: Column) -> dict[str, Any]:
    """Say how a column becomes features."""
    about: dict[str, Any] = {"name": column.name}
    match column:
        case Levels():
            about["categories"] = [str(c) for c in column.categories]
            if column.pooled:
                about["pooled"] = [str(c) for c in column.pooled]
            if column.gaps:
                about["gaps"] = True
        case LevelMeans():
            about["means"] = {
                str(level): means for level, means in zip(column.levels, column.means.tolist(), strict=True)
            }
            about["default"] = column.default.tolist()
            about["gap"] = None if column.gap is None else column.gap.tolist()
        case Ordered():
            about["order"] = [str(c) for c in column.categories]
            about["fill"] = column.fill
        case Date():
            about |= {"unit": "seconds since 1970-01-01 00:00", "zone": column.zone, "origin": column.origin / 1e6,
                      "calendar": list(column.calendar), "fill": column.fill}  # fmt: skip
        case Duration():
            about |= {"unit": "seconds", "feature": column.unit, "fill": column.fill}
        case Number(indicator=True):
            about["fill"] = column.fill
        case Skipped():
            about["categories"] = []
    return about
