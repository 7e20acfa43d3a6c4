"""``cv=``: folds that choose the size of a spline, and what they leave behind: predictions of rows not seen before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from knotwork.arrays import Floats
from knotwork.compute.workers import Workers
from knotwork.data.learn import learn_fold
from knotwork.data.limits import Limits
from knotwork.data.split import folds_of, occurrences, row_numbers
from knotwork.data.table import TableEncoder
from knotwork.data.target_encoding import Response
from knotwork.errors import DataError
from knotwork.estimators.validation import all_splits
from knotwork.spline.degree import auto_degrees
from knotwork.spline.fit import FitOptions
from knotwork.spline.folds import Choice, Fold, FoldData
from knotwork.spline.path import smallest_penalties
from knotwork.spline.result import SplineFit

# Of the numbers that put rows into folds.
SEED = 19
# Rows from which on folds by their numbers alone are tried.
MANY_ROWS = 20_000
# Attributes of folds and streams, which a fit without them removes.
ATTRIBUTES = (
    "oof_prediction_", "fold_splines_", "fold_rows_", "fold_encoders_", "cv_results_", "_stream", "calibration_",
    "calibration_error_",
)  # fmt: skip


@dataclass(frozen=True)
class TrainingTable:
    """What was passed to fit, and what became of it.

    X, y, groups : as the user passed them; rows : their number; kept : those of positive weight, None for all
    encoder, matrix, response, weights : of the rows kept; response is what columns of many categories are encoded by
    """

    X: Any
    y: Any
    groups: ArrayLike | None
    rows: int
    kept: NDArray[np.intp] | None
    encoder: TableEncoder
    matrix: Floats
    response: Response
    weights: Floats | None

    @property
    def numbers(self) -> NDArray[np.intp]:
        """The numbers, in the user's table, of the rows kept."""
        return np.arange(self.rows) if self.kept is None else self.kept


def require_no_groups(groups: ArrayLike | None) -> None:
    """Refuse groups that nothing would look at."""
    if groups is not None:
        raise DataError(
            "groups are for a splitter, got groups and cv=None or a number of folds; pass cv=GroupKFold(5), say"
        )


def read_folds(cv: Any, table: TrainingTable) -> list[Fold]:
    """Return the folds of the rows kept: by content for a number of folds, else those of a splitter.

    Folds that hold out no row of positive weight are left out.
    """
    codes = table.response.y if table.response.classes is not None else None
    if isinstance(cv, Integral):
        require_no_groups(table.groups)
        label = fold_labels(np.asarray(table.matrix, np.float64), table.response, int(cv))
        label = label.astype(np.min_scalar_type(-int(cv)))  # compared with every fold: few bytes
        folds = [Fold(np.flatnonzero(label != k), np.flatnonzero(label == k)) for k in range(int(cv))]
    else:
        splits = all_splits(cv, table.X, table.y, table.groups, table.rows)
        if table.kept is not None:
            splits = [split.within(table.kept, table.rows) for split in splits]
        folds = [Fold(split.training, split.validation) for split in splits]
    folds = [fold for fold in folds if len(fold.held_out)]
    for k, fold in enumerate(folds):
        if len(fold.training) < 2:
            raise DataError(
                f"every fold needs at least 2 rows of positive weight to train on, fold {k} of cv has "
                f"{len(fold.training)}; choose another cv"
            )
        if codes is not None:
            _require_classes(codes, fold, k, table.response)
    if not folds:
        raise DataError("cv must hold out rows of positive weight, got none; choose another cv")
    return folds


def fold_labels(X: Floats, response: Response, count: int) -> NDArray[np.intp]:
    """Give every row one of so many folds by what it holds: (N, d) → (N,).

    Where there are fewer than two different rows a fold, equal rows are observations and are spread. Rows of a class
    that has a single one are in no fold, -1.
    """
    codes = None if response.classes is None else response.y
    y = response.y if codes is None else codes[:, None]
    numbers = row_numbers(X, SEED)
    if codes is None and len(X) >= MANY_ROWS:
        label = (numbers % np.uint64(count)).astype(np.intp)
        sizes = np.bincount(label, minlength=count)
        if sizes.min() > 0.5 * sizes.max():  # many different rows: folds are of about one size without a sort
            return label
    distinct, place = np.unique(numbers, return_inverse=True)
    if distinct.size < 2 * count:
        X = np.column_stack([X, y, occurrences(place, y)])
        place = np.arange(len(X))
    label = folds_of(X, count, SEED, codes, every_class=False)
    if codes is not None:
        pairs = np.unique(np.stack([codes, place]), axis=1)[0]
        label[np.bincount(pairs)[codes] == 1] = -1
    return label


