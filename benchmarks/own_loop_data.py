"""The eight tables of ``own_loop.py``, in raw units of measurement: six real ones, two made up.

The real ones come from ``real_data.py``. Some of their columns are expressed in other units of measurement than the
files have, so that prices, counts, seconds, pascals and concentrations of 1e-6 are all among them:

residential   372 × 107, prices of flats and what they cost to build, as they are; test rows lie far outside
compactiv     8192 × 21, counts of system calls per second, as they are
airfoil       1503 × 5, hertz, metres, degrees, as they are
ccpp          9568 × 4, power in watts, pressure in pascals
concrete      1030 × 8, strength in pascals, age in seconds
wine_white    4898 × 11, concentrations in kg/cm³, of about 1e-6 and 1e-9
sales         5000 × 8, made up: prices of houses in dollars
friedman      5000 × 10, made up: Friedman's first function, columns in units of measurement from 1e-6 to 1e6
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

import real_data

TABLES = ("residential", "compactiv", "airfoil", "ccpp", "concrete", "wine_white", "sales", "friedman")
# What columns and responses are multiplied by.
G_PER_DM3, MG_PER_DM3 = 1e-6, 1e-9  # in kg/cm³
UNITS: dict[str, tuple[dict[int, float], float]] = {
    "ccpp": ({2: 1e2}, 1e6),
    "concrete": ({7: 86_400.0}, 1e6),
    "wine_white": (
        {0: G_PER_DM3, 1: G_PER_DM3, 2: G_PER_DM3, 3: G_PER_DM3, 4: G_PER_DM3, 5: MG_PER_DM3, 6: MG_PER_DM3,
         9: G_PER_DM3}, 1.0,
    ),
}  # fmt: skip


@lru_cache(maxsize=1)
def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return X (N, d) and y (N,) of one of the tables, or of any other of ``real_data``."""
    if name == "sales":
        return _sales()
    if name == "friedman":
        return _friedman()
    X, y = real_data.load(name)
    columns, response = UNITS.get(name, ({}, 1.0))
    factors = np.ones(X.shape[1])
    factors[list(columns)] = list(columns.values())
    return X * factors, y[:, 0] * response


def _sales(rows: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """Prices of houses in dollars: area in square feet, lot, year, rooms, baths, distance in metres, place, income."""
    rng = np.random.default_rng(16)
    area = np.exp(rng.normal(7.5, 0.35, rows))
    lot = np.exp(rng.normal(9.0, 0.6, rows))
    year = np.round(rng.uniform(1900, 2024, rows))
    rooms = np.clip(np.round(area / 450 + rng.normal(0, 1, rows)), 1, 12)
    baths = np.clip(np.round(rooms / 2.5 + rng.normal(0, 0.5, rows)), 1, 6)
    distance = rng.gamma(2.0, 6000.0, rows)
    north, income = rng.uniform(47.2, 47.8, rows), np.exp(rng.normal(11.2, 0.4, rows))
    per_foot = 120 + 250 * np.exp(-distance / 8000) * (1 + np.tanh((north - 47.5) * 10) / 2) + income / 1500
    age = 2024 - year
    wear = 1 - 0.3 * np.minimum(age, 60) / 60 + 0.2 * (age > 90)
    price = area * per_foot * wear + 6 * np.minimum(lot, 20_000) + 15_000 * baths
    return np.column_stack([area, lot, year, rooms, baths, distance, north, income]), price * np.exp(
        rng.normal(0, 0.12, rows)
    )


def _friedman(rows: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(17)
    x = rng.uniform(size=(rows, 10))
    y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    units = 10.0 ** np.array([-6, 6, 3, -3, 0, 5, -5, 2, -2, 1])
    return x * units + 2 * units, (y + rng.normal(size=rows)) * 1e4 + 3e5
