"""Term for term what R's earth 5.3.2 (fast.k=0) finds, from its stored output."""

import json
from pathlib import Path

import numpy as np
import pytest

import knotwork as kw
from tests.parity.cases import all_cases

REFERENCE = {fit["name"]: fit for fit in json.loads((Path(__file__).parent / "earth_reference.json").read_text())}
CASES = {case.name: case for case in all_cases()}

# Every difference, with its cause. The rest of the comparison still holds for these.
EXCEPTIONS = {
    "noise-free linear 300x5": "the last feature explains the response up to its rounding, so that all its knots tie",
}


def test_the_reference_covers_every_case():
    assert REFERENCE.keys() == CASES.keys()
    assert len(CASES) >= 60
    assert EXCEPTIONS.keys() <= CASES.keys()


def as_list(term):
    return [term.feature, 0.0, 0] if isinstance(term, kw.Linear) else [term.feature, term.knot, term.sign]


@pytest.mark.parametrize("name", CASES)
def test_equals_earth(name):
    case, earth = CASES[name], REFERENCE[name]
    assert case.digest == earth["digest"], "the data differ from those that earth was given"
    y = case.y if case.y.shape[1] > 1 else case.y[:, 0]
    model = kw.MarsRegressor(compat="earth", **case.options).fit(case.X, y)
    selection = model.fit_.selection
    # A truth without noise leaves an error of rounding only; it is compared with the size of the response.
    size = np.var(case.y) if case.noise_free else 0.0
    assert model.gcv_ == pytest.approx(earth["gcv"], rel=1e-6, abs=1e-6 * size)
    assert model.rss_ == pytest.approx(earth["rss"], rel=1e-6, abs=1e-6 * size * len(case.X))
    if name in EXCEPTIONS:
        assert [as_list(t)[0] for t in selection.forward_terms] == [t[0] for t in earth["terms"]]
        return
    assert [as_list(t) for t in selection.forward_terms] == earth["terms"]
    assert selection.selected.tolist() == earth["selected"]
    assert model.grsq_ == pytest.approx(earth["grsq"], rel=1e-6, abs=1e-6)
    coef = np.vstack([model.spline_.intercept, model.spline_.coef])
    expected = np.array(earth["coefficients"])
    np.testing.assert_allclose(coef, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max() if case.noise_free else 0)
