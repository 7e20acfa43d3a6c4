"""What regressors with a loss share: its parameters, its checks, its score."""

from __future__ import annotations

from numbers import Real
from typing import Any

from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions

from knotwork.arrays import Floats, read_numbers
from knotwork.data.limits import Limits, response_limits
from knotwork.data.losses import LOSSES, SQUARED_ERROR, ResponseLoss
from knotwork.errors import DataError
from knotwork.estimators.inputs import read_response
from knotwork.estimators.tensors import in_memory, on_gpu

DECLARED_LOSS: dict[str, list[Any]] = {
    "loss": [StrOptions(set(LOSSES))],
    "quantile": [Interval(Real, 0, 1, closed="neither"), None],
    "power": [Interval(Real, 1, None, closed="left"), None],
}


class LossMixin:
    """The score of a regressor by its own loss; the estimator sets ``loss_``."""

    loss: str
    # Models that earlier versions saved have no other.
    loss_: ResponseLoss = SQUARED_ERROR

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.positive_only = self.loss in ("poisson", "gamma", "tweedie")
        return tags

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return D², the share of the best constant's deviance that the model explains: at most 1.

        R² for squared errors and Huber's loss; the D² of the absolute error, of the pinball loss, or of the Poisson,
        gamma or Tweedie deviance for the others, as in ``sklearn.metrics``.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> 0 < model.score(X, y) < 1
        True
        """
        predicted = in_memory(self.predict(X))  # type: ignore[attr-defined]
        values = read_response(in_memory(y), len(predicted))
        weights = None if sample_weight is None else read_numbers(in_memory(sample_weight), "sample_weight")
        return self.loss_.score(values, predicted, weights)


def held_outputs(y: Any, loss: ResponseLoss, extrapolate: str | None) -> Limits | None:
    """Return what predictions are held at, given the training responses, (N,) or (N, p); None for nothing.

    Behind a link predictions are not held: they have a range of their own.
    """
    if extrapolate != "clip" or loss.link != "identity":
        return None
    values = y.reshape(len(y), -1)
    if on_gpu(y):
        return response_limits(*map(in_memory, values.aminmax(dim=0)))
    return response_limits(values.min(axis=0), values.max(axis=0))


def one_response(response: Floats, loss: ResponseLoss) -> Floats:
    """Return the one response of a loss, (N,) or (N, 1) → (N,), once it is one that the loss is made for."""
    if response.ndim == 2 and response.shape[1] != 1:
        raise DataError(
            f"loss={loss.name!r} takes one response, got {response.shape[1]}; fit a model to each column of y"
        )
    values = response.reshape(-1)
    loss.check(values)
    return values
