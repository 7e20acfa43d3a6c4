"""Everything that users can call: found by listing the package, so that new names join by themselves."""

from __future__ import annotations

import copy
import inspect
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import knotwork as kw
from knotwork import export

Rng = np.random.Generator

# Cheap settings for what a call leaves out; the attack is on what it is given.
CHEAP = {"epochs": 1, "hidden": (4,), "batch_size": 8, "max_rounds": 3, "n_init": 1, "samples": 64, "max_degree": 1,
         "n_jobs": 1, "random_state": 0, "n_pieces": 2, "n_hinges": 1, "max_pieces": 3, "max_hinges": 2}  # fmt: skip
# Methods that scikit-learn and torch define and that we leave as they are.
FOREIGN = {
    "get_metadata_routing",
    "set_fit_request",
    "set_score_request",
    "set_predict_request",
    "set_transform_request",
}


@dataclass(frozen=True)
class Target:
    """Something to call: ``make`` returns the callable and the object that it belongs to, if any.

    foreign : a method that scikit-learn defines and that ours inherit as it is, ``score`` say: what it says of its own
        arguments is its own affair
    """

    name: str
    parameters: tuple[inspect.Parameter, ...]
    make: Callable[[Rng], tuple[Callable[..., Any], Any]]
    slow: bool = False
    foreign: bool = False


def table(rng: Rng, rows: int = 12) -> np.ndarray:
    return rng.normal(size=(rows, 3))


def frame(rng: Rng, rows: int = 12) -> pd.DataFrame:
    return pd.DataFrame({"a": rng.normal(size=rows), "b": rng.choice(["u", "v"], rows), "c": rng.normal(size=rows)})


def messy(rng: Rng, rows: int = 12) -> pd.DataFrame:
    """Return a table with a gap in every column: a number, text and a date."""
    found = frame(rng, rows).assign(c=pd.Timestamp("2020") + pd.to_timedelta(rng.integers(0, 999, rows), "D"))
    return found.mask(rng.random(found.shape) < 0.1)


@cache
def estimator_classes() -> dict[str, type]:
    classes = {name: getattr(kw, name) for name in kw.__all__ if inspect.isclass(getattr(kw, name))}
    return {name: cls for name, cls in classes.items() if issubclass(cls, BaseEstimator)}


def cheap_estimator(cls: type) -> Any:
    return cls(**{name: value for name, value in CHEAP.items() if name in inspect.signature(cls).parameters})


@cache
def _fitted(name: str, of_frame: bool = False) -> Any:
    rng = np.random.default_rng(1)
    X = table(rng, 30)
    y = np.abs(X[:, 0]) + X[:, 1]
    if of_frame:
        X = messy(rng, 30)
        y = X["a"].fillna(1).abs().to_numpy() + (X["b"] == "u")
    return cheap_estimator(estimator_classes()[name]).fit(X, y > 0.5 if name.endswith("Classifier") else y)


@cache
def _instances() -> dict[str, tuple[Any, ...]]:
    """Objects of every public class, by its name."""
    hinge, other = kw.Hinge(0, 0.5, 1), kw.Hinge(1, 0.0, -1)
    lattice = kw.LatticePWL(np.array([[0.0, 1, 0, 0], [1, 0, 1, 0]]), ((0, 1), (0,)))
    maxima = kw.MaxSum(np.array([[0.0, 1, 0, 0], [1, 0, 1, 0]]), ((0, 1),), np.array([[1.0]]), np.zeros((1, 4)))
    piece = kw.Piece(np.array([[1.0]]), np.array([1.0]), np.array([0.0, 1.0]))
    rest = kw.Piece(np.array([[-1.0]]), np.array([-1.0]), np.array([1.0, 0.0]))
    made = {
        "Hinge": (hinge,), "Linear": (kw.Linear(2),), "Min": (kw.Min((hinge, other), (1.0, 2.0)),),
        "Product": (kw.Product((hinge, other)),), "Spline": _splines(np.random.default_rng(0)),
        "LatticePWL": (lattice,), "MaxSum": (maxima,),
        "Piece": (piece,), "Pieces": (kw.Pieces((piece, rest)),), "Limits": (kw.Limits([0.0] * 3, [1.0] * 3),),
        "Batches": (kw.Batches([(np.eye(4), np.arange(4.0))]),),
        "Scaling": (kw.Scaling([0.0] * 3, [1.0] * 3), kw.Scaling([0.0] * 3, [1.0] * 3, [-1.0] * 3, [1.0] * 3)),
        "Explanation": (kw.explain(_fitted("MarsRegressor"), table(np.random.default_rng(2))),
                        kw.explain(_fitted("SplineNetRegressor"), table(np.random.default_rng(2)))),
    }  # fmt: skip
    for name, cls in estimator_classes().items():
        made[name] = (_fitted(name), _fitted(name, of_frame=True), cheap_estimator(cls), *_fitted_otherwise(name))
    return made


