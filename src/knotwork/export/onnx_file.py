"""Models as ONNX: the columns of a table in, or encoded features; predictions, labels and probabilities out."""

from __future__ import annotations

import importlib
import json
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from torch import nn

from knotwork import __version__
from knotwork.arrays import Floats
from knotwork.data.links import inverse_link
from knotwork.errors import MissingPackage, NetworkError
from knotwork.export.check import ROUNDING, Exported, check, rows_around_the_kinks, warn_of_rounded_rows
from knotwork.export.columns import Input, as_table, features, feed, inputs_of, raw_rows, refused
from knotwork.export.nodes import Nodes
from knotwork.export.subject import Precision, Subject, subject_of
from knotwork.parameters import checked, place, switch, text
from knotwork.serial.folder import output_file

OPSET, ML_OPSET = 17, 2
IR_VERSION = 8


# Name, type and shape of a value in the graph.
Result = tuple[str, int, list[str | int]]


@dataclass(frozen=True)
class Layout:
    """What goes into a file and what comes out.

    columns : the table's columns, None for encoded features
    outputs : names by what they are: "link", what the network gives; "prediction", its inverse link; "label" and
        "probabilities" of a classifier
    """

    dtype: Precision
    columns: list[Input] | None
    outputs: dict[str, str]

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        return ("features",) if self.columns is None else tuple(column.name for column in self.columns)


@checked(path=place(), dtype=text().optional, inputs=text().optional, overwrite=switch())
def export_onnx(
    model: Any,
    path: str | os.PathLike[str],
    *,
    dtype: Precision | None = None,
    inputs: Literal["columns", "features"] | None = None,
    overwrite: bool = True,
) -> Exported:
    """Write a model as ONNX, once onnxruntime has reproduced knotwork's predictions with it.

    Parameters
    ----------
    model : nn.Sequential of Linear and activations, or anything that ``to_network`` takes
    path : the file
    dtype : of the weights and outputs, and of the input "features". None is float64 for a file that takes columns
        (float32 if the network has GELU, which runtimes compute in float32 only), and float32 for one that takes
        features, unless a column lies so far from zero that it would be lost
    inputs : "columns" takes the raw table, an input (rows, 1) for each column, under its name; "features" takes one
        matrix of encoded features (rows, features). None is "columns" for an estimator or a pipeline that was fitted to
        a table with column names, "features" for others
    overwrite : whether a file that is there may be replaced, once the new one has passed its check

    Returns
    -------
    Exported : the file's inputs and outputs, and the largest difference that the check found

    Notes
    -----
    **Columns.** Numbers and booleans are doubles. Dates are doubles, seconds since 1970-01-01 00:00 in UTC, or on the
    clock for dates without a time zone; durations and times of the day are seconds. NaN is missing in all of these.
    Text is strings, "" where it is missing (unless training had "" as a category). Gaps, rare and unseen categories
    count as they do in ``predict``, without a warning; what ``predict`` refuses (an infinity, or a gap with
    ``missing="error"``) makes the outputs NaN. Columns that the model leaves out are no inputs.

    **Outputs.** "prediction" (rows, outputs). For a classifier "label" (rows,), text, integers or booleans as the
    classes are, "probabilities" (rows, classes) in the order of ``classes_``, and "decision" (rows, outputs), what
    ``decision_function`` returns: for two classes the log-odds of the second. For a model of log(y) "log_prediction"
    and "prediction", and so on. An output whose name is that of a column gets underscores behind it.

    The metadata ``knotwork.columns`` says how a table becomes the features, ``knotwork.feature_names`` names them, and
    ``knotwork.link`` is the function of y that the network gives. Needs onnx and onnxruntime:
    ``pip install 'knotwork[export]'``.

    Examples
    --------
    >>> import tempfile
    >>> import knotwork as kw
    >>> X, y = kw.datasets.load_abalone()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kw.export_onnx(kw.MarsRegressor().fit(X, y), f"{folder}/model.onnx").input_names[:3]
    ('Sex', 'Length', 'Diameter')
    """
    onnx, onnxruntime = _require("onnx"), _require("onnxruntime")
    if inputs not in (None, "columns", "features"):
        raise NetworkError(f"inputs must be 'columns' or 'features', got {inputs!r}")
    subject = subject_of(model)
    layout = _layout(subject, dtype, inputs)
    proto = _graph(subject, layout)
    onnx.checker.check_model(proto, full_check=True)
    with output_file(path, overwrite=overwrite) as fresh:
        # As bytes: by a path's ending both would choose another format, and .json, say, could not be read again.
        fresh.write_bytes(proto.SerializeToString())
        session = onnxruntime.InferenceSession(fresh.read_bytes(), providers=["CPUExecutionProvider"])
        return _checked(subject, layout, Path(path), session)


