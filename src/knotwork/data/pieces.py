"""A column as it is read: a piece per block, joined at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from knotwork.data.dialect import is_number

if TYPE_CHECKING:
    import pandas as pd

Values: TypeAlias = "NDArray[np.float64] | pd.Categorical[Any]"
Kind = Literal["number", "boolean", "text", "date", "skipped"]

# Different texts of a column beyond which they are no categories; what was read of it is let go.
MAX_TEXTS = 1_000_000
# All of them together.
MAX_CHARACTERS = 1 << 26


@dataclass
class Pieces:
    """What was read of a column so far.

    kind : None until a block has a value
    distinct : the different texts, as long as they are kept
    let_go : there are too many of them, or they are times or durations: no use in keeping them
    """

    kind: Kind | None = None
    numbers: list[NDArray[np.float64]] = field(default_factory=list)
    texts: list[pd.Categorical[Any]] = field(default_factory=list)
    distinct: set[str] = field(default_factory=set)
    let_go: bool = False

    def add(self, values: pd.Series[Any]) -> bool:
        """Add a block; return whether its kind agrees with that of the blocks before."""
        import pandas as pd

        if values.isna().all():  # agrees with any kind
            if self.kind != "text":
                self.numbers.append(np.full(len(values), np.nan))
            if self.kind in (None, "text") and not self.let_go:
                self.texts.append(pd.Categorical([None] * len(values), categories=pd.Index([], dtype="str")))
            return True
        numbers = as_numbers(values)
        kind: Kind = "text" if numbers is None else "boolean" if _is_boolean(values) else "number"
        if self.kind not in (None, kind):
            return False
        self.kind = kind
        if numbers is not None:
            self.numbers.append(numbers)
            self.texts.clear()
        elif not self.let_go:
            texts: pd.Categorical[Any] = pd.Categorical(values.astype("str").where(values.notna()))
            self.numbers.clear()
            self.texts.append(texts)
            self.distinct.update(texts.categories)
            if len(self.distinct) > MAX_TEXTS or sum(map(len, self.distinct)) > MAX_CHARACTERS:
                self.let_go = True
                self.texts.clear()
        return True

    def joined(self) -> Values | None:
        """Return the whole column, None if it was not kept."""
        from pandas.api.types import union_categoricals

        if self.let_go:
            return None
        if self.kind in (None, "number", "boolean") or not self.texts:
            return np.concatenate(self.numbers)
        return union_categoricals(self.texts)


def without(values: pd.Series[Any], missing: Sequence[str]) -> pd.Series[Any]:
    """Return a column with nothing in place of the words, or of the numbers that they are, that stand for no value."""
    if not missing:
        return values
    numbers = [float(word) for word in missing if is_number(word, ".")]
    return values.mask(values.isin([*missing, *numbers]))


def _is_boolean(values: pd.Series[Any]) -> bool:
    return values.dtype == bool or (values.dtype == object and all(isinstance(v, bool) for v in values.dropna()))


def as_numbers(values: pd.Series[Any]) -> NDArray[np.float64] | None:
    """Return numbers and booleans as float64, None for text."""
    import pandas as pd

    if isinstance(values.dtype, (pd.CategoricalDtype, pd.StringDtype)):
        return None
    if values.dtype != object:
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    if not all(v is None or isinstance(v, (bool, int, float)) for v in values):
        return None
    return np.array([np.nan if v is None else _as_float(v) for v in values])


def _as_float(value: float) -> float:
    """Return a number as a float; integers beyond its range are infinite, as 1e400 is."""
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf
