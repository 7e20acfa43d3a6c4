"""What a model computes, taken apart: the one place that knows.

Conversion, export, explanation and the commands ask here. Estimators are known by what they have and not by their
class, so that nothing here depends on them. Pipelines and transformed targets are rewritten: the parts are functions of
the features of the pipeline's own table. Only models with a trained network load torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.columns.number import Number
from knotwork.data.links import LINKS
from knotwork.data.losses import SQUARED_ERROR, ResponseLoss
from knotwork.data.steps import Inputs, first_step, known_scaler, read_steps
from knotwork.data.table import TableEncoder
from knotwork.errors import DataError
from knotwork.pwl.lattice import LatticePWL
from knotwork.pwl.maxsum import MaxSum
from knotwork.pwl.sources import function_of
from knotwork.pwl.through import (
    Function,
    of_inputs,
    outputs_of,
    spline_of_inputs,
    spline_with_outputs,
    term_of_inputs,
    with_outputs,
)
from knotwork.spline.model import Spline

if TYPE_CHECKING:
    from torch import nn

    from knotwork.data.coordinates import Coordinates
    from knotwork.network.chain import Chain
    from knotwork.network.train.history import History
    from knotwork.spline.result import SplineFit


@dataclass(frozen=True)
class Resolved:
    """A model taken apart. All parts are of the encoded features of the model's own table.

    kind : the class of the model; of the estimator inside a pipeline or a transformed target
    encoder : from the table to the features; None for what does not know its columns
    function : what the model computes; None where a trained network does
    spline : the function if it is a spline, or what a trained network began as (None for a random start)
    network, start : the trained network, and the one before training
    fit : the record that the estimator kept of its fit
    coordinates : means and stds of the training rows' features and responses; history : of the training
    classes : the labels of a classifier, whose outputs are logits
    link : the model predicts link(y), see :mod:`knotwork.data.links`
    loss : what the estimator makes small; None where that is squared errors, a log-loss or not known
    named : whether the model was fitted to a table with column names
    estimator : the estimator of knotwork that the parts come from, None for functions and networks
    module : the trained network as torch has it, of the features that the estimator inside is given
    """

    kind: str
    encoder: TableEncoder | None = None
    function: Function | None = None
    spline: Spline | None = None
    network: Chain | None = None
    start: Chain | None = None
    fit: Any = None
    coordinates: Coordinates | None = None
    history: History | None = None
    classes: tuple[Any, ...] | None = None
    link: str = "identity"
    loss: ResponseLoss | None = None
    named: bool = False
    estimator: Any = None
    module: nn.Module | None = None

    @property
    def search(self) -> SplineFit | None:
        """The least-squares fit that found a spline's terms: the fit itself unless it went on to a likelihood."""
        found: SplineFit | None = getattr(self.fit, "search", self.fit)
        return found if hasattr(found, "selection") else None

    @property
    def outputs(self) -> int:
        """Number of outputs, p."""
        if self.network is not None:
            return len(self.network.output.bias)
        assert self.function is not None
        return outputs_of(self.function)

    def __call__(self, matrix: Floats) -> Floats:
        """Evaluate in double precision, on the scale of the link: (N, d) → (N, p)."""
        if self.network is not None:
            from knotwork.network.chain import evaluate

            return evaluate(self.network, matrix)
        assert self.function is not None
        return self.function(matrix).reshape(len(matrix), -1)


def resolve(model: Any) -> Resolved:
    """Take a model apart into what computes its predictions.

    Parameters
    ----------
    model : one of

        - Spline, LatticePWL, MaxSum, or another source that :func:`as_pwl` takes
        - a fitted estimator of knotwork
        - nn.Sequential of Linear and activations
        - a ``Pipeline`` of steps that scale, one-hot encode or choose columns, in front of any of these
        - a ``TransformedTargetRegressor`` around any of these, of a scaler or of log, log1p, sqrt or their inverses
        - a ``GridSearchCV`` or the like over any of these: its best estimator

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> import knotwork as kw
    >>> X = np.arange(20.0)[:, None]
    >>> parts = resolve(make_pipeline(StandardScaler(), kw.MarsRegressor()).fit(X, np.abs(X[:, 0] - 8)))
    >>> parts.kind, parts.encoder.feature_names, [round(term.knot, 9) for term in parts.spline.terms]
    ('MarsRegressor', ('x0',), [8.0, 8.0])
    """
    if isinstance(model, Spline):
        return _of_function(model, "Spline")
    if isinstance(model, (LatticePWL, MaxSum)):
        return _of_function(model, type(model).__name__)
    if hasattr(model, "named_parameters"):
        return _of_network(model)
    if _has_encoder(model):
        return _of_estimator(model)
    if hasattr(model, "best_estimator_"):  # a search over parameters predicts by the best
        return resolve(model.best_estimator_)
    steps = _pipeline_steps(model)
    if steps is not None and _is_ours(model):
        return _of_pipeline(steps)
    if _is_transformed_target(model):
        return _of_transformed_target(model)
    if _is_ours(model):
        raise _not_fitted(model)
    return replace(_of_function(function_of(model), type(model).__name__), named=hasattr(model, "feature_names_in_"))


