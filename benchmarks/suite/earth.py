"""R's earth with scikit-learn's face; the fit runs in R and is kept in a file of R's.

Needs R with the package earth (Debian: ``r-cran-earth``). ``seconds_`` has what R took to fit and to predict: what goes
on around it, starting R and passing matrices, is not earth's.
"""

from __future__ import annotations

import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator

SCRIPT = Path(__file__).with_name("earth.R")


class Earth(BaseEstimator):
    """Numbers in, numbers or class probabilities out."""

    def __init__(self, degree: int = 1, regression: bool = True) -> None:
        self.degree, self.regression = degree, regression

    @staticmethod
    @lru_cache
    def version() -> str:
        command = ["Rscript", "-e", 'cat(as.character(packageVersion("earth")))']
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def fit(self, X: np.ndarray, y: np.ndarray) -> Earth:
        self.folder_ = tempfile.TemporaryDirectory()
        self.classes_, codes = (None, y) if self.regression else np.unique(y, return_inverse=True)
        self.seconds_ = {"fit": self._call("fit", X, codes)}
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self._values(X)[:, 0]

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        values = self._values(X)
        if values.shape[1] == 1:
            return np.column_stack([1 - values, values])
        return values / np.maximum(values.sum(axis=1, keepdims=True), 1e-12)

    def _values(self, X: np.ndarray) -> np.ndarray:
        self.seconds_["predict"] = self._call("predict", X)
        columns = 1 if self.classes_ is None or len(self.classes_) == 2 else len(self.classes_)
        return np.fromfile(f"{self.folder_.name}/values", "<f8").reshape(columns, -1).T

    def _call(self, what: str, X: np.ndarray, y: np.ndarray | None = None) -> float:
        """Run the script; return R's own seconds of CPU."""
        folder = self.folder_.name
        np.asarray(X, dtype="<f8").T.tofile(f"{folder}/x")
        if y is not None:
            np.asarray(y, dtype="<f8").tofile(f"{folder}/y")
        kind = "regression" if self.regression else "classes"
        command = ["Rscript", str(SCRIPT), folder, what, kind, *map(str, (*X.shape, self.degree))]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"earth failed: {done.stderr.strip()[-500:]}")
        return float(done.stdout.split()[-1])
