"""Three classic regression tables, inside the package: nothing is downloaded.

Abalone (Nash et al., 1994) and Wine Quality (Cortez et al., 2009), from the UCI Machine Learning Repository, under
the Creative Commons Attribution 4.0 licence; LICENSE-DATA.md next to this file has the full attribution.

>>> X, y = load_abalone()
>>> X.shape, y.shape
((4177, 8), (4177,))
"""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any, Literal

from knotwork.errors import ParameterError
from knotwork.parameters import shown

if TYPE_CHECKING:
    import pandas as pd

_ABALONE_COLUMNS = (
    "Sex", "Length", "Diameter", "Height", "Whole weight", "Shucked weight", "Viscera weight", "Shell weight", "Rings",
)  # fmt: skip


def _read(name: str, **how: Any) -> pd.DataFrame:
    import pandas as pd

    with as_file(files(__name__) / name) as path:
        frame: pd.DataFrame = pd.read_csv(path, compression="gzip", **how)
        return frame


def load_abalone() -> tuple[pd.DataFrame, pd.Series[int]]:
    """4177 abalone: sex (M, F or I for infant) and seven measurements; y is the number of rings, age less 1.5 years.

    >>> X, y = load_abalone()
    >>> X.shape, int(y.sum())
    ((4177, 8), 41493)
    """
    frame = _read("abalone.csv.gz", header=None, names=list(_ABALONE_COLUMNS))
    return frame.drop(columns="Rings"), frame["Rings"]


def load_wine_quality(colour: Literal["white", "red"] = "white") -> tuple[pd.DataFrame, pd.Series[int]]:
    """Portuguese Vinho Verde, eleven measurements a wine; y is the median grade of at least three tasters.

    4898 white or 1599 red wines. Many rows are exact copies of an earlier one (937 of the white, 240 of the red):
    a random split puts copies of training rows into the test part and favours models that memorise rows. For
    an honest error split by distinct rows, ``X.drop_duplicates()`` first.

    >>> X, y = load_wine_quality("red")
    >>> X.shape, int(y.sum())
    ((1599, 11), 9012)
    """
    if not isinstance(colour, str) or colour not in ("white", "red"):
        raise ParameterError(f"colour must be 'white' or 'red', got {shown(colour)}")
    frame = _read(f"winequality-{colour}.csv.gz", sep=";")
    return frame.drop(columns="quality"), frame["quality"]
