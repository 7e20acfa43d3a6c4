"""The models, each with its defaults and one thread; what differs from a bare constructor is said here.

Given what their documentation recommends: CatBoost names the text columns, LightGBM and HistGradientBoosting get
pandas' categories (text of more than 255 levels, which the latter refuses, passes through TargetEncoder), EBM gets
text, RealMLP and TabM (pytabkit) text and filled gaps; for classes they validate by the log-loss, RealMLP without label
smoothing, as pytabkit says for measures other than accuracy. The others get numbers. scikit-learn's MLP standardises y.
Logistic regression may take 1000 iterations. earth fits one binomial glm per class, and their probabilities are divided
by their sum where there are more than two.
"""

from __future__ import annotations

import inspect
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from . import prepare
from .earth import Earth
from .load import text_columns

HGB_LEVELS = 255
PEERS = ("catboost", "lightgbm", "hgb", "linear", "earth", "earth_2", "ebm", "ebm_additive", "realmlp_s", "mlp",
         "realmlp", "tabm", "djinn")  # fmt: skip
PYTABKIT = ("realmlp", "realmlp_s", "tabm")
OURS = ("mars_1", "mars_2", "mars_auto", "net_1", "net_8", "net_random")
NAMES = {
    "catboost": "CatBoost", "lightgbm": "LightGBM", "hgb": "HistGradientBoosting", "linear": "ridge / logistic",
    "earth": "earth (R), degree 1", "earth_2": "earth (R), degree 2", "ebm": "EBM", "ebm_additive": "EBM, additive",
    "realmlp": "RealMLP", "realmlp_s": "RealMLP-S", "tabm": "TabM", "mlp": "MLP (scikit-learn)", "djinn": "DJINN",
    "mars_1": "MARS, degree 1", "mars_2": "MARS, degree 2", "mars_auto": "MARS, degree chosen",
    "net_1": "SplineNet, 1 member", "net_8": "SplineNet, 8 members", "net_random": "SplineNet, random start",
}  # fmt: skip


def make(name: str, X: pd.DataFrame, task: str, seed: int, device: str = "cpu") -> Any:
    """Return an unfitted model for raw training rows X (N, columns): ``fit(X, y)``, then predict or predict_proba.

    device : where SplineNet, RealMLP and TabM train
    """
    regression = task == "regression"
    if name in OURS:
        return own(name, regression, seed, device)
    options = {"device": device} if name in PYTABKIT else {}
    return globals()[f"_{name}"](X, regression, seed, **options)


def own(name: str, regression: bool, seed: int, device: str = "cpu") -> Any:
    import knotwork as kw

    kind, choice = name.split("_")
    if kind == "mars":
        degree: Any = choice if choice == "auto" else int(choice)
        mars = kw.MarsRegressor if regression else kw.MarsClassifier
        return mars(max_degree=degree, n_jobs=1)
    net = kw.SplineNetRegressor if regression else kw.SplineNetClassifier
    options: dict[str, Any] = {"start": "random"} if choice == "random" else {}
    # Versions without ensembles have one member.
    if "n_members" in inspect.signature(net).parameters:
        options["n_members"] = 8 if choice == "8" else 1
    elif choice == "8":
        raise SystemExit(f"net_8 needs a knotwork with n_members; {kw.__file__} has none")
    return net(random_state=seed, n_jobs=1, device=device, **options)


def version_of(name: str) -> str:
    """Return the version of the package that a model is in; of knotwork, with the commit."""
    if name in OURS:
        import knotwork as kw

        folder = Path(kw.__file__).parent
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=folder, capture_output=True, text=True
        ).stdout.strip()
        return f"{kw.__version__}+{commit}" if commit else str(kw.__version__)
    if name.startswith("earth"):
        return Earth.version()
    packages = {"ebm": "interpret-core", "ebm_additive": "interpret-core", "catboost": "catboost",
                "lightgbm": "lightgbm", "djinn": "djinnml"}  # fmt: skip
    return version("pytabkit" if name in PYTABKIT else packages.get(name, "scikit-learn"))


