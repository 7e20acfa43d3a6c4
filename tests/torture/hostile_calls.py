"""Calls of everything public with values that nobody should pass.

A call may succeed, or be refused by a sentence of ours: an error of ``knotwork.errors``, or a TypeError, ValueError or
NotFittedError that our validation (or scikit-learn's, where its own methods are called) raises on purpose. It must end
within seconds, and a refusal leaves estimators and networks as they were.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import InvalidParameterError
from torch import nn

import knotwork as kw
from knotwork.errors import KnotworkError
from tests.torture.call_targets import CHEAP, Target, find_targets, usual
from tests.torture.limits import Timeout, limit
from tests.torture.odd_values import odd
from tests.torture.outcome import Outcome

NAME = "hostile_calls"
DEFAULT_COUNT = 50_000
SHORT_COUNT = 300
SECONDS = 20.0
# Values from which arithmetic in float64 may overflow.
FAR = 1e100
# Share of their turns that slow targets, and those without parameters, take; others take the rest.
SLOW_SHARE = 0.15
# Their results are numbers that a user relies on.
PREDICTIONS = ("predict", "predict_proba", "predict_log_proba", "decision_function", "transform", "__call__", "basis")


def attack(first: int, count: int, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome:
    """Make ``count`` calls; see ``tests.torture``."""
    targets = find_targets()
    counts: Counter[str] = Counter()
    bad: list[str] = []
    with prepared(folder):
        for case in range(first, first + count):
            rng = np.random.default_rng([seed, case])
            target = _choose(targets, case, rng)
            report(f"case {case}, {target.name}")
            what, sentence = one_call(target, rng, folder)
            counts[what] += 1
            if sentence:
                bad.append(f"case {case}, {sentence}")
            if case % 50 == 0:
                for path in folder.iterdir():
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return Outcome(count, dict(counts), bad)


def _compile() -> None:
    """Compile all kernels first: that may take longer than a call, and numba loses an exception raised meanwhile."""
    X = np.random.default_rng(0).normal(size=(30, 3))
    for options in ({"max_degree": 2}, {"max_degree": 2, "interaction": "product"}, {"compat": "earth"}):
        kw.MarsRegressor(**options).fit(X, X[:, 0] * X[:, 1], sample_weight=X[:, 2] ** 2)
        kw.MarsClassifier(**options).fit(X, X[:, 0] > 0)


def _choose(targets: list[Target], case: int, rng: np.random.Generator) -> Target:
    target = targets[case % len(targets)]
    if (target.slow or not target.parameters) and rng.random() > SLOW_SHARE:
        quick = [t for t in targets if t.parameters and not t.slow]
        return quick[rng.integers(len(quick))]
    return target


def one_call(target: Target, rng: np.random.Generator, folder: Path) -> tuple[str, str | None]:
    """Call a target with odd values; return what came of it, and a sentence if that must not be."""
    positional, named = arguments(target, rng, folder)
    call, owner = target.make(rng)
    watched = [thing for thing in (owner, *positional, *named.values()) if _can_change(thing)]
    before = [_state(thing) for thing in watched]
    given = f"{target.name}({_shown(positional, named)})"
    try:
        with limit(SECONDS):
            result = call(*positional, **named)
    except Timeout:
        return "hung", f"{given} took more than {SECONDS:.0f} s"
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        fault = _fault(error, target.foreign)
        if fault is None and any(not _same(a, _state(b)) for a, b in zip(before, watched, strict=True)):
            fault = "left something changed"
        return ("refused", None) if fault is None else ("raw error", f"{given}: {fault}")
    if target.name.split(".")[-1] in PREDICTIONS and not _is_sane(result, positional, named):
        return "not finite", f"{given} gave {result!r:.100}"
    return "succeeded", None


def arguments(target: Target, rng: np.random.Generator, folder: Path) -> tuple[list[Any], dict[str, Any]]:
    """Choose the arguments: most of them usual, one or more odd."""
    parameters = target.parameters
    odd_one = rng.integers(len(parameters)) if parameters else -1
    positional, named = [], {}
    for k, parameter in enumerate(parameters):
        name = parameter.name
        required = parameter.default is parameter.empty
        if k == odd_one or rng.random() < 0.08:
            value = odd(name, rng)
        elif required or (name in ("X", "y", "sample_weight") and rng.random() < 0.3):
            value = usual(name, rng, folder)
        elif name in CHEAP:
            value = CHEAP[name]
        else:
            continue
        if name == "path" and isinstance(value, int):
            value = str(value)  # a number would be an open file of this process
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(value)
        else:
            named[name] = value
    return positional, named


def _fault(error: BaseException, foreign: bool) -> str | None:
    """Say what is wrong with an error; None if it is a refusal of ours, or scikit-learn's in a method of its own."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    place = Path(last.filename)
    raised = (last.line or "").lstrip().startswith("raise")
    text = " ".join(str(error).split())
    where = f"{type(error).__name__}: {text[:160]} ({place.parent.name}/{place.name}:{last.lineno})"
    ours = "knotwork" in place.parts and raised
    validation = raised and any(f"sklearn/{part}" in place.as_posix() for part in ("utils", "base", "metrics"))
    if foreign and isinstance(error, Exception) and "knotwork" not in place.parts:
        return None
    if isinstance(error, InvalidParameterError):  # scikit-learn's sentence about a parameter of an estimator
        return None
    if len(text) < 12 or "\n\n" in str(error):
        return f"no sentence, {where}"
    if isinstance(error, (KnotworkError, NotFittedError)):
        return None
    if isinstance(error, (TypeError, ValueError)) and (ours or validation):
        return None
    if isinstance(error, AttributeError) and isinstance(error.__cause__, AttributeError) and validation:
        return None  # scikit-learn's word for a method that these parameters do not have; the cause is our sentence
    if isinstance(error, (AttributeError, OSError)) and (ours or isinstance(error, OSError)):
        return None
    return where


