"""Importances: evimp's from its stored output, the others by their definitions."""

import json
from pathlib import Path

import numpy as np
import pytest

import knotwork as kw
from knotwork.errors import DataError
from tests.parity.cases import all_cases
from tests.parity.test_earth import EXCEPTIONS

REFERENCE = Path(__file__).parent.parent / "parity" / "evimp_reference.json"
EVIMP = {found["name"]: found for found in json.loads(REFERENCE.read_text())}
CASES = {case.name: case for case in all_cases()}
# Every difference, with its cause: sums of errors that are all rounding.
ROUNDING = {name for name, case in CASES.items() if case.noise_free} | set(EXCEPTIONS)


def test_the_reference_covers_every_case():
    assert EVIMP.keys() == CASES.keys()


@pytest.mark.parametrize("name", sorted(CASES.keys() - ROUNDING))
def test_agrees_with_evimp(name):
    case, found = CASES[name], EVIMP[name]
    assert case.digest == found["digest"], "the data differ from those that earth was given"
    y = case.y if case.y.shape[1] > 1 else case.y[:, 0]
    frame = kw.explain(kw.MarsRegressor(compat="earth", **case.options).fit(case.X, y)).importances
    columns = [f"x{c}" for c in found["column"]]
    assert frame.loc[columns, "subsets"].tolist() == found["subsets"]
    if len(columns) > 1:  # evimp leaves a single column's sums as they are, here they are 100 like any greatest ones
        np.testing.assert_allclose(frame.loc[columns, "gcv"], found["gcv"], rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(frame.loc[columns, "rss"], found["rss"], rtol=1e-5, atol=1e-4)
    used = [c for c, subsets in zip(columns, found["subsets"], strict=True) if subsets > 0]
    assert list(frame.index[: len(used)]) == used


def test_coefficients_times_spread_with_and_without_rows():
    X, y = kw.datasets.load_abalone()
    model = kw.MarsRegressor().fit(X, y)
    frame = kw.explain(model, X).importances
    # By hand, term by term; indicators of Sex count for Sex.
    expected = dict.fromkeys(X.columns, 0.0)
    for term, beta, column in zip(model.spline_.terms, model.spline_.coef[:, 0], model.transform(X).T, strict=True):
        expected[model.spline_.feature_names[term.feature].partition("=")[0]] += abs(beta) * column.std()
    for name, value in expected.items():
        assert frame.loc[name, "coefficient"] == pytest.approx(value, rel=1e-9)
    alone = kw.explain(model).importances  # the fit remembers the spreads
    np.testing.assert_allclose(alone.loc[frame.index, "coefficient"], frame["coefficient"], rtol=1e-6)


def test_several_responses_and_a_constant():
    X, y = kw.datasets.load_wine_quality("red")
    both = np.stack([y, 2 * y + X["alcohol"]], axis=1)
    frame = kw.explain(kw.MarsRegressor().fit(X, both), X, both).importances
    assert frame["subsets"].iloc[0] > 0
    flat = kw.explain(kw.MarsRegressor().fit(X, np.ones(len(X))), X, np.ones(len(X))).importances
    assert (flat == 0).all(axis=None)


def test_permutation_finds_the_column_and_moves_categories_whole():
    rng = np.random.default_rng(0)
    import pandas as pd

    X = pd.DataFrame({"noise": rng.normal(size=300), "kind": rng.choice(["a", "b", "c"], 300)})
    y = 3.0 * (X["kind"] == "b").to_numpy() + 0.1 * rng.normal(size=300)
    model = kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=3, random_state=0).fit(X, y)
    frame = kw.explain(model, X, y).importances
    assert frame.index[0] == "kind"
    assert frame.loc["kind", "permutation"] > 1 > 0.1 > frame.loc["noise", "permutation"]
    again = kw.explain(model, X, y).importances
    assert again.equals(frame)


@pytest.mark.parametrize("start", ["spline", "random"])
def test_a_network_without_data_says_what_it_needs(start):
    X, y = kw.datasets.load_wine_quality("red")
    model = kw.SplineNetRegressor(n_members=1, hidden=(32,), start=start, epochs=0, random_state=0).fit(X, y)
    with pytest.raises(DataError, match="pass explain"):
        kw.explain(model).importances  # noqa: B018
