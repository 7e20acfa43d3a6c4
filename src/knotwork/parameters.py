"""Parameters of functions, checked before anything else happens: what each must be, in words and as a test.

Estimators declare theirs to scikit-learn; functions do it here, one rule a parameter.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite
from numbers import Integral
from typing import Any, ParamSpec, TypeVar

import numpy as np

from knotwork.errors import ParameterError, one_line

LARGEST = float(np.finfo(np.float64).max)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Rule:
    """What a parameter must be."""

    words: str
    fits: Callable[[Any], bool]

    @property
    def optional(self) -> Rule:
        """The same, or None."""
        return Rule(f"{self.words} or None", lambda value: value is None or self.fits(value))


def checked(**rules: Rule) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function refuse parameters that break their rules.

    >>> @checked(times=whole(1))
    ... def repeat(text: str, times: int = 2) -> str:
    ...     return text * times
    >>> repeat("ab")
    'abab'
    >>> repeat("ab", times=0.5)
    Traceback (most recent call last):
    ...
    knotwork.errors.ParameterError: times must be a whole number of at least 1, got 0.5
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        names = list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name, value in (*zip(names, args, strict=False), *kwargs.items()):
                if name in rules and not rules[name].fits(value):
                    raise ParameterError(f"{name} must be {rules[name].words}, got {shown(value)}")
            return function(*args, **kwargs)

        return call

    return wrap


def shown(value: object, room: int = 80) -> str:
    """Return a value for a message: on one line, and cut where it is long."""
    if hasattr(value, "shape"):  # a table of numbers says nothing in a message
        return f"{type(value).__name__} of shape {one_line(value.shape, room)}"
    try:
        return one_line(repr(value), room)
    except Exception:  # somebody's own __repr__, or an integer with too many digits to write
        return f"a {type(value).__name__}"


def _is_whole(value: Any) -> bool:
    # numpy counts lengths of time among its integers.
    return isinstance(value, Integral) and not isinstance(value, (bool, np.timedelta64))


def is_number(value: Any) -> bool:
    """Whether a value is a finite number within the range of floats."""
    if isinstance(value, (float, np.floating)):
        return isfinite(float(value))
    return _is_whole(value) and -LARGEST <= int(value) <= LARGEST


def is_same(value: Any, expected: Any) -> bool:
    """Whether a value equals a plain one; arrays and tables, whose comparison is no truth value, do not."""
    return value is expected or (
        np.ndim(expected) == 0 and isinstance(value, (str, Integral, float)) and value == expected
    )


def is_sequence(value: Any) -> bool:
    """Whether a value is a list, a tuple or an array; no text, and no stream that can be read once only."""
    return isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def whole(minimum: int | None = None, maximum: int | None = None) -> Rule:
    """Allow whole numbers from a minimum, up to a maximum."""
    words = "a whole number" if minimum is None else f"a whole number of at least {minimum}"
    if maximum is not None:
        words += f" and at most {maximum}"

    def fits(value: Any) -> bool:
        return _is_whole(value) and (minimum is None or value >= minimum) and (maximum is None or value <= maximum)

    return Rule(words, fits)


def number(minimum: float = -inf, below: float = inf) -> Rule:
    """Allow finite numbers from a minimum, less than a limit."""
    words = "a finite number"
    if minimum > -inf:
        words = f"a finite number of at least {minimum:g}"
    if below < inf:
        words += f" and less than {below:g}"
    return Rule(words, lambda value: is_number(value) and minimum <= float(value) < below)


def positive() -> Rule:
    """Allow finite numbers above zero."""
    return Rule("a positive, finite number", lambda value: is_number(value) and value > 0)


def text() -> Rule:
    """Allow text; which ones, the function says itself."""
    return Rule("text", lambda value: isinstance(value, str))


def switch() -> Rule:
    """Allow True and False."""
    return Rule("True or False", lambda value: isinstance(value, (bool, np.bool_)))


def seed() -> Rule:
    """Allow what seeds a generator."""

    def fits(value: Any) -> bool:
        return value is None or isinstance(value, np.random.Generator) or (_is_whole(value) and 0 <= value < 2**128)

    return Rule("a whole number from 0, a numpy Generator or None", fits)


def place() -> Rule:
    """Allow paths that a file system can have."""

    def fits(value: Any) -> bool:
        try:
            path = os.fspath(value)
            return isinstance(path, str) and b"\0" not in os.fsencode(path) and path != ""
        except (TypeError, ValueError):  # no path, or text that no name of a file can be: half a surrogate pair
            return False

    return Rule("the path of a file or folder", fits)
