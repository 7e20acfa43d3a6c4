"""Models for other programs: ONNX and torch.export files, checked against our own prediction before they appear.

A file takes the encoded features as numbers, (rows, features), and gives the outputs, (rows, outputs). How a table
becomes these numbers is in the file's metadata: the columns in order, each with its categories if it has any. A column
without categories is one feature; one with categories is a feature for each of them, 1 where the row has it and 0
elsewhere. In Python ``to_network(model).conversion.encoder.encode(frame)`` does that. The metadata also name the link:
a file of a model of log(y) gives log(y).

The ONNX graph is made from the layers themselves (Gemm and a few activations): it is small, needs no exporter, and any
runtime of operator set 17 runs it.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from knotwork import __version__
from knotwork.arrays import Floats
from knotwork.atomic import atomic_file
from knotwork.data.columns.kinds import Column
from knotwork.data.columns.levels import Levels
from knotwork.data.columns.number import Number
from knotwork.data.columns.skipped import Skipped
from knotwork.errors import MissingPackage, NetworkError, ScaleWarning
from knotwork.network.chain import Chain, build
from knotwork.network.compile.convert import model_chain, resolve_network
from knotwork.network.onnx_nodes import Nodes
from knotwork.network.resolve import Resolved
from knotwork.parameters import checked, place, text

OPSET = 17
IR_VERSION = 8
ROWS = 512
# Rounding error that a file may have, for each layer, as a share of the size of the network's parts.
ROUNDING = {"float32": 1e-6, "float64": 1e-12}

# Share of a column's std that rounding its rows to the file's precision may move them.
MAX_ROUNDING = 1e-3

Precision = Literal["float32", "float64"]


@dataclass(frozen=True)
class Exported:
    """A file that was written: its shape, and its maximum difference from our prediction on the rows of the check."""

    path: Path
    inputs: int
    outputs: int
    rows: int
    largest_difference: float


@dataclass(frozen=True)
class _Subject:
    """What is exported: a chain, our own prediction to check against, and what the file says about itself."""

    chain: Chain
    predict: Callable[[Floats], Floats]
    about: dict[str, Any]
    output: str

    @property
    def inputs(self) -> int:
        return self.chain.inputs

    @property
    def outputs(self) -> int:
        return len(self.chain.output.bias)

    @property
    def layers(self) -> list[tuple[Floats, Floats] | nn.Module]:
        """Weight and bias of each affine layer and the activations, in order."""
        chain = self.chain
        layers: list[tuple[Floats, Floats] | nn.Module] = []
        for layer, module in zip(chain.hidden, chain.modules, strict=True):
            layers += [(layer.weight.numpy(), layer.bias.numpy()), module]
        return [*layers, (chain.output.weight.numpy(), chain.output.bias.numpy())]


@checked(path=place(), dtype=text())
def export_onnx(model: Any, path: str | os.PathLike[str], *, dtype: Precision = "float32") -> Exported:
    """Write a model as ONNX, after onnxruntime has given our prediction with it.

    Parameters
    ----------
    model : nn.Sequential of Linear and activations, or anything that ``to_network`` takes
    path : the file; one that is there is replaced, but only once the new one has passed its check
    dtype : of the input "features" (rows, features), the output and the weights

    Returns
    -------
    Exported : the size of the file's input and output and the largest difference that the check found

    Notes
    -----
    The output is "prediction" (rows, outputs); for a classifier it is "decision", what ``decision_function`` returns
    (for two classes the log-odds of the second); for a model of log(y) it is "log_prediction", and so on. The metadata
    ``knotwork.columns`` says how a table becomes the features, ``knotwork.feature_names`` names them, and
    ``knotwork.link`` is the function of y that comes out. Needs onnx and onnxruntime:
    ``pip install 'knotwork[export]'``.

    Examples
    --------
    >>> import tempfile
    >>> from knotwork import Hinge, Spline
    >>> spline = Spline((Hinge(0, 1.0, 1),), intercept=[2.0], coef=[[0.5]], feature_names=("x",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(spline, f"{folder}/spline.onnx", dtype="float64").largest_difference
    0.0
    """
    onnx, onnxruntime = _require("onnx"), _require("onnxruntime")
    subject = _subject(model)
    _require_dtype(dtype)
    proto = _graph(subject, dtype)
    onnx.checker.check_model(proto, full_check=True)
    with atomic_file(path) as fresh:
        onnx.save(proto, fresh)
        session = onnxruntime.InferenceSession(fresh, providers=["CPUExecutionProvider"])
        return _check(subject, dtype, Path(path), lambda rows: session.run(None, {"features": rows})[0])


@checked(path=place(), dtype=text())
def export_torch(model: Any, path: str | os.PathLike[str], *, dtype: Precision = "float32") -> Exported:
    """Write a model as a ``torch.export`` program (.pt2), after the file has given our prediction.

    ``torch.export.load(path).module()`` takes a tensor (rows, features); the parameters are those of
    :func:`export_onnx`. What ONNX keeps as metadata is the extra file ``knotwork.json``.
    """
    subject = _subject(model)
    _require_dtype(dtype)
    net = build(subject.chain, getattr(torch, dtype)).eval()
    del net.conversion  # no part of the program
    example = torch.zeros(3, subject.inputs, dtype=getattr(torch, dtype))
    program = torch.export.export(net, (example,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    # Written by ourselves: torch says nothing that can be understood about a full disk.
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={"knotwork.json": json.dumps(subject.about)})
    with atomic_file(path) as fresh:
        fresh.write_bytes(content.getbuffer())
        module = torch.export.load(fresh).module()

        def run(rows: NDArray[Any]) -> NDArray[Any]:
            with torch.no_grad():
                values: NDArray[Any] = module(torch.from_numpy(rows)).numpy()
            return values

        return _check(subject, dtype, Path(path), run)


def _require(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingPackage(f"exporting to ONNX needs {name}; pip install 'knotwork[export]'") from None


def _require_dtype(dtype: str) -> None:
    if dtype not in ROUNDING:
        raise NetworkError(f"dtype must be 'float32' or 'float64', got {dtype!r}")


def _subject(model: Any) -> _Subject:
    """Take a model apart: its network, or the layers of its function."""
    parts = resolve_network(model)
    output = "prediction" if parts.classes is None else "decision"
    output = output if parts.link == "identity" else f"{parts.link}_{output}"
    bare = parts.network if parts.estimator is None else None
    chain = model_chain(parts) if bare is None else bare
    # Where there is a function, its own evaluation judges the layers: the independent way.
    return _Subject(chain, parts, _about(parts, model), output)


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
        case Number(indicator=True):
            about["fill"] = column.fill
        case Skipped():
            about["categories"] = []
    return about


def _activate(module: nn.Module, values: Floats) -> Floats:
    with torch.no_grad():
        result: Floats = module.to("cpu", torch.float64)(torch.from_numpy(values)).numpy()
    return result


def _check(subject: _Subject, dtype: Precision, path: Path, run: Callable[[NDArray[Any]], NDArray[Any]]) -> Exported:
    """Compare a file's results with ours, relative to the size of the parts: they may be large and cancel."""
    rows = _rows_around_the_kinks(subject).astype(dtype)
    size, depth = _size_of_parts(subject, rows.astype(np.float64))
    with np.errstate(invalid="ignore"):
        difference = np.abs(run(rows) - subject.predict(rows.astype(np.float64)))
    allowed = depth * ROUNDING[dtype] * size
    if not (difference <= allowed).all():  # NaN is not
        worst = int(np.argmax(np.where(np.isnan(difference), np.inf, difference - allowed).max(axis=1)))
        raise NetworkError(
            f"an exported file must give our prediction, {path.name} was off by {difference[worst].max():.3g} where "
            f"rounding explains {allowed[worst].max():.3g}, and was not written; "
            f"{'try float64' if dtype == 'float32' else 'please report it'}"
        )
    _warn_of_rounded_rows(subject, dtype)
    return Exported(path, subject.inputs, subject.outputs, len(rows), float(difference.max()))


def _warn_of_rounded_rows(subject: _Subject, dtype: Precision) -> None:
    """Say which columns lie so far from zero that rows of this precision no longer tell their values apart."""
    c = subject.chain.scaling
    if c is None:
        return
    lost = np.abs(c.x_centre) * float(np.finfo(dtype).eps) / c.x_scale  # in stds
    if lost.max() > MAX_ROUNDING:
        names = subject.about.get("feature_names", [f"x{k}" for k in range(subject.inputs)])
        warnings.warn(
            f"rows of {dtype} round column {names[int(lost.argmax())]!r}, which lies far from zero, by "
            f"{lost.max():.2g} of its std, and the predictions with it; export with dtype='float64'",
            ScaleWarning,
            stacklevel=5,
        )


def _rows_around_the_kinks(subject: _Subject) -> Floats:
    """Make rows where the first layer bends: features near the points where its units are zero, on both sides."""
    rng = np.random.default_rng(0)
    first = subject.chain.layers[0]
    weight, bias = first.weight.numpy(), first.bias.numpy()
    norms = (weight**2).sum(axis=1)
    used = norms > 0
    points = -bias[used, None] * weight[used] / norms[used, None]
    rows = rng.normal(size=(ROWS, subject.inputs))
    for feature in range(subject.inputs):
        pool = points[weight[used][:, feature] != 0, feature]
        if pool.size:
            rows[:, feature] = rng.choice(pool, ROWS) + rows[:, feature] * (pool.std() or abs(pool[0]) or 1.0)
    return subject.chain.coordinates.inverse.features(rows)


def _size_of_parts(subject: _Subject, rows: Floats) -> tuple[Floats, int]:
    """Run the layers on absolute values: return the maximum that the parts of each output add up to, and the layers."""
    c = subject.chain.coordinates
    size, depth = np.abs(c.features(rows)), 0
    for layer in subject.layers:
        if isinstance(layer, tuple):
            weight, bias = layer
            size, depth = size @ np.abs(weight).T + np.abs(bias), depth + 1
        else:
            # All of these grow away from zero, so |act(u)| for |u| ≤ size has its maximum at an end.
            size = np.maximum(np.abs(_activate(layer, size)), np.abs(_activate(layer, -size)))
    return size * c.y_scale + np.abs(c.y_centre), depth


def _graph(subject: _Subject, dtype: Precision) -> Any:
    """Write the layers as an ONNX model."""
    from onnx import TensorProto, helper

    kind = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}[dtype]
    nodes = Nodes(np.dtype(dtype))
    name, c = "features", subject.chain.scaling
    if c is not None:
        name = nodes.scaling(name, c.x_centre, c.x_scale, c.limits)
    for layer in subject.layers:
        name = nodes.affine(name, *layer) if isinstance(layer, tuple) else nodes.activation(name, layer)
    if c is not None:
        back = c.inverse
        name = nodes.scaling(name, back.y_centre, back.y_scale)
    nodes.rename_last(subject.output)
    graph = helper.make_graph(
        nodes.nodes,
        "knotwork",
        [helper.make_tensor_value_info("features", kind, ["rows", subject.inputs])],
        [helper.make_tensor_value_info(subject.output, kind, ["rows", subject.outputs])],
        initializer=nodes.tensors,
    )
    proto = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="knotwork",
        producer_version=__version__,
    )
    texts = {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in subject.about.items()}
    helper.set_model_props(proto, {f"knotwork.{key}": text for key, text in texts.items()})
    return proto