def _require(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingPackage(f"exporting to ONNX needs {name}; pip install 'knotwork[export]'") from None


def _layout(subject: Subject, dtype: str | None, inputs: str | None) -> Layout:
    parts = subject.parts
    known = parts.encoder is not None and parts.estimator is not None
    if inputs == "columns" and not known:
        raise NetworkError(
            f"only a model that was fitted knows its columns, got a {parts.kind}; export the estimator, or pass "
            f"inputs='features'"
        )
    columns = None
    if inputs == "columns" or (inputs is None and known and parts.named):
        assert parts.encoder is not None
        columns = inputs_of(parts.encoder)
        if dtype is None:
            exact = any(isinstance(m, nn.GELU) and m.approximate == "none" for m in subject.chain.modules)
            dtype = "float32" if exact else "float64"
    precision = subject.precision(dtype)
    taken = {"features"} if columns is None else {column.name for column in columns}
    kinds = {"link": subject.output}
    if parts.classes is not None:
        kinds = {"label": "label", "probabilities": "probabilities", **kinds}
    elif parts.link != "identity":
        kinds["prediction"] = "prediction"
    outputs = {}
    for kind, name in kinds.items():
        while name in taken:
            name += "_"
        taken.add(name)
        outputs[kind] = name
    return Layout(precision, columns, outputs)


def _graph(subject: Subject, layout: Layout) -> Any:
    """Write the layers, and the columns in front of them, as an ONNX model."""
    from onnx import TensorProto, helper

    kind = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}[layout.dtype]
    nodes = Nodes(np.dtype(layout.dtype), (*layout.input_names, *layout.outputs.values()))
    encoder = subject.parts.encoder
    if layout.columns is None:
        inputs = [helper.make_tensor_value_info("features", kind, ["rows", subject.inputs])]
        x = _network(nodes, subject, "features")
    else:
        assert encoder is not None
        inputs = [
            helper.make_tensor_value_info(c.name, TensorProto.STRING if c.is_text else TensorProto.DOUBLE, ["rows", 1])
            for c in layout.columns
        ]
        rows = features(nodes, encoder)
        # A unit of the network may turn NaN into 0: what predict refuses stays NaN by a way of its own.
        x = nodes.node("Add", _network(nodes, subject, rows), nodes.cast(refused(nodes, rows), nodes.dtype))
    results: dict[str, Result] = {"link": (x, kind, ["rows", subject.outputs])}
    if "prediction" in layout.outputs:
        results["prediction"] = nodes.inverse_of_link(x, subject.parts.link), kind, ["rows", subject.outputs]
    if subject.parts.classes is not None:
        results |= _classes(nodes, x, subject.parts.classes, kind)
    outputs = []
    for what, name in layout.outputs.items():
        value, value_kind, shape = results[what]
        nodes.output(value, name)
        outputs.append(helper.make_tensor_value_info(name, value_kind, shape))
    graph = helper.make_graph(nodes.nodes, "knotwork", inputs, outputs, initializer=nodes.tensors)
    proto = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="knotwork",
        producer_version=__version__,
    )
    texts = {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in subject.about.items()}
    helper.set_model_props(proto, {f"knotwork.{key}": text for key, text in texts.items()})
    return proto


def _network(nodes: Nodes, subject: Subject, x: str) -> str:
    """Write the layers with the scaling at their ends."""
    c = subject.chain.scaling
    x = nodes.cast(x, nodes.dtype) if c is None else nodes.scaling(x, c.x_centre, c.x_scale, c.limits)
    for layer in subject.layers:
        x = nodes.affine(x, *layer) if isinstance(layer, tuple) else nodes.activation(x, layer)
    if c is None:
        return x
    y = nodes.scaling(x, c.inverse.y_centre, c.inverse.y_scale)
    return y if c.y_limits is None else nodes.held(y, c.y_limits, nodes.dtype)


