"""MarsRegressor: the spline engine as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import _num_samples

from knotwork.arrays import Floats
from knotwork.compute.workers import begun, thread_count
from knotwork.data.columns.part import read_parts
from knotwork.data.coordinates import mean_and_std
from knotwork.data.learn import learn_table
from knotwork.data.limits import Limits
from knotwork.data.losses import SQUARED_ERROR, ResponseLoss, response_loss
from knotwork.data.table import TableEncoder
from knotwork.data.target_encoding import Response
from knotwork.data.training_rows import TrainingRows
from knotwork.errors import DataError
from knotwork.estimators.folds import (
    TrainingTable,
    chosen_options,
    degrees_of,
    fold_data,
    fold_of_rows,
    read_folds,
    set_fold_attributes_,
)
from knotwork.estimators.inputs import (
    check_training_table,
    read_response,
    read_table,
    read_weights,
)
from knotwork.estimators.intervals import IntervalMixin, calibrate_intervals
from knotwork.estimators.lazy import lazy_on_dask
from knotwork.estimators.mars_base import at_rows, given_knots
from knotwork.estimators.resampled import stability_of
from knotwork.estimators.responses import DECLARED_LOSS, LossMixin, held_outputs, one_response
from knotwork.estimators.sources import fit_regressor, open_source
from knotwork.estimators.streaming import StreamingMars
from knotwork.estimators.summary import summarise, summarise_response
from knotwork.estimators.tensors import in_memory, like, on_best_device, on_gpu, predict_tensor, read_tensors
from knotwork.parameters import checked, number, whole
from knotwork.progress import forward_progress
from knotwork.spline.fit import MAX_PARENTS, FitOptions, fit_spline
from knotwork.spline.folds import FoldPath, SharedFolds, choose, fold_paths
from knotwork.spline.host import HostTable
from knotwork.spline.refitted_folds import response_fold_paths
from knotwork.spline.response import ResponseFit, fit_response
from knotwork.spline.result import SplineFit
from knotwork.spline.stability import Stability


class MarsRegressor(IntervalMixin, LossMixin, MultiOutputMixin, RegressorMixin, StreamingMars):
    """Multivariate adaptive regression splines, one histogram pass per basis function.

    The model is f(x) = intercept + Σ β_m·h_m(x). A term is a hinge h(u) = max(0, u) of one feature or a minimum of such
    hinges. Knots are chosen greedily among values of the data; generalised cross-validation (GCV) prunes the terms.

    Parameters
    ----------
    max_terms : int, default None
        Maximum number of terms of the forward pass, the intercept included; None is min(200, max(20, 2·features)) + 1,
        with interactions min(200, max(40, 2·features)) + 1.
    max_degree : int or "auto", default 1
        Maximum number of features in a term. "auto" raises it up to 3 as long as the mean loss of held-out
        rows falls by more than 1 %: three fifths of the rows are held out, a fifth at a time, chosen by their
        values. Each degree that is tried takes as long as two to three fits.
    penalty : float, default None
        What GCV charges for a knot; None is 2.5, or 3 with interactions; with compat="earth", 2 and 3.
        With 0 it charges for terms only, with −1 for neither.
    threshold : float, default 1e-3
        The forward pass stops when a step would raise R² by less than this.
    minspan, endspan : int, default None
        Minimum number of observations between two knots, and between a knot and the ends of the data; None is
        Friedman's rule. Besides, knots of a column keep a distance: if the share of rows and the share of the range
        between two knots average less than a twelfth, the second one must explain more than 1.5·log(N) variances of the
        residual. Knots at neighbouring values stay only if they lower the error of held-out rows.
        ``compat="earth"`` has none of these rules.
    max_knots : int, "auto" or None, default "auto"
        Maximum number of candidate knots per feature, spread evenly over the ranks of those that the spans allow.
        "auto" is 255, which for small tables is all of them. None is always all of them.
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
        Maximum number of terms whose interactions are searched; those that would reduce the RSS least are dropped.
    extrapolate : "clip", "linear" or None, default None
        "clip": every column is clipped to its limits, in the fit and in prediction, so that the model is flat beyond
        them. The limits are the column's range, outliers far beyond the bulk not counted. Predictions are clipped, too:
        to the range of the training responses, widened by half of its width at either end (not with a log link).
        "linear" continues with the last slope. None is "clip", or "linear" with compat="earth".
    scale_responses : bool, default False
        With several responses: the search divides each by its own std, whatever its unit of measurement. False adds up
        their squared errors as they are, so that a response with a small std hardly counts. Either way the coefficients
        are those of the responses as given; ``gcv_`` and ``rss_`` are sums over the scaled ones if True.
    missing : "indicator" or "error", default "indicator"
        What to do about missing values. "indicator" fills them in, and columns that have some in training get a feature
        of their own, ``column is missing``; "error" refuses them.
    loss : str, default "squared_error"
        What the coefficients minimise, by scikit-learn's names: "squared_error", "absolute_error", "huber",
        "quantile", "poisson", "gamma" or "tweedie". Any but the first takes one response. The last three have the link
        log: the spline is that of log(y), and predictions are positive. Terms are found by least squares on working
        responses, and their coefficients by the loss itself. "huber" is quadratic up to 1.35 robust stds of the
        residuals.
    quantile : float, default None
        The quantile that ``loss="quantile"`` predicts, between 0 and 1.
    power : float, default None
        For ``loss="tweedie"``, 1 or more: the variance is proportional to mean**power. None is 1.5.
    cv : int, splitter of scikit-learn, iterable of (training, held-out) pairs of row numbers, or None, default None
        None: GCV chooses the number of terms. Otherwise the minimum mean ``loss`` of held-out rows does (squared errors
        are summed over the responses), and with max_degree="auto" also chooses the degree. The model is then fitted to
        all rows with this number of terms. An int makes folds by the values of the rows, whatever their order: equal
        rows share a fold (unless there are fewer than two different rows per fold; then equal rows are spread).
        ``fit`` passes ``groups`` on to a splitter. Folds learn what their columns of many categories become from their
        own training rows; which columns there are, what fills gaps and, in additive fits of many rows, where knots may
        be, is learned from all rows, but not from their responses. Folds of many rows choose among 127 knots a column
        unless ``max_knots`` is a number.
    knots : dict from names of columns to arrays, sequence of an array or None for each column, or None, default None
        Candidate knots for columns of numbers, instead of values of the data. Other columns get theirs as usual. They
        need not be values of the data.
    monotonic_cst : array of −1, 0, 1 or dict of them by column name, default None
        Columns along which predictions may never rise (−1) or never fall (1), whatever the other columns are. This is
        guaranteed everywhere, for interactions too; ``certify_monotone()`` checks it. It is for squared errors, one
        response, and columns with an order. A missing value has its own effect.

    Attributes
    ----------
    spline_ : Spline, of the encoded features
    gcv_, grsq_, rss_, rsq_ : float, summed over the responses
    feature_importances_ : (n_features_in_,) rise in RSS without the feature, scaled to sum 1
    knots_ : tuple of Knot, the knots of ``spline_`` with the training rows that have their values
    limits_ : Limits, the range of the encoded features as they were fitted; ``outside(X)`` marks rows beyond it
    training_rows_ : TrainingRows, by which explanations know rows that were in the fit; None for a GPU and
        for a stream
    encoder_ : TableEncoder, from the table to the columns of ``spline_``
    loss_ : ResponseLoss, the loss with its parameters
    calibration_ : Calibration, with ``cv`` and one response: the scores of out-of-fold rows that ``predict_interval``
        goes by
    deviance_, null_deviance_ : float, of the training rows: what ``loss`` minimises, and that of the best constant
    fit_ : SplineFit, the whole record: ``spline``, ``knots``, ``quality``, ``coordinates`` (means and stds) and
        ``selection`` (the forward pass and what pruning kept) in the data's units of measurement, ``standardised`` in
        those of the search. With another loss than squared errors a ResponseFit; its ``search`` is that SplineFit, and
        so are ``gcv_``, ``grsq_``, ``rss_`` and ``rsq_``: those of the working response that found the terms
    path_ : tuple of PathModel, the models of every size; ``plot_path()`` draws their errors
    oof_prediction_ : (N,) or (N, p), with ``cv``: each row by the folds that held it out, NaN for rows that none did,
        those of weight zero among them
    fold_splines_, fold_rows_ : with ``cv``, each fold's spline of the chosen size, of the encoded features and on the
        scale of the link as ``spline_`` is, and the rows it held out
    fold_encoders_ : with ``cv``, each fold's encoder; None where no column is learned from the response: then
        ``encoder_`` is the one of all folds
    cv_results_ : dict of arrays, with ``cv``, an entry for each degree and size that was tried: ``degree``, ``size``,
        ``penalty`` (the smallest at which GCV would have chosen the size, NaN if there is none), ``mean_error`` and
        ``standard_error`` of the held-out rows, ``fold_errors`` (·, folds)

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
    >>> model.loss_.name, model.deviance_ < model.null_deviance_
    ('squared_error', True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **StreamingMars._parameter_constraints,
        "scale_responses": ["boolean"],
        **DECLARED_LOSS,
        "knots": [Mapping, list, tuple, None],
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
        loss: str = "squared_error",
        quantile: float | None = None,
        power: float | None = None,
        cv: Any = None,
        knots: Mapping[str, ArrayLike] | Sequence[ArrayLike | None] | None = None,
        monotonic_cst: ArrayLike | Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(
            max_terms=max_terms, max_degree=max_degree, penalty=penalty, threshold=threshold, minspan=minspan,
            endspan=endspan, max_knots=max_knots, interaction=interaction, compat=compat, backend=backend,
            n_jobs=n_jobs, verbose=verbose, interacting=interacting, max_parents=max_parents, missing=missing,
            extrapolate=extrapolate, cv=cv, monotonic_cst=monotonic_cst,
        )  # fmt: skip
        self.scale_responses = scale_responses
        self.loss = loss
        self.quantile = quantile
        self.power = power
        self.knots = knots

    def _fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None = None) -> None:
        loss = response_loss(self.loss, self.quantile, self.power)
        opened = open_source(X, y, sample_weight)
        if opened is not None:
            fit_regressor(self, opened)
            return
        if loss.name != "squared_error":
            self._fit_loss(X, y, sample_weight, groups, loss)
            return
        read = read_tensors if on_gpu(X) else _read_in_memory
        matrix, response, weights, kept, encoder = read(self, X, y, sample_weight)
        training_rows: Callable[[], TrainingRows] | None = None
        if not on_gpu(X):
            threads = thread_count(self.n_jobs)
            training_rows = begun(partial(TrainingRows.of, matrix, response, encoder), threads, matrix.size)
        targets = response.reshape(len(response), -1)
        if self.monotonic_cst is not None and targets.shape[1] > 1:
            raise ValueError(f"monotonic_cst is for one response, got {targets.shape[1]}; fit a model for each")
        scaled = self.scale_responses and targets.shape[1] > 1
        scale = None
        if scaled:
            scale = mean_and_std(in_memory(targets), in_memory(weights))[1]
            targets = targets / like(scale, targets)
        self._flat_output = response.ndim == 1
        held = held_outputs(response, loss, self._options(encoder).extrapolate)
        folded: TrainingTable | None = None
        if self.cv is not None:
            if self.backend == "torch" or on_gpu(X):
                raise DataError(
                    "folds are fitted in memory, got cv with backend='torch' or a tensor on a GPU; choose "
                    "backend='cpu' and pass X.cpu()"
                )
            rows = len(response) if kept is None else _num_samples(y)
            by = Response(response.reshape(len(response), -1))
            table = TrainingTable(X, y, groups, rows, kept, encoder, matrix, by, weights)
            fitted = self._fit_folds(table, targets, scale, held)
            folded = table
        else:
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
        if scale is not None:
            fitted = in_own_units(fitted, scale)
        spline = replace(fitted.spline, parts=read_parts(encoder.parts, matrix), output_limits=held)
        fitted = replace(fitted, spline=spline)
        self.fit_: SplineFit | ResponseFit = at_rows(fitted, kept)
        self.encoder_ = encoder.with_means(fitted.coordinates.x_centre)
        self.training_rows_ = None if training_rows is None else training_rows()
        if folded is not None and response.size == len(response):
            self._conform(folded, response.reshape(-1))

    def _fit_folds(self, table: TrainingTable, targets: Floats, scale: Floats | None, held: Limits | None) -> SplineFit:
        """Choose degree and size by folds, then fit to all rows."""
        options = self._options(table.encoder)
        data, encoders = fold_data(table, targets, read_folds(self.cv, table))

        opened: HostTable | None = None

        def paths_of(degree: int) -> list[FoldPath]:
            nonlocal opened
            if degree == 1 and SharedFolds.suit(data, options):
                folds = SharedFolds(data, options)
                opened = folds.table if data.X[0] is table.matrix else None
                return folds.paths
            return fold_paths(data, replace(options, max_degree=degree))

        choice = choose(paths_of, degrees_of(options, data.X[0].shape[1]))
        fitted = fit_spline(
            table.matrix,
            targets,
            weights=table.weights,
            names=table.encoder.feature_names,
            options=chosen_options(options, choice),
            opened=opened,
        )
        flat = self._flat_output

        def predict(values: Floats) -> Floats:
            return values if flat else values.reshape(len(values), -1)

        set_fold_attributes_(self, table, data, encoders, choice, fitted, predict, scale, held)
        return fitted

    def _fit_loss(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None, loss: ResponseLoss
    ) -> None:
        """Fit by another loss than squared errors."""
        if self.backend == "torch" or on_gpu(X):
            raise DataError(
                f"loss={self.loss!r} is fitted in memory, got backend='torch' or a tensor on a GPU; choose "
                f"backend='cpu' and pass X.cpu()"
            )
        if self.monotonic_cst is not None:
            raise ValueError(f"monotonic_cst is for loss='squared_error', got {self.loss!r}; leave one of the two out")
        matrix, response, weights, kept, encoder = _read_in_memory(self, X, y, sample_weight)
        self.training_rows_ = TrainingRows.of(matrix, response, encoder)
        values = one_response(response, loss)
        options, folded = self._options(encoder), None
        if self.cv is not None:
            rows = len(response) if kept is None else _num_samples(y)
            by = Response(values[:, None])
            table = TrainingTable(X, y, groups, rows, kept, encoder, matrix, by, weights)
            data, encoders = fold_data(table, values[:, None], read_folds(self.cv, table))
            choice = choose(
                lambda degree: response_fold_paths(data, loss, replace(options, max_degree=degree)),
                degrees_of(options, matrix.shape[1]),
            )
            options, folded = chosen_options(options, choice), (table, data, encoders, choice)
        with forward_progress(bool(self.verbose)) as report:
            fitted = fit_response(
                matrix,
                values,
                loss,
                weights=weights,
                names=encoder.feature_names,
                options=options,
                report=report,
            )
        held = held_outputs(values, loss, options.extrapolate)
        spline = replace(fitted.spline, parts=read_parts(encoder.parts, matrix), output_limits=held)
        self.fit_ = replace(fitted, spline=spline, search=at_rows(fitted.search, kept))
        self.encoder_ = encoder.with_means(fitted.search.coordinates.x_centre)
        self._flat_output = response.ndim == 1
        if folded is not None:
            flat = self._flat_output

            def predict(eta: Floats) -> Floats:
                found = fitted.loss.predict(eta)
                return found if flat else found.reshape(len(found), -1)

            set_fold_attributes_(self, *folded, fitted.search, predict, held=held)
            self._conform(folded[0], values)

    def _conform(self, table: TrainingTable, y: Floats) -> None:
        """Set what intervals come from: the out-of-fold predictions of the rows kept, whose responses are y (N,)."""
        matrix = np.asarray(table.matrix, dtype=np.float64)
        unseen = np.asarray(self.oof_prediction_[table.numbers], dtype=np.float64).reshape(-1)
        weights = np.ones(len(y)) if table.weights is None else np.asarray(table.weights, dtype=np.float64)
        names = table.encoder.feature_names
        folds, threads = fold_of_rows(self, table), thread_count(self.n_jobs)

        def fitted() -> Floats:
            return self.loss_.predict(self.spline_(matrix)).reshape(-1)

        self.calibration_ = calibrate_intervals(matrix, np.asarray(y), unseen, fitted, weights, names, folds, threads)

    def _fold_predictions(self, X: Any, matrix: Floats) -> Floats:
        encoders = self.fold_encoders_
        rows = [matrix if encoders is None else encoders[k].encode(X) for k in range(len(self.fold_splines_))]
        found = [spline(own).reshape(-1) for spline, own in zip(self.fold_splines_, rows, strict=True)]
        return self.loss_.predict(np.stack(found, axis=1))

    @property
    def loss_(self) -> ResponseLoss:  # type: ignore[override]
        """The loss with its parameters."""
        fitted = self._fitted
        return fitted.loss if isinstance(fitted, ResponseFit) else SQUARED_ERROR

    @property
    def deviance_(self) -> float:
        """Deviance of the training rows; the RSS for squared errors."""
        fitted = self._fitted
        return fitted.deviance if isinstance(fitted, ResponseFit) else self.rss_

    @property
    def null_deviance_(self) -> float:
        """Deviance of the best constant."""
        fitted = self._fitted
        if isinstance(fitted, ResponseFit):
            return fitted.null_deviance
        return self.rss_ / (1 - self.rsq_) if self.rsq_ < 1 else float("nan")

    @lazy_on_dask
    def predict(self, X: Any) -> Floats:
        """Predict the mean of y, or its quantile: (N, d) → (N,) or (N, p), as y was.

        A tensor of a GPU gives one, a collection of Dask an array of Dask.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> model.predict(X.head(3)).shape
        (3,)
        """
        if on_gpu(X):
            found: Any = predict_tensor(self, X)
            return found[:, 0] if self._flat_output else found
        matrix = read_table(self, X)
        values = self.loss_.predict(self.spline_(matrix))
        return values if self._flat_output else values.reshape(len(values), -1)

    @checked(
        draws=whole(2, 10_000), blocks=whole(2), coverage=number(0, 1), points=whole(2, 1000), random_state=whole(0)
    )
    def stability(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        draws: int = 100,
        blocks: int = 20,
        coverage: float = 0.9,
        points: int = 41,
        random_state: int = 0,
    ) -> Stability:
        """Fit the model again to blocks of rows drawn with replacement: how often columns enter, and bands of curves.

        Rows that follow each other are a block, as in a series; shuffle them first where their order means nothing. All
        draws come from one pass over the rows, of additive models with at most 63 knots a column; the size is GCV's, or
        the one that ``cv`` chose. The model itself stays as it is.

        Parameters
        ----------
        X, y, sample_weight : the training rows
        draws, blocks : how many fits, 10 000 at most, and of how many blocks
        coverage : share of the draws' curves that lie within a band, at each point
        points : of a curve, at quantiles of its column, 1000 at most
        random_state : seed of the draws

        Returns
        -------
        Stability, with ``frequencies`` (by column), ``sizes`` (draws,) and ``bands`` (by encoded feature)

        Examples
        --------
        >>> import numpy as np
        >>> import knotwork as kw
        >>> X = np.random.default_rng(0).normal(size=(500, 3))
        >>> y = np.abs(X[:, 0]) + np.random.default_rng(1).normal(size=500)
        >>> found = kw.MarsRegressor().fit(X, y).stability(X, y, draws=50)
        >>> found.frequencies["x0"], found.bands["x0"].lower.shape
        (1.0, (41, 1))
        """
        self._require_free("stability looks at fits of parts of the rows")
        return stability_of(
            self, X, y, sample_weight, draws=draws, blocks=blocks, coverage=coverage, points=points, seed=random_state
        )

    def _options(self, encoder: TableEncoder) -> FitOptions:
        options = super()._options(encoder)
        return options if self.knots is None else replace(options, knots=given_knots(self.knots, encoder))

    def _summarise(self) -> str:
        if isinstance(self.fit_, ResponseFit):
            return summarise_response(self.fit_, self.encoder_)
        return summarise(self.fit_, self.encoder_)


def in_own_units(fitted: SplineFit, scale: Floats) -> SplineFit:
    """Write a fit to responses that were divided by ``scale`` (p,) in their own units; its quality stays as it is."""
    spline, c, path = fitted.spline, fitted.coordinates, fitted.path
    assert path is not None
    return replace(
        fitted,
        spline=replace(spline, intercept=spline.intercept * scale, coef=spline.coef * scale),
        coordinates=replace(c, y_centre=c.y_centre * scale, y_scale=c.y_scale * scale),
        path=replace(path, units=replace(path.units, y_scale=path.units.y_scale / scale)),
    )


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
