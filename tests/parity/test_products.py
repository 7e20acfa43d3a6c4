"""Products of hinges beside R's earth of degree 2: as good by GCV, though not term for term."""

import json
from pathlib import Path

import pytest

import knotwork as kw
from tests.parity.cases import interaction_cases

REFERENCE = {fit["name"]: fit for fit in json.loads(Path(__file__).with_name("product_reference.json").read_text())}
CASES = {case.name: case for case in interaction_cases()}


@pytest.mark.parametrize("name", CASES)
def test_gcv_is_within_one_per_cent_of_earths(name):
    case, earth = CASES[name], REFERENCE[name]
    assert case.digest == earth["digest"], "the data are not those that earth saw; run tests.parity.make_products"
    # earth's own limit of terms at so few features.
    model = kw.MarsRegressor(max_degree=2, interaction="product", max_terms=21).fit(case.X, case.y[:, 0])
    assert model.gcv_ <= 1.01 * earth["gcv"]
    if name != "additive":
        assert any(isinstance(term, kw.Product) for term in model.spline_.terms)