def _classes(nodes: Nodes, logits: str, classes: tuple[Any, ...], kind: int) -> dict[str, Result]:
    """Write probabilities and labels."""
    from onnx import helper

    if len(classes) == 2:
        zero = nodes.node("Mul", logits, nodes.tensor(0.0))
        logits = nodes.node("Concat", zero, logits, axis=1)
    labels = label_array(classes)
    best = nodes.node("ArgMax", logits, axis=1, keepdims=0)
    label = nodes.node("Gather", nodes.tensor(labels, labels.dtype), best, axis=0)
    # numpy's texts have no type of ONNX's.
    label_kind = helper.np_dtype_to_tensor_dtype(np.dtype(object) if labels.dtype.kind == "O" else labels.dtype)
    return {
        "label": (label, label_kind, ["rows"]),
        "probabilities": (nodes.softmax(logits), kind, ["rows", len(classes)]),
    }


def label_array(classes: tuple[Any, ...]) -> NDArray[Any]:
    """Return classes as a file holds them: booleans, integers and floats as such, everything else as text.

    >>> label_array((True, False)).dtype, label_array((3, 5)).dtype, label_array(("a", "b")).dtype
    (dtype('bool'), dtype('int64'), dtype('O'))
    """
    array = np.array(classes)
    match array.dtype.kind:
        case "b":
            return array
        case "i" | "u" if array.max() < 2**63:
            return array.astype(np.int64)
        case "f":
            return array.astype(np.float64)
    return np.array([str(label) for label in classes], dtype=object)


def _checked(subject: Subject, layout: Layout, path: Path, session: Any) -> Exported:
    """Run a file on rows around the kinks, as encoded features or as a raw table with gaps, and compare."""
    rows = rows_around_the_kinks(subject)
    encoder = subject.parts.encoder
    if layout.columns is None:
        single = rows.astype(layout.dtype)
        given, rows = {"features": single}, single.astype(np.float64)
    else:
        assert encoder is not None
        table = raw_rows(encoder, rows, np.random.default_rng(1))
        given = feed(table, layout.columns)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of gaps and unseen categories, which are there on purpose
            rows = encoder.encode(as_table(encoder, table))
    found = dict(zip(layout.outputs, session.run(list(layout.outputs.values()), given), strict=True))
    expected = subject.parts(rows)
    largest, allowed = check(subject, layout.dtype, path, rows, found["link"], expected)
    _check_others(subject, layout, path, found, expected, allowed)
    if layout.columns is None:
        warn_of_rounded_rows(subject, layout.dtype)
    count = subject.inputs if layout.columns is None else len(layout.columns)
    names = layout.input_names, tuple(layout.outputs.values())
    return Exported(path, count, subject.outputs, len(rows), largest, *names, layout.dtype)


def _check_others(
    subject: Subject, layout: Layout, path: Path, found: dict[str, NDArray[Any]], expected: Floats, allowed: Floats
) -> None:
    """Compare what follows from the network's results: the prediction behind a link, labels and probabilities."""
    right = True
    if "prediction" in found:
        with np.errstate(all="ignore"):
            same = inverse_link(subject.parts.link, found["link"]).astype(np.float64)
            rounding = 10 * ROUNDING[layout.dtype] * np.maximum(1, np.abs(same))
            right = bool((np.abs(found["prediction"] - same) <= rounding)[np.isfinite(same)].all())
    if subject.parts.classes is not None:
        logits = np.column_stack([np.zeros(len(expected)), expected]) if expected.shape[1] == 1 else expected
        slack = allowed.max(axis=1)
        shares = np.abs(found["probabilities"] - softmax(logits, axis=1)).max(axis=1)
        # A probability moves by at most as much as the logits do together.
        right = bool((shares <= 2 * slack + 10 * ROUNDING[layout.dtype]).all())
        labels = label_array(subject.parts.classes)
        first, second = np.sort(logits, axis=1)[:, [-1, -2]].T
        clear = first - second > 2 * slack
        right &= bool((found["label"] == labels[logits.argmax(axis=1)])[clear].all())
    if not right:
        raise NetworkError(
            f"an exported file must give our labels and probabilities, {path.name} did not, and was not written; "
            f"please report it"
        )
