"""From logits to classes: what the classifiers share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from knotwork.arrays import Floats
from knotwork.estimators.lazy import lazy_on_dask


class LogitMixin:
    """Probabilities and classes from ``decision_function`` and ``classes_``."""

    classes_: NDArray[Any]

    def decision_function(self, X: Any) -> Floats:
        """Return the logits: (N,) log-odds of the second of two classes, (N, K) for more.

        >>> import knotwork as kw
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> model = kw.MarsClassifier().fit(X, y)
        >>> model.decision_function(X).shape
        (150, 3)
        """
        raise NotImplementedError

    @lazy_on_dask
    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class: (N, K), in the order of ``classes_``.

        >>> import knotwork as kw
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> model = kw.MarsClassifier().fit(X, y)
        >>> model.predict_proba(X).sum(axis=1).round(9).min().item()
        1.0
        """
        return probabilities_of(self.decision_function(X))

    @lazy_on_dask
    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithms of the probabilities: (N, K).

        >>> import knotwork as kw
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> model = kw.MarsClassifier().fit(X, y)
        >>> bool(model.predict_log_proba(X).max() <= 0)
        True
        """
        logarithms: Floats = log_softmax(_all_logits(self.decision_function(X)), axis=1)
        return logarithms

    @lazy_on_dask
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class: (N,).

        >>> import knotwork as kw
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> model = kw.MarsClassifier().fit(X, y)
        >>> model.predict(X.head(3)).tolist()
        [0, 0, 0]
        """
        codes = _all_logits(self.decision_function(X)).argmax(axis=1)
        return self.classes_[codes]


def probabilities_of(logits: Floats) -> Floats:
    """Return the probability of each class: (N,) log-odds or (N, K) logits → (N, K)."""
    probabilities: Floats = softmax(_all_logits(logits), axis=1)
    return probabilities


def _all_logits(logits: Floats) -> Floats:
    return np.stack([np.zeros_like(logits), logits], axis=1) if logits.ndim == 1 else logits