def _require_classes(codes: NDArray[np.intp], fold: Fold, k: int, response: Response) -> None:
    assert response.classes is not None
    present = np.bincount(codes[fold.training], minlength=len(response.classes)) > 0
    if not present.all():
        raise DataError(
            f"every fold must train on rows of every class, fold {k} of cv has none of "
            f"{response.classes[int(np.argmin(present))]!r}; choose another cv, or leave the class out"
        )


def fold_data(table: TrainingTable, targets: Floats, folds: Sequence[Fold]) -> tuple[FoldData, list[TableEncoder]]:
    """Encode the table for each fold, by its training rows alone where an encoding looks at the response."""
    encoders, matrices = [], []
    for fold in folds:
        encoder, matrix = learn_fold(
            table.encoder, table.X, table.matrix, table.response, table.weights, fold.training, table.kept
        )
        encoders.append(encoder)
        matrices.append(matrix)
    return FoldData(matrices, targets, table.weights, folds, table.encoder.feature_names), encoders


def degrees_of(options: FitOptions, features: int) -> range:
    """Return the degrees to try: one, or all that "auto" may choose."""
    if not isinstance(options.max_degree, str):
        return range(options.max_degree, options.max_degree + 1)
    return auto_degrees(features, options.interacting)


def chosen_options(options: FitOptions, choice: Choice) -> FitOptions:
    """Return the options of the fit to all rows."""
    return replace(options, max_degree=choice.degree, terms=choice.size)


def set_fold_attributes_(
    model: Any,
    table: TrainingTable,
    data: FoldData,
    encoders: Sequence[TableEncoder],
    choice: Choice,
    fit: SplineFit,
    predict: Callable[[Floats], Floats],
    scale: Floats | None = None,
    held: Limits | None = None,
) -> None:
    """Set what folds leave behind; ``predict`` turns what splines give into predictions.

    scale : (p,) that responses were divided by; held : what predictions are held at
    """
    splines = choice.splines
    if scale is not None:
        splines = tuple(replace(s, intercept=s.intercept * scale, coef=s.coef * scale) for s in splines)
    splines = tuple(replace(spline, output_limits=held) for spline in splines)
    numbers = table.numbers
    out: Floats | None = None
    times = np.zeros(table.rows)
    found: list[Floats] = [np.empty(0)] * len(splines)

    with Workers(model._options(table.encoder).threads) as workers:
        parts = workers.split(len(splines), work=len(data.y) * len(splines[0].terms))

        def task(k: int) -> None:
            for f in range(*parts[k]):
                path = choice.paths[f]
                if path.predict is None or scale is not None:
                    found[f] = predict(splines[f](data.X[f][data.folds[f].held_out]))
                else:
                    values = path.predict(path.nearest(choice.size))
                    found[f] = predict(values if held is None else np.clip(values, held.lower, held.upper))

        workers.run(task, len(parts))
    for fold, values in zip(data.folds, found, strict=True):
        if out is None:
            out = np.zeros((table.rows, *values.shape[1:]))
        rows = numbers[fold.held_out]
        np.add.at(times, rows, 1.0)
        np.add.at(out, rows, values)
    assert out is not None
    with np.errstate(invalid="ignore"):
        out /= times.reshape(-1, *[1] * (out.ndim - 1))
    own = all(encoder is table.encoder for encoder in encoders)
    model.oof_prediction_ = out
    model.fold_splines_ = splines
    model.fold_rows_ = tuple(numbers[fold.held_out] for fold in data.folds)
    model.fold_encoders_ = None if own else tuple(encoders)
    model.cv_results_ = _results(choice, fit)


def fold_of_rows(model: Any, table: TrainingTable) -> NDArray[np.intp] | None:
    """Return the fold that held out each of the rows kept, (N,); None unless that is exactly one for each."""
    fold, times = np.zeros(table.rows, dtype=np.intp), np.zeros(table.rows, dtype=np.intp)
    for k, rows in enumerate(model.fold_rows_):
        fold[rows] = k
        times[rows] += 1
    return fold[table.numbers] if (times[table.numbers] == 1).all() else None


def _results(choice: Choice, fit: SplineFit) -> dict[str, NDArray[Any]]:
    penalties = smallest_penalties(fit)
    columns: dict[str, list[NDArray[Any]]] = {}
    for found in choice.candidates:
        penalty = np.full(len(found.sizes), np.nan)
        if found.degree == choice.degree:
            known = found.sizes <= len(penalties)
            penalty[known] = penalties[found.sizes[known] - 1]
        entries = {
            "degree": np.full(len(found.sizes), found.degree),
            "size": found.sizes,
            "penalty": penalty,
            "mean_error": found.mean,
            "standard_error": found.standard_error,
            "fold_errors": found.errors,
        }
        for key, value in entries.items():
            columns.setdefault(key, []).append(value)
    return {key: np.concatenate(values) for key, values in columns.items()}
