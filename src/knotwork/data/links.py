"""Links: functions of a response on whose scale a model is piecewise linear, each with its inverse."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from knotwork.arrays import Floats

_Function = Callable[[Floats], Floats]
# The model predicts link(y); the inverse gives y.
LINKS: dict[str, tuple[_Function, _Function]] = {
    "identity": (np.positive, np.positive),
    "log": (np.log, np.exp),
    "exp": (np.exp, np.log),
    "log1p": (np.log1p, np.expm1),
    "expm1": (np.expm1, np.log1p),
    "sqrt": (np.sqrt, np.square),
    "square": (np.square, np.sqrt),
}


def link_named(link: str, name: str) -> str:
    """Name a response on the scale of a link.

    >>> link_named("log", "price"), link_named("identity", "price")
    ('log(price)', 'price')
    """
    return name if link == "identity" else f"{link}({name})"


def inverse_link(link: str, values: Floats) -> Floats:
    """Undo a link; exponentials end at the range of floats, so that they are positive and finite for any number.

    >>> inverse_link("log", np.array([0.0, -1e9, 1e9]))
    array([1.00000000e+000, 2.22507386e-308, 1.79769313e+308])
    """
    if link != "log":
        return LINKS[link][1](values)
    lowest, highest = exp_range(np.dtype(values.dtype))
    found = np.exp(np.clip(values, lowest, highest))
    info = np.finfo(found.dtype)
    return np.clip(found, info.tiny, info.max)


def exp_range(dtype: np.dtype[np.floating]) -> tuple[float, float]:
    """Return the range in which exponentials are positive, normal and finite."""
    info = np.finfo(dtype)
    lowest = np.nextafter(np.log(info.tiny), dtype.type(0), dtype=dtype)
    highest = np.nextafter(np.log(info.max), dtype.type(0), dtype=dtype)
    return float(lowest), float(highest)
