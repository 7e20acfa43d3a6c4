"""MarsRegressor: the spline engine as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin

from knotwork.arrays import Floats
from knotwork.data.coordinates import mean_and_std
from knotwork.data.learn import learn_table
from knotwork.data.target_encoding import Response
from knotwork.estimators.inputs import (
    check_training_table,
    read_response,
    read_table,
    read_weights,
)
from knotwork.estimators.mars_base import MarsBase, at_rows
from knotwork.estimators.summary import summarise
from knotwork.estimators.tensors import in_memory, like, on_best_device, on_gpu, predict_tensor, read_tensors
from knotwork.progress import forward_progress
from knotwork.spline.fit import MAX_PARENTS, fit_spline


class MarsRegressor(MultiOutputMixin, RegressorMixin, MarsBase):
    """Multivariate adaptive regression splines, one histogram pass per basis function.

    f(x) = intercept + Σ β_m·h_m(x) with hinges h(u) = max(0, u) of single features, or the minimum of several hinges:
    knots are chosen greedily among the data values, then terms are pruned by generalised cross-validation (GCV).

    Parameters
    ----------
    max_terms : int, default None
        Maximum number of terms of the forward pass, the intercept included; None is min(200, max(20, 2·features)) + 1,
        with interactions min(200, max(40, 2·features)) + 1.
    max_degree : int or "auto", default 1
        Maximum number of features in a term. "auto" raises it up to 3 as long as GCV falls by more than 1 %.
    penalty : float, default None
        Charge per knot in GCV; None is 2, with interactions 3. A penalty of 0 charges for terms only, −1 for nothing.
    threshold : float, default 1e-3
        The forward pass stops when a step would raise R² by less than this.
    minspan, endspan : int, default None
        Minimum number of observations between two knots, and between a knot and the ends of the data; None is
        Friedman's rule.
    max_knots : int, "auto" or None, default "auto"
        Maximum number of candidate knots per feature, spread evenly over the ranks of those the spans allow. "auto" is
        255, which at small N is all of them; None is all of them always.
    interaction : "min" or "product", default "min"
        How terms of higher degree combine hinges: by their minimum, which stays piecewise linear and becomes a
        network exactly, or by their product as in classical MARS.
    compat : "earth" or None, default None
        "earth" follows the rules of R's earth 5.3.2 (with fast.k=0) term for term.
    backend : "auto", "cpu" or "torch", default "auto"
        Where the sums are computed. "torch" takes a GPU if torch has one, for additive models; so does "auto" if X is a
        tensor there, which is never copied into memory: ``predict`` then returns a tensor too.
    n_jobs : int, default None
        Threads; None and -1 are all cores. The result does not depend on it.
    verbose : int, default 0
        1 shows the progress of the forward pass.
    interacting : list of column names or numbers, default None
        The columns that interactions may use; None is all.
    max_parents : int, default 20
        Terms whose interactions are searched at a time; those that would have reduced the RSS least leave the list.
    extrapolate : "clip", "linear" or None, default None
        "clip" holds every column at its limits, in the fit and in prediction, so that the model is flat beyond them.
        The limits are the column's range, less values far beyond the bulk of it. "linear" goes on with the last slope.
        None is "clip", or "linear" with compat="earth".
    scale_responses : bool, default False
        With several responses: the search divides each by its own std, whatever its unit of measurement. False adds up
        their squared errors as they are, so that a response with a small std hardly counts. Either way the coefficients
        are those of the responses as given; ``gcv_`` and ``rss_`` are sums over the scaled ones if True.
    missing : "indicator" or "error", default "indicator"
        What to do about missing values. "indicator" fills them in, and columns that have some in training get a feature
        of their own, ``column is missing``; "error" refuses them.

    Attributes
    ----------
    spline_ : Spline, of the encoded features
    gcv_, grsq_, rss_, rsq_ : float, summed over the responses
    feature_importances_ : (n_features_in_,) rise in RSS without the feature, scaled to sum 1
    knots_ : tuple of Knot, the knots of ``spline_`` with the training rows that carry their values
    limits_ : Limits, the range of the encoded features as they were fitted; ``outside(X)`` marks rows beyond it
    encoder_ : TableEncoder, from the table to the columns of ``spline_``
    fit_ : SplineFit, the whole record: ``spline``, ``knots``, ``quality``, ``coordinates`` (means and stds) and
        ``selection`` (the forward pass and what pruning kept) in the data's units of measurement, ``standardised`` in
        those of the search

    Notes
    -----
    Text of more than 30 categories is encoded by the response, training rows by the rows of other folds: that is what
    the search, ``rss_``, ``gcv_`` and ``knots_`` see.

    A weight counts like that many rows: GCV and the spans use Σw as the number of observations, so weights should
    have a mean near one. Only the knot choice of tables above 65 536 rows, which looks at a sample, may tell
    them apart.

    Examples
    --------
    >>> import knotwork as kw
    >>> X, y = kw.datasets.load_abalone()
    >>> model = kw.MarsRegressor().fit(X, y)
    >>> round(model.score(X, y), 2)
    0.57
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **MarsBase._parameter_constraints,
        "scale_responses": ["boolean"],
    }

    def __init__(
        self,
        max_terms: int | None = None,
        max_degree: int | str = 1,
        penalty: float | None = None,
        threshold: float = 1e-3,
        minspan: int | None = None,
        endspan: int | None = None,
        max_knots: int | str | None = "auto",
        interaction: str = "min",
        compat: str | None = None,
        backend: str = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        interacting: Sequence[str | int] | None = None,
        max_parents: int = MAX_PARENTS,
        scale_responses: bool = False,
        missing: str = "indicator",
        extrapolate: str | None = None,
    ) -> None:
        super().__init__(
            max_terms=max_terms, max_degree=max_degree, penalty=penalty, threshold=threshold, minspan=minspan,
            endspan=endspan, max_knots=max_knots, interaction=interaction, compat=compat, backend=backend,
            n_jobs=n_jobs, verbose=verbose, interacting=interacting, max_parents=max_parents, missing=missing,
            extrapolate=extrapolate,
        )  # fmt: skip
        self.scale_responses = scale_responses

    def _fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        read = read_tensors if on_gpu(X) else _read_in_memory
        matrix, response, weights, kept, encoder = read(self, X, y, sample_weight)
        targets = response.reshape(len(response), -1)
        scaled = self.scale_responses and targets.shape[1] > 1
        if scaled:
            scale = mean_and_std(in_memory(targets), in_memory(weights))[1]
            targets = targets / like(scale, targets)
        if self.backend == "torch" and not on_gpu(X):
            matrix, targets, weights = on_best_device(matrix, targets, weights)
        with forward_progress(bool(self.verbose)) as report:
            fitted = fit_spline(
                matrix,
                targets,
                weights=weights,
                names=encoder.feature_names,
                options=self._options(encoder),
                report=report,
            )
        if scaled:
            spline = fitted.spline
            spline = replace(spline, intercept=spline.intercept * scale, coef=spline.coef * scale)
            c = fitted.coordinates
            c = replace(c, y_centre=c.y_centre * scale, y_scale=c.y_scale * scale)
            fitted = replace(fitted, spline=spline, coordinates=c)
        self.fit_ = at_rows(fitted, kept)
        self.encoder_ = encoder.with_means(fitted.coordinates.x_centre)
        self._flat_output = response.ndim == 1

    def predict(self, X: Any) -> Floats:
        """Evaluate the spline: (N, d) → (N,) or (N, p), as y was; a tensor of a GPU gives a tensor there."""
        if on_gpu(X):
            found: Any = predict_tensor(self, X)
            return found[:, 0] if self._flat_output else found
        matrix = read_table(self, X)
        values = self.spline_(matrix)
        return values if self._flat_output else values.reshape(len(values), -1)

    def _summarise(self) -> str:
        return summarise(self.fit_, self.encoder_)


def _read_in_memory(model: MarsRegressor, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> tuple[Any, ...]:
    """Read matrix, response as it came, weights, the rows of positive weight and the encoder; None for no weights."""
    X, rows = check_training_table(model, X)
    response = read_response(y, rows)
    weights, kept = (None, None) if sample_weight is None else read_weights(sample_weight, rows)
    encoder, matrix = learn_table(
        X, response=Response(response.reshape(rows, -1)), weights=weights, missing=model.missing
    )
    if weights is not None and kept is not None:
        matrix, response, weights = matrix[kept], response[kept], weights[kept]
    return matrix, response, weights, kept, encoder
