"""Fits to streams: ``partial_fit`` adds a batch of rows, ``forget`` takes one out again; no rows are kept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from knotwork.arrays import Floats
from knotwork.data.columns.level_means import LevelMeans
from knotwork.data.learn import learn_table
from knotwork.data.limits import response_limits
from knotwork.data.table import TableEncoder
from knotwork.data.target_encoding import Response
from knotwork.data.training_rows import TrainingRows
from knotwork.errors import DataError
from knotwork.estimators.base import checks_parameters
from knotwork.estimators.folds import ATTRIBUTES
from knotwork.estimators.inputs import check_training_table, read_response, read_table, read_weights
from knotwork.estimators.mars_base import MarsBase
from knotwork.estimators.tensors import on_gpu
from knotwork.parameters import is_same, shown
from knotwork.spline.fit import FitOptions
from knotwork.spline.response import ResponseFit
from knotwork.spline.result import SplineFit
from knotwork.spline.stream import Stream

Batch = tuple[Floats, Floats, Floats | None]


def _streams(model: Any) -> bool:
    """Say whether a model can be fitted to a stream; raise the reason if not, as scikit-learn asks for it."""
    usual = {"max_degree": 1, "compat": None, "cv": None, "scale_responses": False, "loss": "squared_error"}
    for name, value in usual.items():
        own = getattr(model, name)
        if not is_same(own, value):
            raise AttributeError(
                f"partial_fit and forget fit additive models from sums alone, got {name}={shown(own)}; "
                f"leave it out, or call fit(X, y)"
            )
    if model.backend == "torch":
        raise AttributeError("partial_fit and forget fit rows in memory, got backend='torch'; choose backend='cpu'")
    return True


class StreamingMars(MarsBase):
    """``partial_fit`` and ``forget`` of a regressor."""

    scale_responses: bool
    loss: str
    fit_: SplineFit | ResponseFit
    _flat_output: bool

    @property
    def n_samples_seen_(self) -> int:
        """Rows of positive weight that a stream has seen, less those forgotten.

        >>> import knotwork as kw
        >>> model = kw.MarsRegressor().partial_fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.0])
        >>> model.n_samples_seen_
        3
        """
        if "_stream" not in vars(self):
            raise AttributeError("this model was not fitted to a stream; call partial_fit(X, y)")
        stream: Stream = vars(self)["_stream"]
        return stream.rows

    @available_if(_streams)
    @checks_parameters
    def partial_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to all rows of this and earlier batches, none of which are kept: additive models.

        The first batch settles how columns are encoded, and the knots that they may bend at unless ``knots`` gives
        them; it should look like those to come. After every batch the model is the one that ``fit`` would have found on
        all rows with these knots, but for three things. Its coefficients come from sums, so that digits are lost where
        terms are nearly collinear: predictions are good to about 1e-15·κ stds of the response, κ being the condition of
        the terms, and a fit whose estimate is above 1e-6 is refused. With ``extrapolate="clip"`` features are clipped
        to the range of all rows that came, values far beyond the bulk included, and predictions to the range of their
        responses, widened as in ``fit``. And ``knots_`` name no rows.

        Memory and time of a fit depend on the candidate knots alone (4·C² bytes for C of them, 25 MB for 10 columns of
        255). A pickled model goes on with its stream; a saved one keeps only the spline. ``fit`` starts over.

        Parameters
        ----------
        X : (N, d) data frame of any library, or array; columns of numbers, dates, or at most 30 categories
        y : (N,) or (N, p)
        sample_weight : (N,) not negative

        Returns
        -------
        The estimator. If the fit fails, it is as it was before, without the batch.

        Examples
        --------
        >>> import numpy as np
        >>> import knotwork as kw
        >>> X = np.random.default_rng(0).normal(size=(3000, 2))
        >>> model = kw.MarsRegressor()
        >>> for batch in np.split(X, 3):
        ...     model = model.partial_fit(batch, np.abs(batch[:, 0]))
        >>> model.n_samples_seen_, round(model.score(X, np.abs(X[:, 0])), 2)
        (3000, 1.0)
        """
        with self._unchanged_on_failure():
            if "_stream" in vars(self):
                self._add(self._read_batch(X, y, sample_weight), 1)
            else:
                self._begin(X, y, sample_weight)
        return self

    @available_if(_streams)
    @checks_parameters
    def forget(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to the rows of the batches so far without some of them, which must have been among them.

        Parameters are those of :meth:`partial_fit`, with the weights that the rows came with. The ranges of features
        and responses stay those of all rows that came.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().partial_fit(X, y)
        >>> model.forget(X[:100], y[:100]).n_samples_seen_
        1499
        """
        check_is_fitted(self)
        if "_stream" not in vars(self):
            raise DataError("forget takes rows out of a stream, this model was fitted with fit; call partial_fit(X, y)")
        with self._unchanged_on_failure():
            self._add(self._read_batch(X, y, sample_weight), -1)
        return self

    def _begin(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        if on_gpu(X):
            raise DataError("partial_fit fits rows in memory, got a tensor on a GPU; pass X.cpu()")
        X, rows = check_training_table(self, X)
        response = read_response(y, rows)
        weights, kept = (None, None) if sample_weight is None else read_weights(sample_weight, rows)
        targets = response.reshape(rows, -1)
        if self.monotonic_cst is not None and targets.shape[1] > 1:
            raise ValueError(f"monotonic_cst is for one response, got {targets.shape[1]}; fit a model for each")
        encoder, matrix = learn_table(X, response=Response(targets), weights=weights, missing=self.missing)
        learned = [column.name for column in encoder.columns if isinstance(column, LevelMeans)]
        if learned:
            raise DataError(
                f"partial_fit encodes columns by what they hold, column {learned[0]!r} has too many categories for "
                f"that; group its categories, or leave it out"
            )
        if weights is not None and kept is not None:
            matrix, targets, weights = matrix[kept], targets[kept], weights[kept]
        for name in ATTRIBUTES:
            self.__dict__.pop(name, None)
        self._flat_output = response.ndim == 1
        options = self._options(encoder)
        self._set(Stream.open(matrix, targets, weights, options), encoder, options)

    def _read_batch(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> Batch:
        matrix = np.asarray(read_table(self, X), dtype=np.float64)
        response = read_response(y, len(matrix))
        outputs = len(vars(self)["_stream"].y.scale)
        if (response.ndim == 1) != self._flat_output or response.reshape(len(matrix), -1).shape[1] != outputs:
            shape = "(N,)" if self._flat_output else f"(N, {outputs})"
            raise DataError(f"y must have the shape of the first batch, {shape}, got {response.shape}")
        targets = response.reshape(len(matrix), -1)
        if sample_weight is None:
            return matrix, targets, None
        weights, kept = read_weights(sample_weight, len(matrix), min_rows=1)
        return matrix[kept], targets[kept], weights[kept]

    def _add(self, batch: Batch, sign: int) -> None:
        options = self._options(self.encoder_)
        self._set(vars(self)["_stream"].plus(*batch, sign, options.threads), self.encoder_, options)

    def _set(self, stream: Stream, encoder: TableEncoder, options: FitOptions) -> None:
        fitted = stream.fit(encoder.feature_names, options)
        if options.extrapolate == "clip":
            held = response_limits(stream.responses.lower, stream.responses.upper)
            fitted = replace(fitted, spline=replace(fitted.spline, output_limits=held))
        self.fit_ = fitted
        self.encoder_ = encoder.with_means(fitted.coordinates.x_centre)
        self.training_rows_: TrainingRows | None = None  # a stream keeps no rows, and forgets some
        self._stream = stream
