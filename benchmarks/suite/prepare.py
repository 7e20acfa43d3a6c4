"""The forms that the models' documentations ask for; each is a scikit-learn transformer from the raw frame.

``numeric``     numbers only: gaps filled by the median with an indicator, standardised; one-hot text, levels of fewer
                than 10 rows together
``named``       numbers with their gaps and text whose gaps are a text of their own
``filled``      as ``named``, with the numbers' gaps filled by the median with an indicator
``categories``  numbers with their gaps and pandas' categories; levels that are new in the test rows are gaps
Dates become numbers in all of them; knotwork alone gets the raw frame.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from benchmarks.messy_data import dates_as_numbers
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler, TargetEncoder

from .load import text_columns

MISSING = "(missing)"


class Named(TransformerMixin, BaseEstimator):
    """Numbers as floats and text without gaps; ``fill`` replaces the numbers' gaps too, with indicators."""

    def __init__(self, fill: bool = False) -> None:
        self.fill = fill

    def fit(self, X: pd.DataFrame, y: object = None) -> Named:
        self.text_ = text_columns(X)
        numbers = X.drop(columns=self.text_)
        self.medians_ = numbers.median().fillna(0)
        self.gaps_ = list(numbers.columns[numbers.isna().any()])
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        parts = {}
        for name in X:
            column = X[name]
            if name in self.text_:
                parts[name] = column.astype(object).where(column.notna(), MISSING).astype(str).astype(object)
            else:
                parts[name] = column.astype(float).fillna(self.medians_[name]) if self.fill else column.astype(float)
        if self.fill:
            parts |= {f"{name} is missing": X[name].isna().astype(float) for name in self.gaps_}
        return pd.DataFrame(parts)


class Categories(TransformerMixin, BaseEstimator):
    """Text as pandas' categories with the levels of the training rows; those beyond ``max_levels`` by their target."""

    def __init__(self, max_levels: int | None = None, target_type: str = "auto", seed: int = 0) -> None:
        self.max_levels, self.target_type, self.seed = max_levels, target_type, seed

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> Categories:
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: pd.DataFrame, y: np.ndarray | None = None, **_: object) -> pd.DataFrame:
        """Fit, and encode the training rows by the targets of others."""
        self.levels_ = {name: np.unique(X[name].dropna().astype(str)) for name in text_columns(X)}
        self.many_ = [c for c, levels in self.levels_.items() if self.max_levels and len(levels) > self.max_levels]
        codes = None
        if self.many_:
            folds = KFold if self.target_type == "continuous" else StratifiedKFold
            cv = folds(5, shuffle=True, random_state=self.seed)
            self.encoder_ = TargetEncoder(target_type=self.target_type, cv=cv)
            codes = self.encoder_.fit_transform(self._text(X), y)
        return self._frame(X, codes)

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        return self._frame(X, self.encoder_.transform(self._text(X)) if self.many_ else None)

    def _text(self, X: pd.DataFrame) -> pd.DataFrame:
        return X[self.many_].astype(object).where(X[self.many_].notna(), MISSING).astype(str)

    def _frame(self, X: pd.DataFrame, codes: np.ndarray | None) -> pd.DataFrame:
        parts = {}
        for name in X.columns.difference(self.many_, sort=False):
            column = X[name]
            levels = self.levels_.get(name)
            if levels is None:
                parts[name] = column.astype(float)
            else:
                parts[name] = pd.Categorical(column.where(column.isin(levels)), categories=levels)
        frame = pd.DataFrame(parts, index=X.index)
        if codes is not None:
            frame[[f"target {i}" for i in range(codes.shape[1])]] = codes
        # LightGBM refuses names with its own punctuation.
        frame.columns = pd.Index([f"x{i}" for i in range(frame.shape[1])])
        return frame


def dates() -> FunctionTransformer:
    return FunctionTransformer(dates_as_numbers)


def named() -> Any:
    return make_pipeline(dates(), Named())


def filled() -> Any:
    return make_pipeline(dates(), Named(fill=True))


def categories(**options: Any) -> Any:
    return make_pipeline(dates(), Categories(**options))


def numeric(X: pd.DataFrame) -> Any:
    """Return the transformer to numbers for a frame with these columns."""
    X = dates_as_numbers(X)
    text = text_columns(X)
    numbers = [c for c in X if c not in text]
    one_hot = OneHotEncoder(min_frequency=10, handle_unknown="infrequent_if_exist", sparse_output=False)
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler()), numbers),
        (make_pipeline(Named(), one_hot), text),
    )
    return make_pipeline(dates(), columns)
