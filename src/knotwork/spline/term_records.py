"""Terms of a spline as plain JSON values, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from knotwork.errors import DataError
from knotwork.spline.model import Hinge, Linear, Min, Product, Term


def term_to_dict(term: Term) -> dict[str, Any]:
    """Return a term as plain JSON values."""
    match term:
        case Linear():
            return {"kind": "linear", "feature": term.feature}
        case Hinge():
            return {"kind": "hinge", "feature": term.feature, "knot": term.knot, "sign": term.sign}
        case Min():
            return {"kind": "min", "hinges": [term_to_dict(h) for h in term.hinges], "slopes": list(term.slopes)}
        case Product():
            return {"kind": "product", "hinges": [term_to_dict(h) for h in term.hinges]}


def term_from_dict(record: Mapping[str, Any]) -> Term:
    """Rebuild a term from :func:`term_to_dict`."""
    if record["kind"] == "linear":
        return Linear(int(record["feature"]))
    if record["kind"] == "hinge":
        return Hinge(int(record["feature"]), float(record["knot"]), 1 if record["sign"] > 0 else -1)
    if record["kind"] in ("min", "product"):
        hinges = tuple(term_from_dict(h) for h in record["hinges"])
        if not all(isinstance(h, Hinge) for h in hinges):
            raise DataError(f"a term of kind {record['kind']!r} combines hinges, got {record['hinges']}")
        if record["kind"] == "product":
            return Product(hinges)  # type: ignore[arg-type]
        return Min(hinges, tuple(float(slope) for slope in record["slopes"]))  # type: ignore[arg-type]
    raise DataError(
        f"a term is 'linear', 'hinge', 'min' or 'product', got {record['kind']!r}; "
        f"was this file written by a newer version?"
    )
