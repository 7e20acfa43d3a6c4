import numpy as np
import pytest
from hypothesis import given, settings

from knotwork import LatticePWL, MaxSum
from knotwork.errors import DataError
from tests import reference
from tests.pwl.cases import cases

ABS = [[0.0, 1.0], [0.0, -1.0]]


@settings(max_examples=30, deadline=None)
@given(cases(pieces=12, sets=6, features=4))
def test_a_lattice_evaluates_like_its_definition(case):
    f = case.lattice
    expected = [reference.lattice(f.theta, f.sets, x) for x in case.X]
    assert (np.abs(f(case.X) - expected) <= 1e-14 * 8 * case.size).all()


@settings(max_examples=50, deadline=None)
@given(cases(pieces=20, sets=12, features=5, outputs=3))
def test_simplifying_changes_nothing(case):
    f = case.lattice
    simple = f.simplify()
    assert np.array_equal(simple(case.X), f(case.X))
    assert len(simple.theta) <= len(f.theta)
    assert len(np.unique(simple.theta, axis=0)) == len(simple.theta)
    for before, after in zip(f.outputs, simple.outputs, strict=True):
        assert len(after) <= len(before)
        chosen = [set(s) for s in after]
        assert not any(a <= b for i, a in enumerate(chosen) for j, b in enumerate(chosen) if i != j)
    assert simple.simplify() == simple


@settings(max_examples=20, deadline=None)
@given(cases(pieces=12, sets=4, features=3))
def test_simplifying_on_a_box_changes_nothing_there(case):
    f = case.lattice
    simple = f.simplify(box=(-case.scale, case.scale))
    X = np.random.default_rng(0).uniform(-1, 1, (200, f.inputs)) * case.scale
    size = np.abs(f.theta[:, 0]).max() + (np.abs(f.theta[:, 1:]) @ case.scale).max()
    assert np.abs(simple(X) - f(X)).max() <= 1e-12 * size
    assert len(simple.theta) <= len(f.simplify().theta)


def test_pieces_below_the_others_on_a_box_go():
    f = LatticePWL([*ABS, [-5.0, 0.5], [0.9, 0.0]], [(0, 1, 2, 3)])
    assert f.simplify(box=(-2, 2)).theta.tolist() == [*ABS, [0.9, 0.0]]
    assert f.simplify(box=(2, 3)).theta.tolist() == [[0.0, 1.0]]
    assert len(f.simplify().theta) == 4


@pytest.mark.parametrize(
    ("theta", "sets", "message"),
    [
        ([1.0, 2.0], [(0,)], r"theta must have shape \(pieces, d \+ 1\).*got \(2,\)"),
        ([[1.0]], [(0,)], r"got \(1, 1\)"),
        ([[np.nan, 1.0]], [(0,)], "theta must be finite, piece 0 is not"),
        (ABS, [], "at least one set"),
        (ABS, [(0,), ()], "set 1 is empty; leave it out"),
        (ABS, [(0, 2)], "pieces 0 to 1, set 0 names 2"),
        (ABS, [(0,), (-1, 1)], "pieces 0 to 1, set 1 names -1"),
        (ABS, [(0, 0.5)], r"whole numbers of pieces, set 0 is \(0, 0.5\)"),
        (ABS, [(True,)], "whole numbers"),
        (ABS, [3], "whole numbers of pieces, set 0 is 3"),
        (ABS, 3, "sets must be a sequence"),
        (ABS, [[(0,)], []], "at least one set"),
    ],
)
def test_bad_lattices_are_refused(theta, sets, message):
    with pytest.raises(DataError, match=message):
        LatticePWL(theta, sets)


def test_rows_of_the_wrong_shape_are_refused():
    with pytest.raises(DataError, match=r"1 features takes rows of shape \(N, 1\), got \(3, 2\)"):
        LatticePWL(ABS, [(0, 1)])(np.zeros((3, 2)))


def test_records_compare_by_value_and_cannot_be_changed():
    f, g = (LatticePWL(ABS, [(0, 1)]) for _ in range(2))
    assert f == g
    assert hash(f) == hash(g)
    assert f != LatticePWL(ABS, [(0,)])
    with pytest.raises(ValueError, match="read-only"):
        f.theta[0, 0] = 1.0


def test_a_difference_multiplies_out_to_a_lattice():
    rng = np.random.default_rng(0)
    f = MaxSum(rng.normal(size=(7, 4)), [(0, 1, 2), (3, 4), (5, 6)], [[1.0, 0.0], [-2.0, 0.5], [0.3, 0.0]],
               rng.normal(size=(2, 4)))  # fmt: skip
    X = rng.normal(size=(50, 3))
    np.testing.assert_allclose(f.to_lattice()(X), f(X), atol=1e-12)
    many = MaxSum(rng.normal(size=(40, 2)), [tuple(range(2 * k, 2 * k + 2)) for k in range(20)], np.ones((20, 1)),
                  np.zeros((1, 2)))  # fmt: skip
    with pytest.raises(DataError, match=r"up to 20000 pieces, this sum has 1.05e\+06.*to_network takes the sum"):
        many.to_lattice()
    with pytest.raises(DataError, match=r"coef must have shape \(groups, outputs\).*got \(2, 1\)"):
        MaxSum(ABS, [(0, 1)], [[1.0], [2.0]], [[0.0, 0.0]])
