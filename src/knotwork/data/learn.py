"""Learning how to encode a table: what each column is, what fills its gaps, and the matrix of the training rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knotwork.arrays import Floats, read_numbers
from knotwork.data.columns.level_means import LevelMeans
from knotwork.data.columns.number import Number
from knotwork.data.columns.skipped import Skipped
from knotwork.data.learn_column import is_numeric, learn_column, learn_number
from knotwork.data.learned import Learned, ManyLevels, left_out
from knotwork.data.split import mix
from knotwork.data.table import TableEncoder, all_finite, as_frame, numeric_matrix, require_finite, unmasked
from knotwork.data.target_encoding import Response, encode_levels, folds_of
from knotwork.errors import DataError


def learn_encoder(X: Any, missing: str = "indicator") -> TableEncoder:
    """Learn how to encode a table: a frame's columns by their types, an array's as numbers named x0, x1, …

    >>> import pandas as pd
    >>> encoder = learn_encoder(pd.DataFrame({"Sex": ["M", "F"], "Length": [0.4, 0.5]}))
    >>> encoder.feature_names
    ('Sex=F', 'Sex=M', 'Length')
    """
    return learn_table(X, missing=missing)[0]


def learn_table(
    X: Any,
    *,
    response: Response | None = None,
    weights: Floats | None = None,
    missing: str = "indicator",
) -> tuple[TableEncoder, Floats]:
    """Learn how to encode a table, and encode it.

    Parameters
    ----------
    X : frame of any library, or array (N, d)
    response : what columns of many categories are encoded by; without it they are refused
    weights : (N,) not negative; rows of weight 0 are encoded and teach nothing
    missing : "indicator" gives columns with gaps a feature that says where they are; "error" refuses gaps

    Returns
    -------
    the encoder, and the matrix of the rows (N, features). In it, columns of many categories are encoded out of fold;
    the encoder would show the rows a little of their own response.
    """
    X = unmasked(X)
    frame = as_frame(X)
    if frame is None:
        matrix = X if getattr(getattr(X, "dtype", None), "kind", "O") in "biuf" else read_numbers(X, "X")
        names = [f"x{k}" for k in range(matrix.shape[1])]
    elif all(is_numeric(dtype) for dtype in frame.schema.values()):
        matrix, names = numeric_matrix(frame), [str(name) for name in frame.columns]
    else:
        columns = [learn_column(column, weights, missing) for column in frame.iter_columns()]
        return _joined(_encoded(columns, response, weights, len(frame)), len(frame), missing)
    if missing == "error":
        require_finite(matrix, names)
    if missing == "error" or all_finite(matrix):
        return TableEncoder(tuple(Number(name) for name in names), missing), matrix
    learned = [learn_number(name, column, weights, missing) for name, column in zip(names, matrix.T, strict=True)]
    return _joined(learned, len(matrix), missing)


def learn_fold(
    encoder: TableEncoder,
    X: Any,
    matrix: Floats,
    response: Response,
    weights: Floats | None,
    training: NDArray[np.intp],
    kept: NDArray[np.intp] | None = None,
) -> tuple[TableEncoder, Floats]:
    """Learn the columns of many categories again, from some of the rows, so that the others are strangers.

    Parameters
    ----------
    encoder, X : as in :func:`learn_table`; kept : the rows of X that count, None for all
    matrix, response, weights : of those rows; training : those among them to learn from

    Returns
    -------
    the encoder, and the matrix of all rows: training rows out of fold, the others by what the training rows taught.
    Both are as they came where no column is learned from the response.
    """
    many = [k for k, column in enumerate(encoder.columns) if isinstance(column, LevelMeans)]
    if not many:
        return encoder, matrix
    frame = as_frame(unmasked(X))
    assert frame is not None
    own = Response(response.y[training], response.classes)
    own_weights = None if weights is None else weights[training]
    columns, out = list(encoder.columns), matrix.copy()
    codes = {k: columns[k].codes(frame[columns[k].name]) for k in many}  # type: ignore[union-attr]
    if kept is not None:
        codes = {k: own_codes[kept] for k, own_codes in codes.items()}
    source = np.array(encoder.source)
    hashes = [mix(np.zeros(len(training), np.uint64), codes[k][training].astype(np.uint64)) for k in many]
    folds = folds_of(matrix[np.ix_(training, np.flatnonzero(~np.isin(source, many)))], hashes, own)
    for k, column in zip(many, [columns[k] for k in many], strict=True):
        assert isinstance(column, LevelMeans)
        known = len(column.levels)
        found = encode_levels(codes[k][training], known + 2, own, own_weights, folds, response.chosen)
        gap = None if column.gap is None else found.means[known + 1]
        columns[k] = replace(column, means=found.means[:known], default=found.overall, gap=gap)
        place = np.flatnonzero(source == k)
        out[:, place] = found.means[codes[k]]
        out[np.ix_(training, place)] = found.rows
    return replace(encoder, columns=tuple(columns)), out


def _encoded(
    columns: list[Learned | ManyLevels], response: Response | None, weights: Floats | None, rows: int
) -> list[Learned]:
    """Encode the columns of many categories by the response."""
    from pandas.util import hash_array

    many = [column for column in columns if isinstance(column, ManyLevels)]
    if not many:
        return [column for column in columns if isinstance(column, Learned)]
    if response is None:
        raise DataError(
            f"a column of many categories is encoded by a response, column {many[0].name!r} has {len(many[0].levels)} "
            f"and there is none here; group its categories, or leave it out"
        )
    known = [column for column in columns if isinstance(column, Learned)]
    hashes = []
    for _, codes, levels in many:
        texts = np.array([*map(str, levels), ""], dtype=object)  # the last is a gap's
        hashes.append(hash_array(texts, categorize=False)[codes])
    folds = folds_of(_matrix(known, rows), hashes, response)
    return [
        _by_response(column, response, weights, folds) if isinstance(column, ManyLevels) else column
        for column in columns
    ]


def _by_response(column: ManyLevels, response: Response, weights: Floats | None, folds: Any) -> Learned:
    name, codes, levels = column
    gaps = codes < 0
    encoding = encode_levels(np.where(gaps, len(levels), codes), len(levels) + 1, response, weights, folds)
    if (encoding.means == encoding.overall).all():
        return left_out(name, f"has {len(levels)} categories whose responses differ no more than by chance")
    counted = gaps if weights is None else gaps & (weights > 0)
    how = LevelMeans(
        name, tuple(levels), encoding.means[:-1], encoding.overall, encoding.means[-1] if counted.any() else None,
        response.measures,
    )  # fmt: skip

    def write(out: Floats) -> None:
        out[:] = encoding.rows

    return Learned(how, write)


def _joined(learned: list[Learned], rows: int, missing: str) -> tuple[TableEncoder, Floats]:
    encoder = checked_encoder(TableEncoder(tuple(column for column, _ in learned), missing))
    matrix = _matrix(learned, rows)
    require_finite(matrix, encoder.feature_names)
    return encoder, matrix


def checked_encoder(encoder: TableEncoder) -> TableEncoder:
    """Return an encoder whose features can be told apart, and that has some."""
    _require_distinct(encoder)
    if not encoder.feature_names:
        reasons = "; ".join(f"{c.name!r} {c.reason}" for c in encoder.columns if isinstance(c, Skipped))
        raise DataError(f"a fit needs a column that says something, got none ({reasons}); add features")
    return encoder


def _matrix(learned: list[Learned], rows: int) -> Floats:
    matrix = np.empty((sum(len(column.feature_names) for column, _ in learned), rows)).T
    position = 0
    for column, write in learned:
        width = len(column.feature_names)
        write(matrix[:, position : position + width])
        position += width
    return matrix


def _require_distinct(encoder: TableEncoder) -> None:
    """Refuse columns that could not be told apart in a formula."""
    first: dict[str, int] = {}
    for name, source in zip(encoder.feature_names, encoder.source, strict=True):
        if first.setdefault(name, source) != source:
            one, other = encoder.columns[first[name]].name, encoder.columns[source].name
            raise DataError(
                f"columns must have different names once they are encoded (column=category, column is missing), "
                f"columns {one!r} and {other!r} both give {name!r}; rename one of them"
            )
