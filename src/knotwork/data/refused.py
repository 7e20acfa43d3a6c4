"""Columns that cannot be used as they are: all of them in one error, so that a file is corrected in one go."""

from __future__ import annotations

from collections.abc import Mapping

from knotwork.data.columns.series import listing
from knotwork.errors import ColumnsError

# Columns that get a sentence.
SHOWN = 10


def refuse_columns(reasons: Mapping[str, str]) -> None:
    r"""Raise an error if there are reasons why columns, by name, cannot be used: sentences, of which it has the first.

    >>> refuse_columns({})
    >>> try:
    ...     refuse_columns({f"x{k}": f"x{k} must be finite; correct it" for k in range(12)})
    ... except ColumnsError as error:
    ...     print(error.args[0], error.args[-1], sep="\n")
    x0 must be finite; correct it
    and 2 more columns cannot be used as they are: 'x10', 'x11'
    """
    if not reasons:
        return
    rest = list(reasons)[SHOWN:]
    columns = "column" if len(rest) == 1 else "columns"
    more = [f"and {len(rest)} more {columns} cannot be used as they are: {listing(rest)}"] if rest else []
    raise ColumnsError(*list(reasons.values())[:SHOWN], *more)
