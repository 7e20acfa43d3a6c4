import numpy as np
import pytest
from scipy.spatial import Delaunay

import knotwork as kw
from knotwork import Piece, Pieces
from knotwork.errors import DataError


def interval(low, high, constant, slope):
    return Piece([[-1.0], [1.0]], [-low, high], [constant, slope])


def triangulated(seed, points, d, outputs=1):
    """Pieces of a random interpolation on a triangulated cube."""
    rng = np.random.default_rng(seed)
    corners = np.stack(np.meshgrid(*[[0.0, 1.0]] * d), axis=-1).reshape(-1, d)
    nodes = np.concatenate([corners, rng.uniform(0.1, 0.9, (points, d))])
    values = rng.normal(size=(len(nodes), outputs))
    out = []
    order = np.argsort(nodes[:, 0])
    simplices = Delaunay(nodes).simplices if d > 1 else np.column_stack([order[:-1], order[1:]])
    for simplex in simplices:
        theta = np.linalg.solve(np.column_stack([np.ones(d + 1), nodes[simplex]]), values[simplex]).T
        out.append(Piece.hull(nodes[simplex], theta))
    return Pieces(tuple(out))


@pytest.mark.parametrize(("d", "points", "outputs"), [(1, 6, 1), (2, 4, 1), (2, 8, 2), (3, 2, 1), (4, 1, 1)])
@pytest.mark.parametrize("seed", range(3))
def test_a_lattice_of_pieces_is_the_function(d, points, outputs, seed):
    pieces = triangulated(seed, points, d, outputs)
    assert pieces.check_continuity() < 1e-9
    f = pieces.to_lattice()
    X = np.random.default_rng(seed).uniform(size=(500, d))
    np.testing.assert_allclose(f(X), pieces(X), atol=1e-9)
    assert np.isnan(pieces(np.full((1, d), 2.0))).all()


def test_one_set_per_piece_would_be_wrong():
    """Other planes cross the triangles, which therefore need more than one set each."""
    pieces = triangulated(1, 8, 2)
    X = np.random.default_rng(0).uniform(size=(2000, 2))
    theta = np.array([piece.theta[0] for piece in pieces.pieces])
    values = theta[:, 0] + X @ theta[:, 1:].T
    centres = np.array([piece.points.mean(axis=0) for piece in pieces.pieces])
    order = theta[:, 0] + centres @ theta[:, 1:].T
    sets = [np.flatnonzero(order[k] <= order[k, k]) for k in range(len(theta))]
    naive = np.min([values[:, s].max(axis=1) for s in sets], axis=0)
    assert np.abs(naive - pieces(X)).max() > 1e-3
    np.testing.assert_allclose(pieces.to_lattice()(X), pieces(X), atol=1e-9)


def test_a_list_of_pieces_is_a_function():
    pieces = [interval(0, 4, 0.0, 1.0), interval(4, 5, 20.0, -4.0), interval(5, 6, -45.0, 9.0)]
    X = np.linspace(0, 6, 601)[:, None]
    np.testing.assert_allclose(kw.as_pwl(pieces)(X), np.interp(X[:, 0], [0, 4, 5, 6], [0, 4, 0, 9]), atol=1e-12)


def test_disagreeing_pieces_are_named_with_the_place():
    pieces = [interval(0, 1, 0.0, 1.0), interval(1, 2, 1.0, 0.0), interval(2, 3, 1.5, 0.0)]
    with pytest.raises(DataError, match=r"pieces 1 and 2 differ by 0.5 at x = \[2\].*not continuous"):
        kw.as_pwl(pieces)
    square = Piece.hull([[0, 0], [1, 0], [1, 1], [0, 1]], [0.0, 1.0, 0.0])
    others = Piece.hull([[1, 0], [2, 0], [2, 1], [1, 1]], [1.0, 0.0, 0.25])
    with pytest.raises(DataError, match=r"pieces 0 and 1 differ by 0.25 at x = \[1, 1\]"):
        Pieces((square, others)).check_continuity()
    over = Piece.hull([[0.5, 0.5], [2, 0.5], [2, 2], [0.5, 2]], [7.0, 0.0, 0.0])
    with pytest.raises(DataError, match=r"pieces 0 and 1 differ by 6\.5"):
        Pieces((square, over)).check_continuity()
    cube = Piece([*np.eye(3), *-np.eye(3)], [1, 1, 1, 0, 0, 0], [0.0, 1.0, 0.0, 0.0])
    above = Piece([*np.eye(3), *-np.eye(3)], [1, 1, 2, 0, 0, -1], [0.0, 0.0, 0.0, 0.0])
    with pytest.raises(DataError, match=r"pieces 0 and 1 differ by 1 at x = \[1, "):
        Pieces((cube, above)).check_continuity()
    assert Pieces((cube, above)).check_continuity(tolerance=2.0) == pytest.approx(1.0)


def test_a_gap_between_pieces_is_refused():
    with pytest.raises(DataError, match=r"must cover a convex set.*missing in between"):
        kw.as_pwl([interval(0, 1, 0.0, 0.0), interval(2, 3, 5.0, 0.0)])


def test_corners_of_polytopes():
    triangle = Piece([[-1.0, 0.0], [0.0, -2.0], [3.0, 3.0], [1.0, 0.0]], [0.0, 0.0, 3.0, 9.0], [0.0, 1.0, 1.0])
    assert sorted(np.round(triangle.points, 9).tolist()) == [[0, 0], [0, 1], [1, 0]]
    assert triangle.contains([[0.2, 0.2], [0.9, 0.9]]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Piece([[1.0]], [1.0, 2.0], [0.0, 1.0]), r"A \(m, d\), b \(m,\) and theta"),
        (lambda: Piece([[1.0]], [np.inf], [0.0, 1.0]), "must be finite"),
        (lambda: Piece([[1.0]], [1.0], [0.0, 1.0]).points, "must be bounded"),
        (lambda: interval(2, 1, 0, 0).points, "must have an interior, got the interval from 2 to 1"),
        (lambda: Piece([[1.0, 0.0]], [1.0], [0.0, 1.0, 1.0]).points, "must be bounded"),
        (lambda: Piece([[1.0, 0], [-1, 0], [0, 1], [0, -1]], [0, -1, 1, 1], [0.0, 1, 1]).points, "have an interior"),
        (lambda: Pieces(()), "at least one, got none"),
        (lambda: Pieces((interval(0, 1, 0, 0), Piece.hull(np.eye(2, 3), [0, 0, 0, 0]))), "alike|QH"),
    ],
)
def test_bad_pieces_are_refused(make, message):
    with pytest.raises(Exception, match=message):
        make()
