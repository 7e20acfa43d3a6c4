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
