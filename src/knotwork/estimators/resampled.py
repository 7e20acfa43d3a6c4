"""What other rows would have made of a fitted model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from knotwork.compute.blas import one_blas_thread
from knotwork.data.coordinates import mean_and_std
from knotwork.errors import DataError
from knotwork.estimators.inputs import read_response, read_table, read_weights
from knotwork.spline.result import SplineFit
from knotwork.spline.stability import Stability, bands_of, draw_splines


def stability_of(
    model: Any,
    X: Any,
    y: ArrayLike,
    sample_weight: ArrayLike | None,
    *,
    draws: int,
    blocks: int,
    coverage: float,
    points: int,
    seed: int,
) -> Stability:
    """Fit an additive regressor again to blocks of rows drawn with replacement; it stays as it is."""
    check_is_fitted(model)
    if not isinstance(model.fit_, SplineFit):
        raise DataError(f"stability is that of fits to squared errors, this one has loss={model.loss!r}")
    if any(len(term.features) > 1 for term in model.fit_.selection.forward_terms):
        raise DataError("stability is that of additive models, this one has interactions; fit it with max_degree=1")
    matrix = np.asarray(read_table(model, X), dtype=np.float64)
    response = read_response(y, len(matrix)).reshape(len(matrix), -1)
    weights = None
    if sample_weight is not None:
        weights, kept = read_weights(sample_weight, len(matrix))
        matrix, response, weights = matrix[kept], response[kept], weights[kept]
    if response.shape[1] != model.spline_.intercept.size:
        raise DataError(f"y must have {model.spline_.intercept.size} responses, got {response.shape[1]}")
    if len(matrix) < 2 * blocks:
        raise DataError(f"blocks must have at least 2 rows each, got {blocks} blocks of {len(matrix)} rows")
    scale = mean_and_std(response, weights)[1] if model.scale_responses and response.shape[1] > 1 else None
    options = replace(model._options(model.encoder_), max_degree=1)
    if hasattr(model, "cv_results_"):
        options = replace(options, terms=len(model.spline_.terms) + 1)
    scaled = response if scale is None else response / scale
    with one_blas_thread():
        splines = draw_splines(
            matrix, scaled, weights, model.encoder_.feature_names, options,
            blocks=blocks, draws=draws, generator=np.random.default_rng(seed),
        )  # fmt: skip
    if scale is not None:
        splines = [replace(s, intercept=s.intercept * scale, coef=s.coef * scale) for s in splines]
    columns, source = model.encoder_.columns, model.encoder_.source
    entered = np.zeros(len(columns))
    for spline in splines:
        entered[list({source[f] for term in spline.terms for f in term.features})] += 1 / draws
    return Stability(
        frequencies={column.name: float(np.round(s, 12)) for column, s in zip(columns, entered, strict=True)},
        sizes=np.array([len(spline.terms) + 1 for spline in splines]),
        bands=bands_of(splines, matrix, points, coverage),
    )