def _catboost(X: pd.DataFrame, regression: bool, seed: int) -> Any:
    import catboost as cb

    kind = cb.CatBoostRegressor if regression else cb.CatBoostClassifier
    model = kind(
        cat_features=text_columns(X), random_seed=seed, thread_count=1, verbose=False, allow_writing_files=False
    )
    return make_pipeline(prepare.named(), model)


def _lightgbm(X: pd.DataFrame, regression: bool, seed: int) -> Any:
    import lightgbm as lgb

    kind = lgb.LGBMRegressor if regression else lgb.LGBMClassifier
    return make_pipeline(prepare.categories(), kind(random_state=seed, n_jobs=1, verbose=-1))


def _hgb(X: pd.DataFrame, regression: bool, seed: int) -> Any:
    kind = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    columns = prepare.categories(max_levels=HGB_LEVELS, target_type="continuous" if regression else "auto", seed=seed)
    return make_pipeline(columns, kind(random_state=seed))


def _linear(X: pd.DataFrame, regression: bool, seed: int) -> Any:
    return make_pipeline(prepare.numeric(X), Ridge() if regression else LogisticRegression(max_iter=1000))


def _mlp(X: pd.DataFrame, regression: bool, seed: int) -> Any:
    model: Any = MLPClassifier(random_state=seed)
    if regression:
        model = TransformedTargetRegressor(MLPRegressor(random_state=seed), transformer=StandardScaler())
    return make_pipeline(prepare.numeric(X), model)


def _earth(X: pd.DataFrame, regression: bool, seed: int) -> Any:
    return make_pipeline(prepare.numeric(X), Earth(degree=1, regression=regression))


def _earth_2(X: pd.DataFrame, regression: bool, seed: int) -> Any:
    return make_pipeline(prepare.numeric(X), Earth(degree=2, regression=regression))


def _ebm(X: pd.DataFrame, regression: bool, seed: int, **options: Any) -> Any:
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    kind = ExplainableBoostingRegressor if regression else ExplainableBoostingClassifier
    return make_pipeline(prepare.named(), kind(random_state=seed, n_jobs=1, **options))


def _ebm_additive(X: pd.DataFrame, regression: bool, seed: int) -> Any:
    return _ebm(X, regression, seed, interactions=0)


def _pytabkit(name: str, regression: bool, seed: int, device: str) -> Any:
    from pytabkit.models.sklearn import sklearn_interfaces

    kind = getattr(sklearn_interfaces, f"{name}_{'Regressor' if regression else 'Classifier'}")
    options: dict[str, Any] = {} if regression else {"val_metric_name": "cross_entropy"}
    if not regression and name.startswith("RealMLP"):
        options["use_ls"] = False
    return make_pipeline(prepare.filled(), kind(device=device, random_state=seed, n_threads=1, **options))


def _realmlp(X: pd.DataFrame, regression: bool, seed: int, device: str) -> Any:
    return _pytabkit("RealMLP_TD", regression, seed, device)


def _realmlp_s(X: pd.DataFrame, regression: bool, seed: int, device: str) -> Any:
    return _pytabkit("RealMLP_TD_S", regression, seed, device)


def _tabm(X: pd.DataFrame, regression: bool, seed: int, device: str) -> Any:
    return _pytabkit("TabM_D", regression, seed, device)


def _djinn(X: pd.DataFrame, regression: bool, seed: int) -> Any:
    import djinn

    kind = djinn.DJINN_Regressor if regression else djinn.DJINN_Classifier
    return make_pipeline(prepare.numeric(X), kind(random_state=seed))


def class_probabilities(model: Any, X: pd.DataFrame, classes: np.ndarray) -> np.ndarray:
    """Return probabilities (N, K) with the columns in the order of ``classes``."""
    found = [str(name) for name in model.classes_]
    return np.asarray(model.predict_proba(X), dtype=float)[:, [found.index(name) for name in classes]]