def as_pwl(model: Any) -> Spline | LatticePWL | MaxSum:
    """Return the continuous piecewise-linear function that a model computes, as a record of knotwork.

    Parameters
    ----------
    model : one of

        - Spline, LatticePWL, MaxSum: returned as they are
        - a fitted estimator of knotwork without a trained network, alone or in a pipeline of steps that scale, one-hot
          encode or choose columns. The features are then those of the pipeline's own table
        - a fitted scikit-learn regressor: a linear model, ``IsotonicRegression``, or a pipeline of scalers,
          ``SplineTransformer(degree=1)`` and a linear model. Becomes a Spline
        - a table (xp, fp) as ``numpy.interp`` takes it. Becomes a Spline of one feature
        - ``scipy.interpolate.LinearNDInterpolator`` with few simplices. Becomes a LatticePWL, equal to it inside the
          convex hull of its points
        - the pieces of ``from_network`` or a list of ``Piece``. Becomes a LatticePWL

    Notes
    -----
    Whatever is not continuous and piecewise linear is refused; the error names the nearest model that works. A trained
    network is piecewise linear, but not one such record: ``to_network`` gives the network and ``from_network`` its
    pieces.

    Examples
    --------
    >>> print(as_pwl(([0.0, 1.0, 3.0], [0.0, 2.0, 1.0])))
    0
      + 2·h(x)
      - 2.5·h(x - 1)
      + 0.5·h(x - 3)
    """
    parts = resolve(model)
    if parts.function is None:
        raise DataError(
            f"a trained network is not one Spline or LatticePWL, got {parts.kind}; use kw.to_network(model), or "
            f"kw.from_network(kw.to_network(model), box) for its pieces on a box"
        )
    if parts.link != "identity":
        raise DataError(
            f"a model of {parts.link}(y) is piecewise linear on the scale of {parts.link} only, got "
            f"{type(model).__name__}; use kw.to_network(model), whose conversion.link names it, or "
            f"{'model.spline_' if parts.loss is not None else 'kw.as_pwl of the regressor inside'}"
        )
    return parts.function


def _of_function(function: Function, kind: str) -> Resolved:
    if not isinstance(function, Spline):
        return Resolved(kind, function=function)
    encoder = TableEncoder(tuple(Number(name) for name in function.feature_names))
    return Resolved(kind, encoder, function=function, spline=function)


def _of_network(net: Any) -> Resolved:
    from knotwork.network.chain import read_chain

    chain = read_chain(net)
    known = chain.conversion
    encoder = known.encoder
    if encoder is not None and len(encoder.feature_names) != chain.inputs:  # somebody has changed the network
        encoder = None
    return Resolved("network", encoder, network=chain, link=known.link, module=net)


def _has_encoder(model: Any) -> bool:
    """Whether a model is an estimator of knotwork that has been fitted."""
    return isinstance(getattr(model, "encoder_", None), TableEncoder)


def _of_estimator(model: Any) -> Resolved:
    classes = getattr(model, "classes_", None)
    loss = getattr(model, "loss_", SQUARED_ERROR)
    parts = Resolved(
        kind=type(model).__name__,
        encoder=model.encoder_,
        spline=getattr(model, "spline_", None),
        fit=getattr(model, "fit_", None),
        coordinates=getattr(model, "coordinates_", getattr(getattr(model, "fit_", None), "coordinates", None)),
        history=getattr(model, "history_", None),
        classes=None if classes is None else tuple(classes),
        link=loss.link,
        loss=None if loss == SQUARED_ERROR else loss,
        named=hasattr(model, "feature_names_in_"),
        estimator=model,
    )
    net = getattr(model, "network_", None)
    if net is None:
        function = parts.spline if parts.spline is not None else getattr(model, "pwl_", None)
        if function is None:
            raise _not_fitted(model)
        return replace(parts, function=function)
    from knotwork.network.chain import read_chain

    start = getattr(model, "start_network_", None)
    return replace(parts, network=read_chain(net), start=None if start is None else read_chain(start), module=net)


def _not_fitted(model: Any) -> DataError:
    return DataError(f"a model must be fitted, this {type(model).__name__} is not fitted; fit it first")


