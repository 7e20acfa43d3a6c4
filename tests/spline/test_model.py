import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from knotwork import Hinge, Linear, Spline
from knotwork.errors import DataError

finite = st.floats(-1e6, 1e6)


@st.composite
def splines(draw):
    d, p = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    feature = st.integers(0, d - 1)
    term = st.one_of(
        st.builds(Linear, feature), st.builds(Hinge, feature, finite, st.sampled_from([-1, 1]))
    )  # fmt: skip
    terms = tuple(draw(st.lists(term, max_size=6)))
    return Spline(
        terms,
        draw(arrays(float, p, elements=finite)),
        draw(arrays(float, (len(terms), p), elements=finite)),
        tuple(f"x{k}" for k in range(d)),
    )


@given(splines(), st.data())
def test_evaluates_as_written(spline, data):
    d, p = len(spline.feature_names), spline.intercept.size
    X = data.draw(arrays(float, (3, d), elements=finite))
    expected = np.zeros((3, p))
    size = np.zeros((3, p))
    for i, x in enumerate(X):
        expected[i] = spline.intercept
        size[i] = np.abs(spline.intercept)
        for term, beta in zip(spline.terms, spline.coef, strict=True):
            value = x[term.feature]
            if isinstance(term, Hinge):
                value = max(0.0, term.sign * (value - term.knot))
            expected[i] += beta * value
            size[i] += np.abs(beta * value)
    found = spline(X).reshape(3, p)
    assert (np.abs(found - expected) <= 1e-12 * size).all()
    assert spline(X).shape == ((3,) if p == 1 else (3, p))


@given(splines())
def test_survives_json_and_pickle_bit_for_bit(spline):
    assert Spline.from_dict(json.loads(json.dumps(spline.to_dict()))) == spline
    assert pickle.loads(pickle.dumps(spline)) == spline
    assert hash(pickle.loads(pickle.dumps(spline))) == hash(spline)


def test_is_frozen():
    spline = Spline((Linear(0),), [1.0], [[2.0]], ("x",))
    with pytest.raises(AttributeError):
        spline.terms = ()
    with pytest.raises(ValueError, match="read-only"):
        spline.coef[0, 0] = 3.0


def test_prints_what_people_write():
    spline = Spline((Hinge(0, -1.5, 1), Hinge(1, 2.0, -1), Linear(0)), [0.5], [[1.0], [-2.0], [3.0]], ("a b", "c"))
    assert str(spline) == "0.5\n  + 1·h(a b + 1.5)\n  - 2·h(2 - c)\n  + 3·a b"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Spline((Linear(0),), [1.0], [[2.0], [3.0]], ("x",)), "one row per term"),
        (lambda: Spline((Linear(1),), [1.0], [[2.0]], ("x",)), "features 0 to 0, got 1 to 1"),
        (lambda: Spline((), [1.0], [], ("x",))(np.zeros((3, 2))), r"shape \(N, 1\), got \(3, 2\)"),
        (lambda: Spline.from_dict({"terms": [{"kind": "wavelet"}], "intercept": [], "coef": [], "feature_names": []}),
         "'min' or 'product', got 'wavelet'"),
    ],
)  # fmt: skip
def test_says_what_is_wrong(build, message):
    with pytest.raises(DataError, match=message):
        build()
