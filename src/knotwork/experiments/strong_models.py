"""How low an error these data allow: models of other kinds on the same splits."""

from __future__ import annotations

from typing import Any

import numpy as np

from knotwork.experiments.protocol import Plan, split
from knotwork.spline.fit import FitOptions, fit_spline

# Trees of the random forest.
FOREST = 100


def errors(plan: Plan, data: str, seed: int) -> dict[str, Any]:
    """Test MSE, min-max scaled, of the mean, a line, our spline, boosted trees and a random forest.

    All are fitted to training and validation rows together: nothing here is chosen on validation rows.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
    from sklearn.linear_model import LinearRegression

    rows = split(data, seed)
    x, y = np.concatenate([rows.train.x, rows.validation.x]), np.concatenate([rows.train.y, rows.validation.y])[:, 0]
    spline = fit_spline(x, y[:, None], options=FitOptions(threads=1, spacing="free")).spline
    models = {
        "linear regression": LinearRegression(),
        "gradient boosting": HistGradientBoostingRegressor(learning_rate=0.05, max_iter=150, random_state=seed),
        "random forest": RandomForestRegressor(FOREST, min_samples_leaf=3, random_state=seed, n_jobs=1),
    }
    predictions = {"mean of the training rows": np.full(len(rows.test), y.mean()), "spline": spline(rows.test.x)}
    predictions |= {name: model.fit(x, y).predict(rows.test.x) for name, model in models.items()}
    target = rows.test.y[:, 0]
    return {
        "unit": rows.unit,
        "mse": {name: float(np.mean((p - target) ** 2)) for name, p in predictions.items()},
        "mse_fresh": {name: float(np.mean((p - target)[rows.fresh] ** 2)) for name, p in predictions.items()},
        "share_of_copies": float(1 - rows.fresh.mean()),
    }