def _pipeline_steps(model: Any) -> list[tuple[str, Any]] | None:
    """Return the steps of a pipeline that do something, the model last; None for what is no pipeline."""
    steps = getattr(model, "steps", None)
    if not isinstance(steps, list) or not steps:
        return None
    return [(name, s) for name, s in steps if not (s is None or (isinstance(s, str) and s == "passthrough"))]


def is_wrapper(model: Any) -> bool:
    """Whether a model is a pipeline or a transformed target, with the model proper inside."""
    return _pipeline_steps(model) is not None or _is_transformed_target(model)


def _is_transformed_target(model: Any) -> bool:
    return hasattr(model, "regressor") and hasattr(model, "inverse_func")


def _is_ours(model: Any) -> bool:
    """Whether the model at the end of all pipelines and transformed targets is one of knotwork's, fitted or not."""
    steps = _pipeline_steps(model)
    if steps is not None:
        return bool(steps) and _is_ours(steps[-1][1])
    if hasattr(model, "best_estimator_"):
        return _is_ours(model.best_estimator_)
    if _is_transformed_target(model):
        return _is_ours(getattr(model, "regressor_", model.regressor))
    if _has_encoder(model) or hasattr(model, "named_parameters"):
        return True
    homes = {cls.__module__.partition(".")[0] for cls in type(model).__mro__}
    return "knotwork" in homes and hasattr(model, "get_params")


def _of_pipeline(steps: Sequence[tuple[str, Any]]) -> Resolved:
    *before, (_, final) = steps
    inner = resolve(final)
    if not before:
        return inner
    unfitted = [step for _, step in before if not _is_fitted(step)]
    if unfitted:
        raise _not_fitted(unfitted[0])
    if inner.encoder is None:
        raise DataError(
            f"a pipeline is taken apart around a model that knows its columns, got a {inner.kind} at its end; convert "
            f"the last step alone"
        )
    encoder, inputs = read_steps(before, inner.encoder)
    return replace(_of_inputs(inner, encoder, inputs), named=hasattr(first_step(before), "feature_names_in_"))


def _is_fitted(step: Any) -> bool:
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(step)
    except NotFittedError:
        return False
    except TypeError:  # no estimator: whoever reads the step will say so
        return True
    return True


def _of_inputs(parts: Resolved, encoder: TableEncoder, inputs: Inputs) -> Resolved:
    """Return the parts as functions of the features of a table in front of the model's."""
    names = encoder.feature_names
    coordinates = None if parts.coordinates is None else parts.coordinates.of_inputs(inputs)
    moved = replace(
        parts,
        encoder=encoder,
        function=None if parts.function is None else of_inputs(parts.function, inputs, names),
        spline=None if parts.spline is None else spline_of_inputs(parts.spline, inputs, names),
        fit=_fit_of_inputs(parts.fit, inputs, names),
        coordinates=coordinates,
    )
    if parts.network is None:
        return moved
    from knotwork.network.rewire import chain_of_inputs

    start = None if parts.start is None else chain_of_inputs(parts.start, inputs)
    return replace(moved, network=chain_of_inputs(parts.network, inputs), start=start)


def _fit_of_inputs(fit: Any, inputs: Inputs, names: tuple[str, ...]) -> Any:
    if fit is None:
        return None
    if hasattr(fit, "search"):
        return replace(
            fit, spline=spline_of_inputs(fit.spline, inputs, names), search=_fit_of_inputs(fit.search, inputs, names)
        )
    fit = replace(fit, coordinates=fit.coordinates.of_inputs(inputs))
    if getattr(fit, "limits", None) is not None:
        fit = replace(fit, limits=inputs.limits(fit.limits))
    if not hasattr(fit, "selection"):
        return fit
    terms = tuple(term_of_inputs(term, inputs, names) for term in fit.selection.forward_terms)
    return replace(
        fit,
        spline=spline_of_inputs(fit.spline, inputs, names),
        selection=replace(fit.selection, forward_terms=terms),
        knots=tuple(
            replace(k, feature=int(inputs.place[k.feature]), value=inputs.knot(k.feature, k.value)) for k in fit.knots
        ),
    )


def _of_transformed_target(model: Any) -> Resolved:
    if not hasattr(model, "regressor_"):
        raise _not_fitted(model)
    inner = resolve(model.regressor_)
    for name, step in reversed(_target_steps(model.transformer_)):
        inner = _before_target_step(inner, name, step)
    return inner


def _target_steps(transformer: Any) -> list[tuple[str, Any]]:
    """Return what happens to the response, one step after the other."""
    steps = _pipeline_steps(transformer)
    if steps is None:
        return [(type(transformer).__name__, transformer)]
    return [step for _, inner in steps for step in _target_steps(inner)]


