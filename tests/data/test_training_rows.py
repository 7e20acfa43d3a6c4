"""What a fit remembers of its rows is enough to know them again, and says nothing of rows that it does not know."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import knotwork as kw
from knotwork.data.learn import learn_table
from knotwork.data.target_encoding import Response
from knotwork.data.training_rows import KEPT, TrainingRows


def table(rows, seed=0, columns=4):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(rows, columns)), 2)
    return X, np.round(rng.normal(size=rows), 1), learn_table(X)[0]


@given(st.integers(1, 60), st.integers(0, 1000))
def test_up_to_so_many_rows_the_share_is_that_of_a_set(rows, seed):
    X, y, encoder = table(rows, seed, columns=1)
    other, other_y, _ = table(40, seed + 1, columns=1)
    other[:20], other_y[:20] = X[np.arange(20) % rows], y[np.arange(20) % rows]
    known = {(*x, v) for x, v in zip(X.tolist(), y.tolist(), strict=True)}
    expected = np.mean([(*x, v) in known for x, v in zip(other.tolist(), other_y.tolist(), strict=True)])
    assert TrainingRows.of(X, y, encoder).share(other, other_y, encoder) == expected


def test_a_sketch_of_many_rows_estimates_the_share():
    X, y, encoder = table(20 * KEPT)
    fresh, fresh_y, _ = table(10 * KEPT, seed=1)
    known = TrainingRows.of(X, y, encoder)
    assert len(known.smallest) == KEPT
    assert known.share(X[::3], y[::3], encoder) == 1  # a part of them, in another order
    assert known.share(X[::-1], y[::-1], encoder) == 1
    assert known.share(fresh, fresh_y, encoder) < 0.01
    both, both_y = np.vstack([X[: 10 * KEPT], fresh]), np.concatenate([y[: 10 * KEPT], fresh_y])
    assert known.share(both, both_y, encoder) == pytest.approx(0.5, abs=0.06)
    assert known.same(X, y, encoder)
    assert not known.same(X[::-1], y[::-1], encoder)
    large = next(k for k in range(len(X)) if known.share(X[[k]], y[[k]], encoder) is None)
    assert known.share(X[[large, large]], y[[large, large]], encoder) is None  # their number was too large to be kept


def test_repeated_rows_and_signed_zeros_are_the_same_row():
    X = np.tile(np.array([[1.0], [0.0]]), (3 * KEPT, 1))
    encoder = learn_table(X)[0]
    known = TrainingRows.of(X, X, encoder)
    assert len(known.smallest) == 2
    assert known.share(np.array([[-0.0]]), np.array([-0.0]), encoder) == 1


def test_whole_numbers_do_not_collide():
    X = np.array([[a, b, c] for a in range(40) for b in range(40) for c in range(40)], dtype=float)
    encoder = learn_table(X)[0]
    rows = TrainingRows.of(X, np.zeros(len(X)), encoder)
    assert len(rows.smallest) == KEPT
    # As many as are expected below the largest that was kept: the numbers are spread evenly.
    assert float(rows.smallest.view(np.uint64)[-1]) / 2**64 == pytest.approx(KEPT / len(X), rel=0.15)


def test_categories_encoded_by_the_response_do_not_hide_training_rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=400), "city": rng.integers(60, size=400)})
    y = X["x"].to_numpy() + X["city"].to_numpy() / 10
    X["city"] = "c" + X["city"].astype(str)
    encoder, matrix = learn_table(X, response=Response(y[:, None]))
    assert (matrix != encoder.encode(X)).any()
    assert TrainingRows.of(matrix, y, encoder).share(encoder.encode(X), y, encoder) == 1


def test_estimators_keep_it_and_save_it(tmp_path):
    X, y = kw.datasets.load_wine_quality("red")
    for model, target in (
        (kw.MarsRegressor(), y),
        (kw.MarsClassifier(), y > 5),
        (kw.SplineNetRegressor(n_members=1, hidden=(8,), epochs=1, random_state=0), y),
        (kw.HingingHyperplanesRegressor(n_hinges=2, random_state=0), y),
    ):
        model.fit(X[:300], target[:300])
        kw.save(model, tmp_path / type(model).__name__)
        again = kw.load(tmp_path / type(model).__name__)
        assert again.training_rows_.digest == model.training_rows_.digest
        np.testing.assert_array_equal(again.training_rows_.smallest, model.training_rows_.smallest)
        for fitted in (model, again):
            assert kw.explain(fitted, X[:300], target[:300]).basis.seen == 1
            assert kw.explain(fitted, X[:200], target[:200]).basis.kind == "training"
            assert kw.explain(fitted, X[300:], target[300:]).basis.seen < 0.2  # some wines are twice in the table