def _splines(rng: Rng) -> tuple[kw.Spline, ...]:
    """Splines of every kind of term, with limits and without, of one output and several, with odd names."""
    hinges = (kw.Hinge(0, 0.5, 1), kw.Hinge(1, -1e-300, -1))
    pairs = (kw.Min(hinges, (1.0, 2.0)), kw.Product(hinges), kw.Linear(2), kw.Hinge(2, 1e300, -1))
    odd_names = ("*/ int x; /*", '"""\n=1+1', "\x1b[31m")
    return (
        kw.Spline((kw.Hinge(0, 0.5, 1), kw.Linear(1)), [1.0], [[2.0], [1.0]], ("a", "b", "c")),
        kw.Spline(pairs, [1.0, 2.0], rng.normal(size=(4, 2)), odd_names, kw.Limits([-1.0] * 3, [1.0, np.inf, 1.0])),
        kw.Spline(hinges, [0.0], [[1e-300], [1e300]], odd_names, kw.Limits([-1.0] * 3, [1.0] * 3)),
        kw.Spline((), [0.0], np.zeros((0, 1)), ("a", "b", "c"), kw.Limits([0.0] * 3, [0.0] * 3)),
        _fitted("MarsRegressor", of_frame=True).spline_,
    )


@cache
def _fitted_otherwise(name: str) -> tuple[Any, ...]:
    """Estimators fitted with folds, other losses, monotone effects, interactions, members, or to a stream."""
    rng = np.random.default_rng(2)
    X = table(rng, 30)
    y, F = np.abs(X[:, 0]) + X[:, 1], messy(rng, 30)
    labels = y > 0.5
    if name == "MarsRegressor":
        return (
            kw.MarsRegressor(cv=3, n_jobs=1).fit(X, y), kw.MarsRegressor(loss="poisson").fit(F, np.exp(y)),
            kw.MarsRegressor(monotonic_cst=[0, 1, -1], n_jobs=1).fit(X, y), kw.MarsRegressor(max_degree=2).fit(X, y),
            kw.MarsRegressor(cv=3, loss="quantile", quantile=0.9).fit(X, y), kw.MarsRegressor().partial_fit(X, y),
            kw.MarsRegressor(n_jobs=1).partial_fit(F, np.stack([y, -y], axis=1)),
        )  # fmt: skip
    if name == "MarsClassifier":
        return (
            kw.MarsClassifier(cv=3, calibrate=True).fit(X, labels), kw.MarsClassifier(cv=3).fit(F, X[:, 0].round()),
            kw.MarsClassifier(monotonic_cst=[0, 1, -1]).fit(X, labels),
        )  # fmt: skip
    if name == "SplineNetRegressor":
        net = kw.SplineNetRegressor(n_members=1, hidden=(4,), epochs=1, loss="gamma", random_state=0)
        return (net.fit(X, np.exp(y)),)
    if name == "SplineNetClassifier":
        net = kw.SplineNetClassifier(n_members=2, hidden=(4,), epochs=1, calibrate=True, random_state=0)
        return (net.fit(F, labels),)
    return ()


