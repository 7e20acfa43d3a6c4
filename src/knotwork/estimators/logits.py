"""From logits to classes: what the classifiers share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from knotwork.arrays import Floats


class LogitMixin:
    """Probabilities and classes from ``decision_function`` and ``classes_``."""

    classes_: NDArray[Any]

    def decision_function(self, X: Any) -> Floats:
        """Return the logits: (N,) log-odds of the second of two classes, (N, K) for more."""
        raise NotImplementedError

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class: (N, K), in the order of ``classes_``."""
        probabilities: Floats = softmax(self._logits(X), axis=1)
        return probabilities

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithms of the probabilities: (N, K)."""
        logarithms: Floats = log_softmax(self._logits(X), axis=1)
        return logarithms

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class: (N,)."""
        codes = self._logits(X).argmax(axis=1)
        return self.classes_[codes]

    def _logits(self, X: Any) -> Floats:
        logits = self.decision_function(X)
        return np.stack([np.zeros_like(logits), logits], axis=1) if logits.ndim == 1 else logits
