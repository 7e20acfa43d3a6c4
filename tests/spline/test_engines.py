"""One matrix: every engine that sums rows, on every kind of data, against the explicit search of tests/reference.py.

A new engine is one more entry of ``ENGINES``: a function from (X, y, weights, max_terms) to what it fitted.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from knotwork.compute.workers import Workers
from knotwork.spline.fit import FitOptions, fit_spline
from knotwork.spline.host import HostTable
from knotwork.spline.knots import default_spans
from knotwork.spline.model import Spline, Term
from knotwork.spline.stream import Stream
from tests.reference import Search, hinge, rss
from tests.spline.test_forward import check_steps


@dataclass(frozen=True)
class Fitted:
    """What an engine leaves behind: its forward terms, RSS after each step, and the pruned spline."""

    terms: tuple[Term, ...]
    steps: tuple[float, ...]
    spline: Spline


def engine(sums, spacing="auto"):
    def fit(X, y, weights, max_terms):
        options = FitOptions(max_terms=max_terms, minspan=1, endspan=2, max_knots=None, sums=sums, spacing=spacing)
        found = fit_spline(X, y, weights=weights, options=options)
        return Fitted(found.selection.forward_terms, tuple(s.rss for s in found.selection.steps), found.spline)

    return fit


def torch_engine(device, spacing="auto"):
    def fit(X, y, weights, max_terms):
        X, y, weights = (None if v is None else torch.from_numpy(v).to(device) for v in (X, y, weights))
        return engine("auto", spacing)(X, y, weights, max_terms)

    return fit


def candidate_knots(X, y, weights):
    """The knots that a fit to all rows would choose from, which the first batch of a stream cannot know."""
    with Workers(1) as workers:
        table = HostTable(X, y, weights, workers)
        spans = default_spans(len(X) if weights is None else weights.sum(), X.shape[1], 1, 2)
        grid = table.candidates(spans, None, clip=False)
    found = []
    for f in range(X.shape[1]):
        own = grid.knots[grid.offsets[f] + 1 : grid.offsets[f + 1]]
        values = (own + table.x_scaling.centre[f]) / table.x_scaling.scale[f]
        # To the last digit, as values of the data.
        found.append(X[np.abs(X[:, f] - values[:, None]).argmin(axis=1), f])
    return tuple(found)


def stream_engine(X, y, weights, max_terms):
    """Seven batches; the sums are all that is kept."""
    options = FitOptions(max_terms=max_terms, minspan=1, endspan=2, knots=candidate_knots(X, y, weights))
    first, *others = np.array_split(np.arange(len(X)), 7)
    stream = Stream.open(X[first], y[first], None if weights is None else weights[first], options)
    for rows in others:
        stream = stream.plus(X[rows], y[rows], None if weights is None else weights[rows], 1, 1)
    found = stream.fit([f"x{f}" for f in range(X.shape[1])], options)
    return Fitted(found.selection.forward_terms, tuple(s.rss for s in found.selection.steps), found.spline)


# Those that are exact. Counts are not: all values of a bin stand for their mean while terms are chosen.
ENGINES = {
    "passes": engine("passes"),
    "tables": engine("tables"),
    "torch": torch_engine("cpu"),
    "partial_fit": stream_engine,
}
if torch.cuda.is_available():
    ENGINES["cuda"] = torch_engine("cuda")
# Knots anywhere, as in the explicit search; tests/spline/test_spacing.py is about distances between them.
UNSPACED = {
    "passes": engine("passes", "free"),
    "tables": engine("tables", "free"),
    "torch": torch_engine("cpu", "free"),
    "partial_fit": stream_engine,
}
if torch.cuda.is_available():
    UNSPACED["cuda"] = torch_engine("cuda", "free")
COARSE = {"counts": engine("counts")}


def case(kind, seed=0, n=90):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 1e3, 1e-3] + [0.0, 2000.0, 0.0]
    outputs, weights = 1, None
    match kind:
        case "ties":
            X = np.column_stack([np.round(X[:, 0], 1), np.round(X[:, 1], -2), X[:, 2] > 0])
        case "responses":
            outputs = 3
        case "weights":
            weights = rng.integers(1, 4, n).astype(float)
        case "collinear":
            X[:, 2] = X[:, 0] + 1e-3 * X[:, 2] / X[:, 2].std()
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.stack([np.abs(Z[:, 0] - 0.4 * k) + np.sin(2 * Z[:, 1]) + Z[:, 2] for k in range(outputs)], axis=1)
    return X, y + 0.2 * rng.normal(size=y.shape), weights


KINDS = ["plain", "ties", "responses", "weights", "collinear"]


def basis_of(spline, X):
    """The chosen terms as explicit columns, standardised, behind a one: what the condition number is of."""
    columns = []
    for term in spline.terms:
        x, scale = X[:, term.feature], X[:, term.feature].std()
        sign = getattr(term, "sign", 0)
        columns.append((x - x.mean()) / scale if sign == 0 else hinge(x / scale, term.knot / scale, sign))
    return np.column_stack([np.ones(len(X)), *columns])


def check_predictions(spline, X, y, weights):
    """The coefficients are those of least squares on the chosen terms."""
    basis, root = basis_of(spline, X), np.sqrt(np.ones(len(X)) if weights is None else weights)[:, None]
    expected = basis @ np.linalg.lstsq(basis * root, y * root, rcond=None)[0]
    condition = np.linalg.cond(basis)
    tolerance = (1e-9 if condition < 1e3 else 1e-6) * y.std()
    assert np.abs(spline(X).reshape(y.shape) - expected).max() <= tolerance, f"condition {condition:.1e}"


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_engine_takes_the_steps_of_the_explicit_search(name, kind):
    X, y, weights = case(kind)
    found = UNSPACED[name](X, y, weights, 15)
    repeats = np.ones(len(X), int) if weights is None else weights.astype(int)
    search = Search(np.repeat(X, repeats, axis=0), np.repeat(y, repeats, axis=0), minspan=1, endspan=2)
    check_steps(search, found.terms, found.steps, max_terms=15)
    check_predictions(found.spline, X, y, weights)
    assert len(found.terms) >= 6


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_engines_agree(name, kind):
    X, y, weights = case(kind, seed=1, n=2000)
    first, found = (ENGINES[k](X, y, weights, 31) for k in ("passes", name))
    assert found.terms == first.terms
    assert found.spline.terms == first.spline.terms
    basis = basis_of(first.spline, X)
    tolerance = (1e-9 if np.linalg.cond(basis) < 1e3 else 1e-6) * y.std()
    assert np.abs(found.spline(X) - first.spline(X)).max() <= tolerance


@pytest.mark.parametrize("kind", KINDS)
def test_counts_lose_little(kind):
    X, y, weights = case(kind, seed=1, n=2000)
    exact, coarse = engine("passes")(X, y, weights, 31), COARSE["counts"](X, y, weights, 31)
    # The terms may be others, the coefficients are least squares all the same.
    check_predictions(coarse.spline, X, y, weights)
    root = np.sqrt(np.ones(len(X)) if weights is None else weights)[:, None]
    squares = [rss(basis_of(f.spline, X) * root, y * root) for f in (exact, coarse)]
    assert squares[1] <= 1.01 * squares[0]


def test_auto_takes_tables_for_many_rows_and_passes_for_few(monkeypatch):
    from knotwork.spline.moments import tables

    built = []
    whole = tables.TableRows._sum

    def spy(self, feature, others):
        built.append(feature)
        return whole(self, feature, others)

    monkeypatch.setattr(tables.TableRows, "_sum", spy)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150_000, 3))
    y = (np.abs(X[:, 0]) + np.sin(3 * X[:, 1]) + X[:, 2] ** 2)[:, None]
    many = fit_spline(X, y, options=FitOptions(max_terms=31, threshold=0.0))
    assert sorted(built) == [0, 1, 2]
    passes = fit_spline(X, y, options=FitOptions(max_terms=31, threshold=0.0, sums="passes"))
    assert many.selection.forward_terms == passes.selection.forward_terms
    np.testing.assert_allclose(many.spline(X), passes.spline(X), rtol=0, atol=1e-9 * y.std())
    built.clear()
    fit_spline(X[:2000], y[:2000], options=FitOptions(max_terms=31, threshold=0.0))
    assert built == []
    # Nor where memory is short.
    monkeypatch.setattr(tables, "MIN_BYTES", 0)
    monkeypatch.setattr(tables, "MAX_SHARE", 0.0)
    short = fit_spline(X, y, options=FitOptions(max_terms=31, threshold=0.0))
    assert built == []
    assert short.spline == passes.spline


@pytest.mark.parametrize("name", ["passes", "tables", "counts", "torch"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_engine_takes_knots_that_are_given(name, kind):
    X, y, weights = case(kind, seed=2, n=300)
    # Between the values of the data, too.
    knots = tuple(np.quantile(column, [0.2, 0.4, 0.5, 0.7]) for column in X.T)
    options = FitOptions(max_terms=9, knots=knots, sums="auto" if name == "torch" else name)
    rows = [torch.from_numpy(v) if name == "torch" and v is not None else v for v in (X, y, weights)]
    fit = fit_spline(*rows[:2], weights=rows[2], options=options)
    check_predictions(fit.spline, X, y, weights)
    used = [(term.feature, term.knot) for term in fit.spline.terms if hasattr(term, "knot")]
    assert used
    assert all(knot in knots[f] for f, knot in used)
    for knot in fit.knots:
        assert knot.count == np.count_nonzero(X[:, knot.feature] == knot.value)