def networks(rng: Rng) -> nn.Module:
    torch.manual_seed(0)
    choice = rng.integers(4)
    if choice == 0:
        return kw.to_network(_fitted("MarsRegressor"))
    if choice == 1:
        return copy.deepcopy(_fitted("SplineNetRegressor").network_)
    kind = [nn.ReLU, nn.LeakyReLU][choice - 2]
    return nn.Sequential(nn.Linear(3, 8), kind(), nn.Linear(8, 8), kind(), nn.Linear(8, int(rng.integers(1, 3))))


def models(rng: Rng) -> Any:
    pool = [thing for made in _instances().values() for thing in made]
    choice = rng.integers(len(pool) + 3)
    if choice < len(pool):
        return copy.deepcopy(pool[choice])
    if choice == len(pool):
        X = table(rng)
        return make_pipeline(StandardScaler(), kw.MarsRegressor()).fit(X, X[:, 0])
    if choice == len(pool) + 1:
        X = frame(rng)
        return kw.MarsRegressor().fit(X, X["a"])
    return networks(rng)


def usual(name: str, rng: Rng, folder: Path) -> Any:
    """Return a value that a parameter of this name may well have; None if nothing is known of it."""
    X = table(rng)
    makers: dict[str, Callable[[], Any]] = {
        "X": lambda: [frame(rng), messy(rng), X, X, X, X, X, X][rng.integers(8)],
        "y": lambda: [X[:, 0], X[:, 0] > 0, X[:, :2], np.where(X[:, 0] > 0, "p", "q"), np.exp(X[:, 0])][
            rng.integers(5)
        ],
        "sample_weight": lambda: rng.random(12), "model": lambda: models(rng), "net": lambda: networks(rng),
        "module": lambda: networks(rng), "head": lambda: "2", "data": lambda: (torch.randn(12, 3), torch.randn(12)),
        "path": lambda: folder / f"out{rng.integers(4)}", "box": lambda: np.array([[-1.0, 1.0]] * 3),
        "lower": lambda: -np.ones(3), "upper": lambda: np.ones(3), "session": lambda: _session(int(rng.integers(2))),
        "tolerance": lambda: 0.1, "widths": lambda: (16, 16), "width": lambda: 16, "layers": lambda: 1,
        "hidden": lambda: (4,), "feature": lambda: 0, "knot": lambda: 0.5, "sign": lambda: 1,
        "slopes": lambda: (1.0, 2.0),
        "hinges": lambda: (kw.Hinge(0, 0.5, 1), kw.Hinge(1, 0.5, -1)), "terms": lambda: (kw.Hinge(0, 0.5, 1),),
        "intercept": lambda: [1.0], "coef": lambda: [[2.0]], "feature_names": lambda: ("a", "b", "c"),
        "theta": lambda: np.array([[0.0, 1, 0, 0], [1, 0, 1, 0]]), "sets": lambda: ((0, 1), (0,)),
        "groups": lambda: ((0, 1),), "affine": lambda: np.zeros((1, 4)), "A": lambda: np.eye(3),
        "b": lambda: np.ones(3),
        "pieces": lambda: _instances()["Pieces"][0].pieces, "centre": lambda: np.zeros(3), "scale": lambda: np.ones(3),
        "names": lambda: ["a", "b", "c"], "record": lambda: _instances()["Spline"][0].to_dict(),
        "x": lambda: torch.randn(12, 3),
        "subject": lambda: _instances()["Explanation"][0].subject, "rows": lambda: _instances()["Explanation"][0].rows,
        "functions": lambda: [_instances()["LatticePWL"][0]] * 2, "which": lambda: "red", "points": lambda: X,
    }  # fmt: skip
    return makers[name]() if name in makers else None


