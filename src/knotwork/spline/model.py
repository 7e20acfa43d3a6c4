"""The fitted spline: a frozen record of terms and coefficients that evaluates, prints and serialises itself.

f(x) = intercept + Σ_m coef[m] · term_m(x), each term a feature, a hinge of one, or hinges of several combined. Nothing
here needs more than numpy, so a spline can be stored, sent and evaluated without the machinery that fitted it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from knotwork.arrays import CHUNK, Floats, FrozenArrays, read_numbers
from knotwork.data.columns.part import Part
from knotwork.data.limits import Limits
from knotwork.errors import DataError
from knotwork.parameters import is_number, is_sequence, shown
from knotwork.spline.formula import Formula
from knotwork.spline.source import c_source, excel_formula, python_source


@dataclass(frozen=True, slots=True)
class Linear:
    """The feature itself: x ↦ x[feature].

    >>> Linear(feature=1)(np.array([[0.5, 3.0], [1.0, 4.0]]))
    array([3., 4.])
    """

    feature: int

    def __post_init__(self) -> None:
        _require_feature(self.feature)

    @property
    def features(self) -> tuple[int, ...]:
        """The features that the term looks at."""
        return (self.feature,)

    def __call__(self, X: Floats) -> Floats:
        """Evaluate on rows: (N, d) → (N,)."""
        return _column(X, self.feature)

    def describe(self, names: Sequence[str]) -> str:
        """Return the term as people write it."""
        return _name(names, self.feature)


@dataclass(frozen=True, slots=True)
class Hinge:
    """A hinge: max(0, x[feature] − knot) for sign +1, max(0, knot − x[feature]) for sign −1.

    >>> Hinge(feature=0, knot=2.0, sign=-1)(np.array([[0.5], [3.0]]))
    array([1.5, 0. ])
    """

    feature: int
    knot: float
    sign: int

    def __post_init__(self) -> None:
        # What a fit makes passes at once: it makes many.
        plain = type(self.feature) is int and type(self.sign) is int and type(self.knot) is float
        if plain and self.feature >= 0 and self.sign in (1, -1) and isfinite(self.knot):
            return
        _require_feature(self.feature)
        if not is_number(self.knot):
            raise DataError(f"the knot of a hinge must be a finite number, got {shown(self.knot)}")
        if not isinstance(self.sign, Integral) or self.sign not in (1, -1):
            raise DataError(f"the sign of a hinge must be 1 or -1, got {shown(self.sign)}")

    @property
    def features(self) -> tuple[int, ...]:
        """The features that the term looks at."""
        return (self.feature,)

    def __call__(self, X: Floats) -> Floats:
        """Evaluate on rows: (N, d) → (N,)."""
        x = _column(X, self.feature)
        return np.maximum(x - self.knot if self.sign > 0 else self.knot - x, 0.0)

    def describe(self, names: Sequence[str]) -> str:
        """Return the term as people write it, h(u) being max(0, u)."""
        name, knot = _name(names, self.feature), f"{self.knot:.6g}"
        if self.sign < 0:
            return f"h({knot} - {name})"
        return f"h({name} - {knot})" if self.knot >= 0 else f"h({name} + {-self.knot:.6g})"


@dataclass(frozen=True, slots=True)
class Min:
    """An interaction that is still piecewise linear: the minimum of hinges of different features, each times a slope.

    Slopes make features in different units of measurement comparable. A fitted term's first slope is 1, and the others
    are ratios of stds: slope k times the std of its feature is the std of the first feature.

    >>> both = Min((Hinge(0, 1.0, 1), Hinge(1, 0.0, 1)), slopes=(1.0, 2.0))
    >>> both(np.array([[2.0, 5.0], [9.0, 0.5], [0.0, 3.0]]))
    array([1., 1., 0.])
    >>> both.describe(["a", "b"])
    'min(h(a - 1), 2·h(b - 0))'
    """

    hinges: tuple[Hinge, ...]
    slopes: tuple[float, ...]

    def __post_init__(self) -> None:
        _require_distinct(self.hinges, "Min")
        slopes = self.slopes if isinstance(self.slopes, (tuple, list)) else ()
        if len(slopes) != len(self.hinges) or not all(isinstance(s, Real) and 0 < s < np.inf for s in slopes):
            raise DataError(f"Min takes one positive slope per hinge ({len(self.hinges)}), got {shown(self.slopes)}")

    @property
    def features(self) -> tuple[int, ...]:
        """The features that the term looks at."""
        return tuple(hinge.feature for hinge in self.hinges)

    def __call__(self, X: Floats) -> Floats:
        """Evaluate on rows: (N, d) → (N,)."""
        out = self.hinges[0](X) * self.slopes[0]
        for hinge, slope in zip(self.hinges[1:], self.slopes[1:], strict=True):
            np.minimum(out, hinge(X) * slope, out=out)
        return out

    def describe(self, names: Sequence[str]) -> str:
        """Return the term as people write it."""
        parts = [
            hinge.describe(names) if slope == 1 else f"{slope:.4g}·{hinge.describe(names)}"
            for hinge, slope in zip(self.hinges, self.slopes, strict=True)
        ]
        return f"min({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class Product:
    """The interaction of classical MARS: a product of hinges of different features. Not piecewise linear.

    >>> Product((Hinge(0, 1.0, 1), Hinge(1, 0.0, 1)))(np.array([[2.0, 5.0], [0.0, 3.0]]))
    array([5., 0.])
    """

    hinges: tuple[Hinge, ...]

    def __post_init__(self) -> None:
        _require_distinct(self.hinges, "Product")

    @property
    def features(self) -> tuple[int, ...]:
        """The features that the term looks at."""
        return tuple(hinge.feature for hinge in self.hinges)

    def __call__(self, X: Floats) -> Floats:
        """Evaluate on rows: (N, d) → (N,)."""
        out = self.hinges[0](X)
        for hinge in self.hinges[1:]:
            out *= hinge(X)
        return out

    def describe(self, names: Sequence[str]) -> str:
        """Return the term as people write it."""
        return "·".join(hinge.describe(names) for hinge in self.hinges)


def _column(X: Any, feature: int) -> Floats:
    """Return a column of rows (N, d)."""
    rows = read_numbers(X, "X")
    if rows.ndim != 2 or rows.shape[1] <= feature:
        raise DataError(f"a term of feature {feature} takes rows with at least {feature + 1} columns, got {rows.shape}")
    return rows[:, feature]


def _name(names: Any, feature: int) -> str:
    if not is_sequence(names) or not feature < len(names):
        raise DataError(f"names must be those of the features, at least {feature + 1}, got {shown(names)}")
    return str(names[feature])


def _require_feature(feature: Any) -> None:
    if not isinstance(feature, Integral) or feature < 0:
        raise DataError(f"a term's feature must be the number of a column, counted from 0, got {shown(feature)}")


def _require_distinct(hinges: tuple[Hinge, ...], kind: str) -> None:
    if not isinstance(hinges, (tuple, list)) or not all(isinstance(hinge, Hinge) for hinge in hinges):
        raise DataError(f"{kind} takes a tuple of Hinge terms, got {shown(hinges)}")
    features = [hinge.feature for hinge in hinges]
    if len(features) < 2 or len(set(features)) < len(features):
        raise DataError(f"{kind} combines hinges of two or more different features, got features {features}")


Term = Linear | Hinge | Min | Product


def knots_by_feature(terms: Sequence[Term]) -> dict[int, list[float]]:
    """Knots of all hinges, those inside interactions too, by feature."""
    knots: dict[int, list[float]] = {}
    for term in terms:
        for hinge in hinges_of(term):
            knots.setdefault(hinge.feature, []).append(hinge.knot)
    return knots


def hinges_of(term: Term) -> tuple[Hinge, ...]:
    """Return the hinges of a term; none for a linear one."""
    if isinstance(term, Linear):
        return ()
    return (term,) if isinstance(term, Hinge) else term.hinges


def _range_of(term: Term, limits: Limits | None) -> tuple[float, float]:
    """Return minimum and maximum of a line or a hinge of a feature within limits; none for other terms."""
    if isinstance(term, (Min, Product)):
        return -np.inf, np.inf
    ends = (-np.inf, np.inf)
    if limits is not None:
        ends = float(limits.lower[term.feature]), float(limits.upper[term.feature])
    if isinstance(term, Linear):
        return ends
    low, high = sorted(max(0.0, term.sign * (end - term.knot)) for end in ends)
    return low, high


def _frozen(values: ArrayLike, ndim: int, name: str) -> Floats:
    array = np.array(read_numbers(values, name), ndmin=ndim)
    if array.ndim != ndim:
        raise DataError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got shape {array.shape}")
    array.setflags(write=False)
    return array


@dataclass(frozen=True, eq=False)
class Spline(FrozenArrays):
    """A continuous function of d features with p outputs, piecewise linear unless it has products.

    Attributes
    ----------
    terms : tuple of terms, without the intercept
    intercept : (outputs,)
    coef : (terms, outputs)
    feature_names : d names, in the order of the columns the spline takes
    limits : minima and maxima that features are clipped to, so that the spline is flat beyond them; None for none
    output_limits : minima and maxima that outputs are clipped to, (outputs,) each; None for none
    parts : what people read in the features, in order: categories, dates, numbers with gaps; None for plain numbers.
        They only change how the spline is written.

    Examples
    --------
    >>> f = Spline((Hinge(0, 1.0, 1),), intercept=[2.0], coef=[[3.0]], feature_names=("x",))
    >>> f([[0.0], [2.0]])
    array([2., 5.])
    >>> print(f)
    2 + 3·h(x - 1)
    >>> f.basis([[0.0], [2.0]]).tolist(), f.rows([[2.0]]).tolist(), f.term_texts()
    ([[0.0], [1.0]], [[2.0]], ['h(x - 1)'])
    >>> Spline.from_dict(f.to_dict()) == f  # JSON and back
    True
    >>> f.to_c().splitlines()[0]
    '/* x: 1 features */'
    >>> flat = Spline(f.terms, f.intercept, f.coef, f.feature_names, Limits([0.0], [2.0]))
    >>> flat([[2.0], [200.0]])
    array([5., 5.])
    >>> print(flat)
    2 + 3·h(x - 1)
    values beyond a feature's limits count as the limits
    """

    terms: tuple[Term, ...]
    intercept: Floats
    coef: Floats
    feature_names: tuple[str, ...]
    limits: Limits | None = None
    parts: tuple[Part, ...] | None = None
    output_limits: Limits | None = None

    def __post_init__(self) -> None:
        for name in ("terms", "feature_names"):
            values = getattr(self, name)
            if not is_sequence(values):
                raise DataError(f"{name} must be a tuple, got {shown(values)}")
            object.__setattr__(self, name, tuple(values))
        if not all(isinstance(term, Term) for term in self.terms):
            raise DataError(f"terms must be Linear, Hinge, Min or Product, got {shown(self.terms)}")
        if not all(isinstance(name, str) for name in self.feature_names):
            raise DataError(f"feature_names must be texts, got {shown(self.feature_names)}")
        object.__setattr__(self, "intercept", _frozen(self.intercept, 1, "intercept"))
        coef = _frozen(self.coef, 2, "coef") if len(self.terms) else np.zeros((0, self.intercept.size))
        object.__setattr__(self, "coef", coef)
        if self.coef.shape != (len(self.terms), self.intercept.size):
            raise DataError(
                f"coef must have one row per term and one column per output, "
                f"here {(len(self.terms), self.intercept.size)}, got {self.coef.shape}"
            )
        features = [f for t in self.terms for f in t.features]
        if features and not 0 <= min(features) <= max(features) < len(self.feature_names):
            raise DataError(
                f"terms must use features 0 to {len(self.feature_names) - 1}, got {min(features)} to {max(features)}"
            )
        if self.limits is not None and not isinstance(self.limits, Limits):
            raise DataError(f"limits must be Limits or None, got {shown(self.limits)}")
        if self.limits is not None and len(self.limits) != len(self.feature_names):
            raise DataError(
                f"limits must be those of the {len(self.feature_names)} features, got {len(self.limits)} of them"
            )
        held = self.output_limits
        if held is not None and not (isinstance(held, Limits) and len(held) == self.intercept.size):
            raise DataError(f"output_limits must be Limits of the {self.intercept.size} outputs, got {shown(held)}")
        if self.parts is not None:
            if not is_sequence(self.parts) or not all(isinstance(part, Part) for part in self.parts):
                raise DataError(f"parts must be a tuple of Part, or None, got {shown(self.parts)}")
            object.__setattr__(self, "parts", tuple(self.parts))
            if sum(part.width for part in self.parts) != len(self.feature_names):
                raise DataError(
                    f"parts must be those of the {len(self.feature_names)} features, got "
                    f"{sum(part.width for part in self.parts)} of them"
                )

    def __call__(self, X: ArrayLike) -> Floats:
        """Evaluate: (N, d) → (N,) for one output, (N, outputs) for several."""
        X = self.rows(X)
        out = np.empty((X.shape[0], self.intercept.size))
        for start in range(0, X.shape[0], CHUNK):
            rows = slice(start, start + CHUNK)
            # Rows so far out that the sum is beyond the range of floats get inf or NaN, as in any arithmetic.
            with np.errstate(over="ignore", invalid="ignore"):
                np.matmul(self._basis(X[rows]).T, self.coef, out=out[rows])
                out[rows] += self.intercept
        if self.output_limits is not None:
            np.clip(out, self.output_limits.lower, self.output_limits.upper, out=out)
        return out[:, 0] if out.shape[1] == 1 else out

    def basis(self, X: ArrayLike) -> Floats:
        """Return the terms as columns: (N, d) → (N, terms), the intercept's column of ones left out."""
        X = self.rows(X)
        out = np.empty((len(self.terms), X.shape[0])).T  # column after column, as they are evaluated
        for start in range(0, X.shape[0], CHUNK):
            rows = slice(start, start + CHUNK)
            out[rows] = self._basis(X[rows]).T
        return out

    def _basis(self, X: Floats) -> Floats:
        """Return the terms as rows: (N, d) → (terms, N)."""
        values = np.empty((len(self.terms), X.shape[0]))
        for row, term, (low, high) in zip(values, self.terms, self._ranges, strict=True):
            if not isinstance(term, Hinge):
                row[...] = term(X if isinstance(term, Linear) or self.limits is None else self.limits.hold(X))
            elif term.sign > 0:  # in place, which takes half the time
                np.subtract(X[:, term.feature], term.knot, out=row)
            else:
                np.subtract(term.knot, X[:, term.feature], out=row)
            # A hinge moves one way, also in floats: its values are held where x would be.
            if high < np.inf:
                row.clip(low, high, out=row)
            elif low > -np.inf:
                np.maximum(row, low, out=row)
        return values

    @cached_property
    def _ranges(self) -> tuple[tuple[float, float], ...]:
        """What the values of lines and hinges are held at; other terms are of features that are held."""
        return tuple(_range_of(term, self.limits) for term in self.terms)

    def rows(self, X: ArrayLike) -> Floats:
        """Return rows as an array of floats (N, d), or refuse them."""
        array = read_numbers(X, "X")
        if array.ndim != 2 or array.shape[1] != len(self.feature_names):
            raise DataError(
                f"a spline of {len(self.feature_names)} features takes rows of shape "
                f"(N, {len(self.feature_names)}), got {array.shape}"
            )
        return array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spline) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        numbers = self.intercept.tobytes(), self.coef.tobytes(), self.limits, self.output_limits
        return hash((self.terms, self.feature_names, numbers))

    def __str__(self) -> str:
        return self._formula.text()

    def _repr_latex_(self) -> str:
        return self._formula.latex()

    def _repr_html_(self) -> str:
        return self._formula.html()

    @cached_property
    def _formula(self) -> Formula:
        return Formula(self)

    def term_texts(self) -> list[str]:
        """Return each term as people write it, 0/1 features in words: "h(length - 0.4) where Sex is I"."""
        return self._formula.terms()

    def simplify(self, tolerance: float, X: ArrayLike | None = None) -> Spline:
        """Return a spline with fewer terms that differs from this one by no more than a tolerance.

        Parameters
        ----------
        tolerance : the root mean square of the difference, as a share of this spline's std, both over the rows of X;
            with several outputs it holds for each
        X : (N, d) rows to measure on, the training rows say. None takes 4096 points between the limits of the features,
            spread evenly and the same ones every time, so that the loss is that of all values, common or rare.

        Examples
        --------
        >>> f = Spline((Linear(0), Hinge(0, 0.5, 1)), [0.0], [[1.0], [0.01]], ("x",), Limits([0.0], [1.0]))
        >>> print(f.simplify(0.01))
        -0.0008 + 1.005·x
        values beyond a feature's limits count as the limits
        """
        from knotwork.spline.simplify import simplify

        return simplify(self, tolerance, X)

    def to_python(self, name: str = "predict") -> str:
        """Return the source of a Python function of one row, without imports.

        It takes the encoded features, ``x[0]``, ``x[1]``, … in the order of ``feature_names``: for a model of a table
        with categories or gaps ``model.encoder_.encode(X)`` makes them. Several outputs come as a list.

        Examples
        --------
        >>> f = Spline((Hinge(0, 1.0, 1),), intercept=[2.0], coef=[[3.0]], feature_names=("x",))
        >>> space = {}
        >>> exec(f.to_python(), space)
        >>> space["predict"]([2.0])
        5.0
        """
        return python_source(self, name)

    def to_c(self, name: str = "predict") -> str:
        """Return the source of a C function of one row, ``double predict(const double *x)``, without includes.

        It takes the encoded features, as :meth:`to_python` does. With several outputs it is
        ``void predict(const double *x, double *y)``.
        """
        return c_source(self, name)

    def to_excel_formula(
        self, cells: Sequence[str] | Mapping[str, str] | None = None, output: int | None = None
    ) -> str:
        """Return a formula for a spreadsheet: Excel, LibreOffice, Google Sheets.

        Parameters
        ----------
        cells : where the encoded features are, in their order or by name; None is A2, B2, … as under a header
        output : which output, if there are several, counted from 0

        Examples
        --------
        >>> f = Spline((Hinge(0, 1.5, 1),), intercept=[2.0], coef=[[3.0]], feature_names=("x",))
        >>> f.to_excel_formula(), f.to_excel_formula({"x": "$B7"})
        ('=2+3*MAX(0,A2-1.5)', '=2+3*MAX(0,$B7-1.5)')
        """
        return excel_formula(self, cells, output)

    def to_dict(self) -> dict[str, Any]:
        """Return the spline as plain JSON values; floats survive the trip bit for bit."""
        from knotwork.spline.term_records import term_to_dict

        return {
            "terms": [term_to_dict(t) for t in self.terms],
            "intercept": self.intercept.tolist(),
            "coef": self.coef.tolist(),
            "feature_names": list(self.feature_names),
            "limits": None if self.limits is None else self.limits.sides(),
            "parts": None if self.parts is None else [asdict(part) for part in self.parts],
            "output_limits": None if self.output_limits is None else self.output_limits.sides(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Spline:
        """Rebuild a spline from :meth:`to_dict`."""
        from knotwork.spline.term_records import term_from_dict

        if not isinstance(record, Mapping) or not {"terms", "intercept", "coef", "feature_names"} <= set(record):
            raise DataError(f"a spline is rebuilt from the record that to_dict returns, got {shown(record)}")
        return cls(
            terms=tuple(term_from_dict(t) for t in record["terms"]),
            intercept=record["intercept"],
            coef=record["coef"],
            feature_names=tuple(record["feature_names"]),
            # Earlier versions had none of these.
            limits=None if record.get("limits") is None else Limits(*record["limits"]),
            parts=None if record.get("parts") is None else tuple(Part.from_dict(part) for part in record["parts"]),
            output_limits=None if record.get("output_limits") is None else Limits(*record["output_limits"]),
        )