def _is_sane(result: Any, positional: list[Any], named: dict[str, Any]) -> bool:
    if not isinstance(result, np.ndarray) or result.dtype.kind != "f" or np.isfinite(result).all():
        return True
    return any(_is_far(value) for value in (*positional, *named.values()))


def _is_far(value: Any) -> bool:
    """Whether a value holds numbers so large, so small or so missing that inf may come of them."""
    with np.errstate(all="ignore"), contextlib.suppress(Exception):
        numbers = np.abs(np.asarray(value, dtype=np.float64))
        return bool(((numbers > FAR) | ((numbers < 1 / FAR) & (numbers > 0)) | np.isnan(numbers)).any())
    return False


def _can_change(thing: Any) -> bool:
    return isinstance(thing, nn.Module) or (hasattr(thing, "get_params") and not isinstance(thing, type))


def _state(thing: Any) -> Any:
    if isinstance(thing, torch.jit.ScriptModule):
        return None
    if isinstance(thing, nn.Module):
        flags = [(name, m.training, type(m)) for name, m in thing.named_modules()]
        values = {
            name: value.detach().clone()
            for name, value in [*thing.named_parameters(), *thing.named_buffers()]
            if not torch.nn.parameter.is_lazy(value)
        }
        return flags, values
    return dict(thing.__dict__)


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, tuple):
        (flags, values), (new_flags, new_values) = before, after
        return flags == new_flags and values.keys() == new_values.keys() and all(
            v.device.type == "meta" or torch.equal(v.nan_to_num(), new_values[name].nan_to_num())
            for name, v in values.items()
        )  # fmt: skip
    if before is None:
        return after is None
    return before.keys() == after.keys() and all(before[name] is after[name] for name in before)


def _shown(positional: list[Any], named: dict[str, Any]) -> str:
    parts = [_brief(value) for value in positional] + [f"{name}={_brief(value)}" for name, value in named.items()]
    return ", ".join(parts)[:400]


def _brief(value: Any) -> str:
    if isinstance(value, (np.ndarray, torch.Tensor)):
        first = f", {value.ravel()[0]!r:.20}" if isinstance(value, np.ndarray) and value.size else ""
        return f"{type(value).__name__}{tuple(value.shape)} {value.dtype}{first}"
    if hasattr(value, "columns") or hasattr(value, "column_names"):
        return f"{type(value).__module__.split('.')[0]} {type(value).__name__}"
    with contextlib.suppress(Exception):
        return " ".join(f"{value!r}".split())[:60]
    return type(value).__name__


@contextlib.contextmanager
def prepared(folder: Path) -> Iterator[None]:
    """Work in a folder of its own, without warnings and without output; leave no picture open."""
    _compile()
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    here = Path.cwd()
    with tempfile.TemporaryDirectory(dir=folder.parent) as elsewhere, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(elsewhere)
        silent = io.StringIO()
        try:
            with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent), np.errstate(all="ignore"):
                yield
        finally:
            os.chdir(here)
            plt.close("all")
