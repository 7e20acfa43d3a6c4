"""A program as users write it; `make lint` checks its types as mypy --strict does."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import knotwork as kw


def fit(X: NDArray[np.float64], y: NDArray[np.float64]) -> kw.MarsRegressor:
    model = kw.MarsRegressor(max_degree=2, max_terms=31).fit(X, y)
    spline: kw.Spline = model.spline_
    print(spline, len(spline.terms), spline.coef.shape)
    return model


def continue_training(model: kw.MarsRegressor, X: NDArray[np.float64], y: NDArray[np.float64]) -> nn.Sequential:
    net: nn.Sequential = kw.to_network(model)
    grown = kw.reshape(net, (64, 64), X=X)
    history = kw.train(grown, X, y, epochs=3)
    print(history.validation_loss[-1])
    return kw.fold(grown)


def explain(model: kw.SplineNetClassifier, X: NDArray[np.float64], y: NDArray[np.int64]) -> None:
    explanation: kw.Explanation = kw.explain(model, X, y)
    explanation.to_html("report.html")
    kw.save(model, "model", overwrite=True)


def own_module(X: torch.Tensor, y: torch.Tensor) -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
    kw.init_(module, X, y)
    return kw.with_spline(nn.Linear(3, 1), kw.MarsRegressor().fit(X.numpy(), y.numpy()))