def _before_target_step(parts: Resolved, name: str, step: Any) -> Resolved:
    """Return the parts of a model of y, given those of a model of step(y)."""
    if type(step).__name__ == "FunctionTransformer":
        link = _link_of(step)
        if link == "identity":
            return parts
        if parts.link != "identity":
            raise DataError(
                f"a response may have one link, got {parts.link} of {link}(y); keep one of them and apply the other to "
                f"y first"
            )
        return replace(parts, link=link)
    scaler = known_scaler(step)
    if scaler is None:
        raise DataError(
            f"a response may be transformed by a scaler or by one of {', '.join(list(LINKS)[1:])}, got {name}; apply "
            f"it to y first and convert the regressor inside"
        )
    if parts.link != "identity":
        raise DataError(
            f"a response must be scaled after its link and not before, got {parts.link} behind {name}; leave out the "
            f"scaler"
        )
    # step(y) = (y − centre)·factor + offset, so y = step(y)/factor + centre − offset/factor.
    gain, shift = 1 / scaler.factor, scaler.centre - scaler.offset / scaler.factor
    return _with_outputs(parts, *(np.broadcast_to(v, parts.outputs).copy() for v in (gain, shift)))


def _link_of(step: Any) -> str:
    """Return the link that a FunctionTransformer is."""
    func, inverse = step.func, step.inverse_func
    if func is None and inverse is None:
        return "identity"
    for link, (forward, backward) in LINKS.items():
        if link != "identity" and func is forward and inverse is backward and not (step.kw_args or step.inv_kw_args):
            return link
    pairs = ", ".join(f"np.{f.__name__} with np.{b.__name__}" for f, b in list(LINKS.values())[1:])
    got = " with ".join(str(getattr(f, "__name__", f)) for f in (func, inverse))
    raise DataError(
        f"the func and inverse_func of a response must be one of {pairs}, got {got}; apply it to y first and convert "
        f"the regressor inside"
    )


def _with_outputs(parts: Resolved, gain: Floats, shift: Floats) -> Resolved:
    """Return the parts with outputs gain·f + shift: (p,) each."""
    same = bool((gain == gain[0]).all())
    coordinates, fit, history = parts.coordinates, parts.fit, parts.history
    if coordinates is not None:
        coordinates = coordinates.with_outputs(gain, shift)
    # Sums of squared errors over responses follow if all of these scale alike, and mean nothing otherwise.
    if fit is not None and hasattr(fit, "selection"):
        fit = _fit_with_outputs(fit, gain, shift) if same else None
    loss = parts.loss
    if loss is not None:  # one response, of the identity link: a scaler behind another link was refused
        loss = replace(loss, width=loss.width * abs(float(gain[0])))
        fit = None if fit is None else _response_fit_with_outputs(fit, gain, shift, loss)
    if history is not None:
        times = float(gain[0] ** 2 if loss is None or loss.name == "huber" else abs(gain[0]))
        train, validation = ([v * times for v in h] for h in (history.train_loss, history.validation_loss))
        history = replace(history, train_loss=train, validation_loss=validation) if same else None
    moved = replace(
        parts,
        function=None if parts.function is None else with_outputs(parts.function, gain, shift),
        spline=None if parts.spline is None else spline_with_outputs(parts.spline, gain, shift),
        fit=fit,
        coordinates=coordinates,
        history=history,
        loss=loss,
    )
    if parts.network is None:
        return moved
    from knotwork.network.rewire import chain_with_outputs

    start = None if parts.start is None else chain_with_outputs(parts.start, gain, shift)
    return replace(moved, network=chain_with_outputs(parts.network, gain, shift), start=start)


def _response_fit_with_outputs(fit: Any, gain: Floats, shift: Floats, loss: ResponseLoss) -> Any:
    """Return a fit by another loss than squared errors to gain·y + shift; its search stays as it is."""
    size = abs(float(gain[0]))
    times = size**2 if loss.name == "huber" else size
    return replace(
        fit, spline=spline_with_outputs(fit.spline, gain, shift), loss=loss, deviance=fit.deviance * times,
        null_deviance=fit.null_deviance * times, term_costs=fit.term_costs * times,
        feature_costs=fit.feature_costs * times, y_centre=fit.y_centre * float(gain[0]) + float(shift[0]),
        y_scale=fit.y_scale * size,
    )  # fmt: skip


def _fit_with_outputs(fit: SplineFit, gain: Floats, shift: Floats) -> SplineFit:
    """Return a fit to responses that all scale alike, in the units of measurement of the scaled ones."""
    square = float(gain[0] ** 2)
    return replace(
        fit,
        spline=spline_with_outputs(fit.spline, gain, shift),
        quality=replace(fit.quality, rss=fit.quality.rss * square, gcv=fit.quality.gcv * square),
        standardised=replace(fit.standardised, rss_unit=fit.standardised.rss_unit * square),
    )
