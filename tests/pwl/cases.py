"""Random lattices and points for them, inside and far outside of where they bend."""

import numpy as np
from hypothesis import strategies as st

from knotwork import LatticePWL


class Case:
    def __init__(self, seed, pieces, sets, features, outputs=1):
        rng = np.random.default_rng(seed)
        scale = 10 ** rng.uniform(-3, 3, features)
        theta = rng.normal(size=(pieces, features + 1)) * 10 ** rng.uniform(-2, 2)
        theta[:, 1:] /= scale
        theta[rng.random(pieces) < 0.1, 1:] = 0.0  # constants
        again = rng.random(pieces) < 0.1
        theta[again] = theta[0]
        sizes = rng.integers(1, pieces + 1, size=(outputs, sets))
        drawn = [[tuple(rng.choice(pieces, n, replace=False).tolist()) for n in row] for row in sizes]
        self.lattice = LatticePWL(theta, drawn if outputs > 1 else drawn[0])
        self.scale = scale
        near, far = rng.normal(size=(20, features)), rng.normal(size=(5, features)) * 1e4
        self.X = np.concatenate([near, far]) * scale

    @property
    def size(self):
        """The largest intermediate value of each row: what the pieces are summed up from, (N,)."""
        theta = np.abs(self.lattice.theta)
        return (theta[:, 0] + np.abs(self.X) @ theta[:, 1:].T).max(axis=1)


@st.composite
def cases(draw, pieces=64, sets=32, features=20, outputs=1):
    sizes = [draw(st.integers(1, maximum)) for maximum in (pieces, sets, features, outputs)]
    return Case(draw(st.integers(0, 2**32 - 1)), *sizes)