def _of_class(name: str, method: str, pick: int) -> Callable[[Rng], tuple[Callable[..., Any], Any]]:
    def make(rng: Rng) -> tuple[Callable[..., Any], Any]:
        made = _instances()[name]
        owner = copy.deepcopy(made[pick % len(made)])
        # Found when called: what a model does not offer is refused there.
        return (lambda *positional, **named: getattr(owner, method)(*positional, **named)), owner

    return make


def _fit_with(cls: type) -> Callable[..., Any]:
    def fit(X: Any = None, y: Any = None, sample_weight: Any = None, **parameters: Any) -> Any:
        groups = {"groups": parameters.pop("groups")} if "groups" in parameters else {}
        return cls(**parameters).fit(X, y, sample_weight, **groups)

    return fit


@cache
def _session(of_frame: bool) -> Any:
    """Return an exported model in a session of onnxruntime: one that takes features, or one that takes columns."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.onnx"
        kw.export_onnx(_fitted("MarsRegressor", bool(of_frame)), path)
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


SLOW = ("export", "Explanation.", "explain", "init_head_", "from_network", "to_relu", "SplineNet", "DCMax")


def find_targets() -> list[Target]:
    """List every public function, constructor and method."""
    found: list[Target] = []

    def add(name: str, call: Any, make: Callable[[Rng], tuple[Callable[..., Any], Any]], foreign: bool = False) -> None:
        parameters = tuple(
            p for p in inspect.signature(call).parameters.values()
            if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        )  # fmt: skip
        found.append(Target(name, parameters, make, name.startswith(SLOW), foreign))

    for name in kw.__all__:
        thing = getattr(kw, name)
        if inspect.ismodule(thing):
            for key, function in inspect.getmembers(thing, inspect.isfunction):
                if function.__module__ == thing.__name__ and not key.startswith("_"):
                    add(f"{name}.{key}", function, lambda rng, f=function: (f, None))
        elif name in estimator_classes():
            cls = thing
            parameters = inspect.signature(cls).parameters.values()
            asked = ("X", "y", *({"groups"} & inspect.signature(cls.fit).parameters.keys()))
            fit = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in asked]
            found.append(
                Target(
                    f"{name}(…).fit",
                    (*fit, *parameters),
                    lambda rng, c=cls: (_fit_with(c), None),
                    name.startswith(SLOW),
                )
            )
        elif inspect.isclass(thing):
            add(name, thing, lambda rng, c=thing: (c, None))
        else:
            add(name, thing, lambda rng, f=thing: (f, None))
        if inspect.isclass(thing):
            _add_methods(name, thing, add)
    for function in (export.export_torch, export.onnx_feed):
        add(f"export.{function.__name__}", function, lambda rng, f=function: (f, None))
    return found


def _add_methods(name: str, cls: type, add: Callable[..., None]) -> None:
    for method in [*dir(cls), "__call__"]:
        member = inspect.getattr_static(cls, method, None)
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        function = getattr(function, "fn", function)  # what scikit-learn's available_if wraps
        if method in FOREIGN or (method.startswith("_") and method != "__call__"):
            continue
        ours = getattr(function, "__module__", "").startswith("knotwork")
        if isinstance(member, property):
            for pick in range(len(_instances()[name])):
                add(f"{name}.{method}", lambda: None, _property(name, method, pick))
        elif callable(function) and (ours or (issubclass(cls, BaseEstimator) and method != "__call__")):
            for pick in range(len(_instances()[name])):
                call = function if hasattr(member, "fn") else getattr(cls, method)
                add(f"{name}.{method}", call, _of_class(name, method, pick), not ours)


def _property(name: str, attribute: str, pick: int) -> Callable[[Rng], tuple[Callable[..., Any], Any]]:
    def make(rng: Rng) -> tuple[Callable[..., Any], Any]:
        made = _instances()[name]
        owner = copy.deepcopy(made[pick % len(made)])
        return (lambda: getattr(owner, attribute)), owner

    return make
