"""``explain``: everything that a fitted model says about its data, computed when it is asked for."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.arrays import Floats
from knotwork.errors import KnotworkError
from knotwork.explanation import contributions as parts
from knotwork.explanation import drift as changes
from knotwork.explanation import effects as curves_of
from knotwork.explanation import importances as measures
from knotwork.explanation import knots as bends
from knotwork.explanation import quality as errors
from knotwork.explanation import sparsity as sizes
from knotwork.explanation.basis import Basis, find_basis
from knotwork.explanation.diagnostics import INTERVAL
from knotwork.explanation.subject import Rows, Subject, read_model, read_rows
from knotwork.parameters import Rule, checked, number, place, seed, shown, switch, text, whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from rich.console import Console, ConsoleOptions, RenderResult


@checked(curves=text(), random_state=seed(), held_out=switch().optional)
def explain(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    curves: str = "partial",
    random_start: Any = None,
    random_state: int | None = 0,
    held_out: bool | None = None,
) -> Explanation:
    """Explain a model: on its own, on rows X, or on rows X with their responses y.

    Parameters
    ----------
    model : fitted estimator of knotwork, a Pipeline or TransformedTargetRegressor around one, or anything else that
        ``to_network`` takes, or Sequential of Linear and activation. A model of log(y) is explained as such: curves are
        on the scale of log(y), and so are errors, unless the model was fitted by a loss of its own: then they are the
        deviances of that loss, in y. Contributions have predictions on both scales
    X : table or array like the one that the model was fitted to; what needs rows says so when it is asked for
    y : (N,) or (N, p) responses, or classes; for errors and permutation importance
    curves : "partial" (mean over the rows) or "accumulated" (local effects, for correlated columns)
    random_start : a fitted model to compare with, or True to fit the same estimator from a random start on X and y
    random_state : seed of the permutations
    held_out : whether the rows were kept out of the fit, True or False. None finds out: a fit remembers its rows. All
        errors say whether they are on training rows

    Examples
    --------
    >>> import knotwork as kw
    >>> X, y = kw.datasets.load_abalone()
    >>> explanation = kw.explain(kw.MarsRegressor().fit(X, y), X, y)
    >>> explanation.importances.index[0]
    'Whole weight'
    >>> explanation.basis.name
    'training rows'
    >>> row = explanation.contributions(X.head(1))
    >>> bool(abs(row.base + row.values.sum() - row.prediction) < 1e-9)
    True
    """
    subject = read_model(model)
    rows = read_rows(subject, X, y)
    basis = find_basis(model, subject, rows, X, y, held_out)
    if random_start is True:
        random_start = _fit_random_start(model, X, y, basis)
    other = other_basis = None
    if random_start is not None and random_start is not False:
        other = read_model(random_start)
        other_basis = find_basis(random_start, other, rows, X, y, None)
    return Explanation(
        model, subject, rows, curves=curves, random_start=other, random_state=random_state, basis=basis, X=X,
        random_basis=other_basis,
    )  # fmt: skip


def _fit_random_start(model: Any, X: Any, y: Any, basis: Basis | None) -> Any:
    from sklearn.base import clone

    from knotwork.errors import DataError

    if X is None or y is None or "start" not in getattr(model, "get_params", dict)():
        raise DataError("random_start=True trains a SplineNet again; pass one, with the X and y to train it on")
    if basis is not None and basis.kind == "held-out":
        raise DataError(
            "random_start=True trains on X and y, which must then be training rows, got rows that the model was not "
            "fitted to; fit clone(model).set_params(start='random') to the training rows and pass that as random_start"
        )
    return clone(model).set_params(start="random").fit(X, y)


AXES = Rule("matplotlib axes or None", lambda value: value is None or hasattr(value, "get_xlim"))


def _is_names(value: Any) -> bool:
    return value is None or (isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value))


class Explanation:
    """What :func:`explain` returns. Every part is computed once, when it is first asked for.

    Examples
    --------
    >>> import knotwork as kw
    >>> X, y = kw.datasets.load_abalone()
    >>> explanation = kw.explain(kw.MarsRegressor().fit(X, y), X, y)
    >>> type(explanation).__name__
    'Explanation'
    """

    def __init__(
        self,
        model: Any,
        subject: Subject,
        rows: Rows | None,
        *,
        curves: str = "partial",
        random_start: Subject | None = None,
        random_state: int | None = 0,
        basis: Basis | None = None,
        X: Any = None,
        random_basis: Basis | None = None,
    ) -> None:
        self.model = model
        self.subject = subject
        self.rows = rows
        self.curves = curves
        self.random_start = random_start
        self.random_state = random_state
        self.basis = basis
        self.random_basis = random_basis
        self._X = X
        if not isinstance(curves, str) or curves not in curves_of.CURVES:
            from knotwork.errors import DataError

            raise DataError(f"curves must be one of {', '.join(curves_of.CURVES)}, got {shown(curves)}")

    @cached_property
    def importances(self) -> pd.DataFrame:
        """A row per column of the table, the most important first; see :mod:`knotwork.explanation.importances`.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> explanation = kw.explain(kw.MarsRegressor().fit(X, y), X, y)
        >>> list(explanation.importances.columns)
        ['permutation', 'subsets', 'gcv', 'rss', 'coefficient']
        """
        return measures.importances(self.subject, self.rows, self.random_state)

    @cached_property
    def effects(self) -> dict[str, curves_of.Effect]:
        """The curve (or bars) of each column, by its name.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> explanation = kw.explain(kw.MarsRegressor().fit(X, y), X, y)
        >>> curve = explanation.effects["alcohol"]
        >>> len(curve.grid) == len(curve.spline)
        True
        """
        return curves_of.effects(self.subject, self.rows, self.curves)

    @cached_property
    def interactions(self) -> dict[tuple[str, str], curves_of.Surface]:
        """The surface of each pair of columns that the spline joins.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor(max_degree=2).fit(X, y)
        >>> all(len(pair) == 2 for pair in kw.explain(model, X).interactions)
        True
        """
        return curves_of.surfaces(self.subject, self.rows)

    @cached_property
    def knot_rows(self) -> tuple[bends.KnotRows, ...]:
        """The spline's knots, each with the rows that carry its value.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> explanation = kw.explain(kw.MarsRegressor().fit(X, y), X, y)
        >>> len(explanation.knot_rows) == len(explanation.knots)
        True
        """
        return bends.knots(self.subject, self.rows)

    @property
    def knots(self) -> pd.DataFrame:
        """The knots as a frame: feature, knot, count and rows.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> explanation = kw.explain(kw.MarsRegressor().fit(X, y), X, y)
        >>> list(explanation.knots.columns)
        ['feature', 'knot', 'count', 'rows', 'mean quality']
        """
        return bends.knot_frame(self.knot_rows, self.rows, self.subject.table)

    @cached_property
    def drift(self) -> changes.Drift:
        """What training changed.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.SplineNetRegressor(hidden=(16,), epochs=2, n_members=1, random_state=0).fit(X, y)
        >>> explanation = kw.explain(model, X, y)
        >>> explanation.drift.inputs.shape
        (11, 3)
        """
        return changes.drift(self.subject)

    @cached_property
    def quality(self) -> pd.DataFrame:
        """Errors of the spline, the network and, where there is one, the random start; ``rows`` says on which rows.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> explanation = kw.explain(kw.MarsRegressor().fit(X, y), X, y)
        >>> list(explanation.quality.columns)
        ['RMSE', 'R²', 'rows']
        """
        return errors.quality(self.subject, self.rows, self.basis, self.random_start, self.random_basis)

    @cached_property
    def intervals(self) -> Floats | None:
        """What the model expects 90 % of responses to lie between, (N, 2); None where it has no such intervals.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.SplineNetRegressor(hidden=(16,), epochs=2, n_members=1, random_state=0).fit(X, y)
        >>> explanation = kw.explain(model, X, y)
        >>> explanation.intervals.shape
        (1599, 2)
        """
        predict = getattr(self.model, "predict_interval", None)
        if predict is None or self._X is None or self.subject.classes is not None:
            return None
        try:
            found = np.asarray(predict(self._X, coverage=INTERVAL), dtype=np.float64)
        except KnotworkError:  # it needs something of the fit that this model does not have
            return None
        return found if found.shape == (len(found), 2) else None

    @cached_property
    def sparsity(self) -> pd.DataFrame:
        """What is left, and its error, when the smallest 0, 10, … 90 % of the weights go.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.SplineNetRegressor(hidden=(16,), epochs=2, n_members=1, random_state=0).fit(X, y)
        >>> explanation = kw.explain(model, X, y)
        >>> len(explanation.sparsity)
        10
        """
        return sizes.sparsity(self.subject, self.rows)

    @checked(threshold=number())
    def prune(self, threshold: float) -> sizes.Pruned:
        """Return a smaller network: weights of at most ``threshold`` (standardised coordinates) go, and idle units.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.SplineNetRegressor(hidden=(32,), epochs=3, random_state=0).fit(X, y)
        >>> pruned = kw.explain(model, X, y).prune(0.02)
        >>> pruned.weights[1] < pruned.weights[0]
        True
        """
        return sizes.prune(self.subject, self.rows, float(threshold), self.model)

    def contributions(self, X: Any) -> parts.Contributions:
        """Take the predictions of rows X apart into what each column adds.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> explanation = kw.explain(kw.MarsRegressor().fit(X, y), X, y)
        >>> parts = explanation.contributions(X.head(1))
        >>> bool(abs(parts.base + parts.values.sum() - parts.prediction) < 1e-9)
        True
        """
        rows = read_rows(self.subject, X, None)
        assert rows is not None
        return parts.contributions(self.subject, self.rows, rows.matrix)

    @checked(path=place(), overwrite=switch())
    def to_html(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write the report: one page with everything in it, which needs no network.

        Parameters
        ----------
        path : the file
        overwrite : whether a file that is there may be replaced

        Examples
        --------
        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> explanation = kw.explain(kw.MarsRegressor().fit(X, y), X, y)
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     explanation.to_html(f"{folder}/report.html")
        """
        from knotwork.explanation.report import write_report

        write_report(self, path, overwrite=overwrite)

    @checked(measure=text().optional, ax=AXES)
    def plot_importances(self, measure: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw the importances as bars on matplotlib axes.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> explanation = kw.explain(kw.MarsRegressor().fit(X, y), X, y)
        >>> axes = explanation.plot_importances()
        """
        from knotwork.explanation.plots import plot_importances

        return plot_importances(self, measure, ax)

    @checked(columns=Rule("a list of names or None", _is_names), output=whole(0))
    def plot_effects(self, columns: list[str] | None = None, output: int = 0) -> np.ndarray[Any, Any]:
        """Draw effect curves on matplotlib axes, the most important first: an array of axes.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> explanation = kw.explain(kw.MarsRegressor().fit(X, y), X, y)
        >>> axes = explanation.plot_effects(["alcohol", "pH"])
        """
        from knotwork.explanation.plots import plot_effects

        return plot_effects(self, columns, output)

    @checked(output=whole(0))
    def plot_quality(self, output: int = 0) -> np.ndarray[Any, Any]:
        """Draw predictions against the truth: residuals, or confusion, ROC, precision and calibration of classes.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> explanation = kw.explain(kw.MarsRegressor().fit(X, y), X, y)
        >>> axes = explanation.plot_quality()
        """
        from knotwork.explanation.plots import plot_quality

        return plot_quality(self, output)

    @checked(ax=AXES)
    def plot_history(self, ax: Axes | None = None) -> Axes:
        """Draw the losses of training on matplotlib axes.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.SplineNetRegressor(hidden=(16,), epochs=2, n_members=1, random_state=0).fit(X, y)
        >>> explanation = kw.explain(model, X, y)
        >>> axes = explanation.plot_history()
        """
        from knotwork.explanation.plots import plot_history

        return plot_history(self, ax)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from knotwork.explanation.tables import tables

        yield from tables(self)

    def __repr__(self) -> str:
        rows = "no rows" if self.rows is None else f"{len(self.rows)} rows"
        return f"Explanation({self.subject.kind}, {len(self.subject.columns)} columns, {rows})"

    def __str__(self) -> str:
        from knotwork.explanation.tables import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from knotwork.explanation.tables import as_html

        return as_html(self)
