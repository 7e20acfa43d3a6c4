"""The contenders of ``messy.py``: each makes a fitted model from a raw table.

mars, net      MarsRegressor/-Classifier and SplineNetRegressor/-Classifier, straight on the table
… target       the same behind scikit-learn: SimpleImputer(strategy="median", add_indicator=True) for numbers,
               TargetEncoder for all text
… one-hot      the same, but OneHotEncoder(min_frequency=10) for text columns of at most 20 levels
hgb            HistGradientBoosting: its own way with gaps and categories; text columns of more than 255 levels, which
               it refuses, pass through TargetEncoder, as in scikit-learn's example of that encoder
catboost       CatBoost: its own way with gaps, categories by ``cat_features``; a gap in a text column is a text

Everything has its defaults, but CatBoost, for time, has 300 trees instead of 1000 (its learning rate follows their
number).
Dates go straight into knotwork only; all others get the numbers of ``messy_data.dates_as_numbers``.
"""

from __future__ import annotations

from typing import Any

import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, TargetEncoder

import knotwork as kw
from messy_data import dates_as_numbers, text_columns

OURS = ("mars", "net")
PIPELINES = ("target", "one-hot")
CONTENDERS = ("hgb", "catboost", "mars", "mars target", "mars one-hot", "net", "net target", "net one-hot")
FEW_LEVELS, HGB_LEVELS = 20, 255
CATBOOST_TREES = 300


class TextGaps(TransformerMixin, BaseEstimator):
    """Makes every gap in a text column one text, for encoders and CatBoost, which refuse None among texts."""

    def fit(self, X: pd.DataFrame, y: object = None) -> TextGaps:
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        return X.astype(object).where(X.notna(), "(missing)").astype(str)

    def __sklearn_is_fitted__(self) -> bool:
        return True


def own(name: str, task: str, seed: int, device: str | None) -> Any:
    regression = task == "regression"
    if name == "mars":
        return kw.MarsRegressor(n_jobs=1) if regression else kw.MarsClassifier(n_jobs=1)
    kind = kw.SplineNetRegressor if regression else kw.SplineNetClassifier
    return kind(random_state=seed, n_jobs=1, device=device)


def target_encoder(task: str, seed: int) -> TargetEncoder:
    """Return the encoder that does not take whole numbers for classes."""
    if task == "regression":
        return TargetEncoder(target_type="continuous", cv=KFold(5, shuffle=True, random_state=seed))
    return TargetEncoder(cv=StratifiedKFold(5, shuffle=True, random_state=seed))


def encoded(X: pd.DataFrame, few: str, task: str, seed: int) -> Any:
    """Return scikit-learn's way from a table with numbers and text to numbers without gaps."""
    text = text_columns(X)
    numbers = [c for c in X if c not in text]
    low = [c for c in text if few == "one-hot" and X[c].nunique() <= FEW_LEVELS]
    high = [c for c in text if c not in low]
    return make_column_transformer(
        (SimpleImputer(strategy="median", add_indicator=True), numbers),
        (make_pipeline(TextGaps(), OneHotEncoder(min_frequency=10, handle_unknown="infrequent_if_exist",
                                                 sparse_output=False)), low),
        (make_pipeline(TextGaps(), target_encoder(task, seed)), high),
    )  # fmt: skip


def boosting(X: pd.DataFrame, task: str, seed: int) -> Any:
    text = text_columns(X)
    numbers = [c for c in X if c not in text]
    low = [c for c in text if X[c].nunique() <= HGB_LEVELS]
    high = [c for c in text if c not in low]
    kind = HistGradientBoostingRegressor if task == "regression" else HistGradientBoostingClassifier
    # Unknown levels count as gaps, which is what it does with them itself.
    ordinal = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=float("nan"), encoded_missing_value=float("nan")
    )
    columns = make_column_transformer(
        (ordinal, low), ("passthrough", numbers), (make_pipeline(TextGaps(), target_encoder(task, seed)), high)
    )  # fmt: skip
    return make_pipeline(columns, kind(categorical_features=list(range(len(low))), random_state=seed))


def catboost(X: pd.DataFrame, task: str, seed: int) -> Any:
    import catboost as cb

    kind = cb.CatBoostRegressor if task == "regression" else cb.CatBoostClassifier
    text = text_columns(X)
    model = kind(
        iterations=CATBOOST_TREES, cat_features=text, random_seed=seed, thread_count=1, verbose=False,
        allow_writing_files=False,
    )  # fmt: skip

    def text_gaps(X: pd.DataFrame) -> pd.DataFrame:
        return X.assign(**{c: TextGaps().transform(X[[c]])[c] for c in text})

    return make_pipeline(FunctionTransformer(text_gaps), model)


def contender(name: str, X: pd.DataFrame, task: str, seed: int, device: str | None = None) -> Any:
    """Return an unfitted model for the raw training table X (N, columns)."""
    if name in OURS:
        return own(name, task, seed, device)
    dates = FunctionTransformer(dates_as_numbers)
    X = dates_as_numbers(X)
    if name == "hgb":
        return make_pipeline(dates, boosting(X, task, seed))
    if name == "catboost":
        return make_pipeline(dates, catboost(X, task, seed))
    first, few = name.split()
    return make_pipeline(dates, encoded(X, few, task, seed), own(first, task, seed, device))
