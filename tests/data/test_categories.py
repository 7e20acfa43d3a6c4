"""Categories at any number: indicators, pools, an order, numbers learned from the response, and what is left out."""

import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import TargetEncoder

import knotwork as kw
from knotwork.data.columns.level_means import LevelMeans
from knotwork.data.columns.levels import Levels
from knotwork.data.columns.number import Number
from knotwork.data.columns.ordered import Ordered
from knotwork.data.learn import learn_encoder, learn_table
from knotwork.data.target_encoding import FOLDS, Response, encode_levels, folds_of
from knotwork.errors import CategoryWarning, ColumnWarning, DataError, MissingWarning

N, L = 1200, 150
rng = np.random.default_rng(0)
CODES = rng.integers(L, size=N)
EFFECT = rng.normal(size=L)
Z = rng.normal(size=(N, 2))
Y = np.abs(Z[:, 0]) + EFFECT[CODES] + 0.3 * rng.normal(size=N)
CITY = np.char.add("c", CODES.astype(str)).astype(object)
FRAME = pd.DataFrame({"a": Z[:, 0], "city": CITY, "b": Z[:, 1]})
SPELLINGS = {
    "object": FRAME.astype({"city": object}),
    "category": FRAME.astype({"city": "category"}),
    "string": FRAME.astype({"city": "string"}),
    "polars": pl.DataFrame({"a": Z[:, 0], "city": CITY.tolist(), "b": Z[:, 1]}),
    "polars categorical": pl.DataFrame(
        {"a": Z[:, 0], "city": pl.Series(CITY.tolist(), dtype=pl.Categorical), "b": Z[:, 1]}
    ),
    "pyarrow": pa.table({"a": Z[:, 0], "city": CITY.tolist(), "b": Z[:, 1]}),
    "pyarrow dictionary": pa.table({"a": Z[:, 0], "city": pa.array(CITY.tolist()).dictionary_encode(), "b": Z[:, 1]}),
}


@pytest.fixture(scope="module")
def mars():
    return kw.MarsRegressor().fit(FRAME, Y)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_frame_library_changes_nothing(mars, spelling):
    model = kw.MarsRegressor().fit(SPELLINGS[spelling], Y)
    assert model.encoder_ == mars.encoder_
    assert model.spline_ == mars.spline_
    assert np.array_equal(model.predict(SPELLINGS[spelling]), mars.predict(FRAME))


def test_many_levels_become_a_number_that_the_spline_bends(mars):
    assert mars.encoder_.feature_names == ("a", "city: mean", "b")
    assert isinstance(mars.encoder_.columns[1], LevelMeans)
    codes = rng.integers(L, size=500)
    new = pd.DataFrame({"a": 0.0, "city": np.char.add("c", codes.astype(str)), "b": 0.0})
    assert np.corrcoef(mars.predict(new), EFFECT[codes])[0, 1] > 0.95
    # Out of fold: the encoder itself, which has seen every row, would look better on the training rows.
    seen = mars.spline_(mars.encoder_.encode(FRAME))
    assert np.square(Y - seen).sum() < mars.rss_


def test_permuted_rows_give_the_same_model_and_permuted_predictions(mars):
    order = rng.permutation(N)
    other = kw.MarsRegressor().fit(FRAME.iloc[order], Y[order])
    np.testing.assert_allclose(other.predict(FRAME), mars.predict(FRAME), rtol=0, atol=1e-8)
    assert np.array_equal(mars.predict(FRAME.iloc[order]), mars.predict(FRAME)[order])


def test_unseen_levels_get_the_mean_of_all_rows(mars):
    new = FRAME.head(3).assign(city=["c1", "nowhere", "elsewhere"])
    with pytest.warns(CategoryWarning, match=r"'city'.*'elsewhere', 'nowhere'.*count as the mean of all categories"):
        matrix = mars.encoder_.encode(new)
    np.testing.assert_allclose(matrix[1:, 1], Y.mean())
    with pytest.warns(MissingWarning, match="'city'"):
        np.testing.assert_allclose(mars.encoder_.encode(FRAME.head(2).assign(city=["c1", None]))[1, 1], Y.mean())


def test_a_gap_among_many_levels_is_a_level():
    gaps = rng.random(N) < 0.2
    y = np.where(gaps, 5.0, Y)
    encoder, matrix = learn_table(FRAME.assign(city=np.where(gaps, None, CITY)), response=Response(y[:, None]))
    assert matrix[gaps, 1].min() > 4.5
    assert encoder.encode(FRAME.head(2).assign(city=["c1", None]))[1, 1] > 4.9


@pytest.mark.parametrize("weighted", [False, True])
def test_the_rule_is_that_of_scikit_learn(weighted):
    """TargetEncoder with smooth=m, on rows without the fold, its mean replaced by that of all rows."""
    weights = rng.integers(1, 4, size=N) if weighted else np.ones(N, dtype=int)
    folds = rng.integers(FOLDS, size=N)
    found = encode_levels(CODES, L, Response(Y[:, None]), weights.astype(float) if weighted else None, folds)
    mean = np.average(Y, weights=weights)
    np.testing.assert_allclose(found.overall, mean)
    for fold in (None, *range(FOLDS)):
        rest = np.repeat(np.flatnonzero(folds != fold), weights[folds != fold])
        encoder = TargetEncoder(smooth=smoothing(CODES[rest], Y[rest]), target_type="continuous")
        encoder.fit(CODES[rest, None], Y[rest])
        here = np.arange(N) if fold is None else np.flatnonzero(folds == fold)
        expected = encoder.transform(CODES[here, None])[:, 0] - Y[rest].mean() + mean
        values = found.means[CODES, 0] if fold is None else found.rows[here, 0]
        np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-6)


def smoothing(codes, y):
    """The variance within levels over that between them, by the textbook's formulas."""
    groups = [y[codes == k] for k in np.unique(codes)]
    n = np.array([len(g) for g in groups])
    within = sum(((g - g.mean()) ** 2).sum() for g in groups) / (n.sum() - len(n))
    between = sum(len(g) * (g.mean() - y.mean()) ** 2 for g in groups) / (len(n) - 1)
    size = (n.sum() - (n**2).sum() / n.sum()) / (len(n) - 1)
    return within / ((between - within) / size)


def test_no_row_sees_its_own_response():
    folds = folds_of(Z, [CODES.astype(np.uint64)], Response(Y[:, None]))
    before = encode_levels(CODES, L, Response(Y[:, None]), None, folds)
    for row in (0, 17):
        y = Y.copy()
        y[row] += 1.0
        after = encode_levels(CODES, L, Response(y[:, None]), None, folds)
        same = folds == folds[row]
        # But for the mean of all rows, which moves all of them alike.
        moved = (after.rows - after.overall) - (before.rows - before.overall)
        np.testing.assert_allclose(moved[same], 0.0, atol=1e-7)
        assert np.abs(moved[~same & (CODES[row] == CODES)]).min() > 1e-3


def test_copies_of_a_row_are_in_one_fold_and_equal_observations_are_spread():
    twice = np.vstack([Z[:300], Z[:300]])
    folds = folds_of(twice, [], Response(np.zeros((600, 1))))
    assert np.array_equal(folds[:300], folds[300:])
    assert np.bincount(folds, minlength=FOLDS).min() > 60
    few = np.repeat(np.arange(10.0), 60)[:, None]
    y = np.tile([0.0, 1.0], 300)[:, None]
    folds = folds_of(few, [], Response(y))
    assert all(np.unique(folds[few[:, 0] == k]).size == FOLDS for k in range(10))
    order = rng.permutation(600)
    again = folds_of(few[order], [], Response(y[order]))
    cells = [tuple(sorted(f[(x[:, 0] == 3) & (v[:, 0] == 1)])) for f, x, v in
             ((folds, few, y), (again, few[order], y[order]))]  # fmt: skip
    assert cells[0] == cells[1]


def test_a_column_of_many_levels_alone_is_learned_from():
    frame = FRAME[["city"]]
    model = kw.MarsRegressor().fit(frame, EFFECT[CODES] + 0.1 * rng.normal(size=N))
    assert model.rsq_ > 0.9
    labels = np.where(EFFECT[CODES] + 0.3 * rng.normal(size=N) > 0, "up", "down")
    assert kw.MarsClassifier().fit(frame, labels).score(frame, labels) > 0.9


def test_several_responses_and_classes():
    both = kw.MarsRegressor().fit(FRAME, np.stack([Y, -2 * EFFECT[CODES] + Z[:, 1]], axis=1))
    assert both.encoder_.feature_names == ("a", "city: mean of y0", "city: mean of y1", "b")
    two = kw.MarsClassifier().fit(FRAME, np.where(Y > 1, "high", "low"))
    assert two.encoder_.feature_names == ("a", "city: share of low", "b")
    three = kw.MarsClassifier().fit(FRAME, np.digitize(Y, [0.0, 1.5]))
    assert three.encoder_.feature_names == ("a", *(f"city: share of {k}" for k in range(3)), "b")
    assert three.score(FRAME, np.digitize(Y, [0.0, 1.5])) > 0.7
    many = Response(rng.integers(40, size=N), tuple(map(str, range(40))))
    assert len(many.measures) == 10


def test_rows_of_weight_zero_teach_nothing():
    weight = np.where(np.arange(N) % 3 == 0, 0.0, 1.0)
    kept = weight > 0
    y = np.where(kept, Y, 1e9)
    model = kw.MarsRegressor().fit(FRAME, y, sample_weight=weight)
    assert model.encoder_.columns[1].default == pytest.approx(Y[kept].mean())
    assert np.abs(model.predict(FRAME)).max() < 20


def test_a_column_that_says_nothing_is_left_out():
    with pytest.warns(ColumnWarning, match="'city' was left out: it has 150 categories whose responses differ no more"):
        model = kw.MarsRegressor().fit(FRAME, np.abs(Z[:, 0]) + rng.normal(size=N))
    assert model.encoder_.feature_names == ("a", "b")


def test_a_text_that_is_different_in_every_row_is_left_out():
    frame = FRAME.assign(city=[f"row {k}" for k in range(N)])
    with pytest.warns(ColumnWarning, match="'city' was left out: it has 1200 different values in 1200 rows"):
        model = kw.MarsRegressor().fit(frame, Y)
    assert model.spline_ == kw.MarsRegressor().fit(frame[["a", "b"]], Y).spline_
    assert model.predict(frame).shape == (N,)


def test_without_a_response_many_levels_are_refused():
    with pytest.raises(DataError, match="column 'city' has 150 and there is none here"):
        learn_encoder(FRAME)


def test_rare_categories_share_an_indicator():
    kind = np.array(["x"] * 700 + ["y"] * 480 + ["z"] * 8 + ["q"] * 3 + ["p"] * 4 + ["r"] * 5, dtype=object)
    encoder, matrix = learn_table(pd.DataFrame({"kind": kind}))
    column = encoder.columns[0]
    assert encoder.feature_names == ("kind=x", "kind=y", "kind=z", "kind=other")
    assert column.pooled == ("p", "q", "r")
    assert matrix.sum(axis=0).tolist() == [700, 480, 8, 12]
    with pytest.warns(CategoryWarning, match="'new'.*they count as 'other', like 'p', 'q', 'r'"):
        assert encoder.encode(pd.DataFrame({"kind": ["x", "new", "p"]})).tolist() == [[1, 0, 0, 0], *[[0, 0, 0, 1]] * 2]
    assert Levels("kind", ("other", "x"), ("y", "z")).feature_names[-1] == "kind=(other)"
    # One rare category is no pool, and in a small table nothing is rare.
    assert not learn_encoder(pd.DataFrame({"kind": kind[:1188].tolist() + ["p"] * 4})).columns[0].pooled
    assert not learn_encoder(pd.DataFrame({"kind": list("abcdefgh")})).columns[0].pooled


@pytest.mark.parametrize(
    "column",
    [pd.Categorical(["low", "high", None, "low"], ["low", "medium", "high"], ordered=True),
     pl.Series(["low", "high", None, "low"], dtype=pl.Enum(["low", "medium", "high"]))],
    ids=["pandas", "polars"],
)  # fmt: skip
def test_ordered_categories_are_numbers_in_their_order(column):
    frame = (pl if isinstance(column, pl.Series) else pd).DataFrame({"grade": column})
    encoder, matrix = learn_table(frame)
    assert encoder.columns == (Ordered("grade", ("low", "medium", "high"), 0.0, True),)
    assert matrix.tolist() == [[0, 0], [2, 0], [0, 1], [0, 0]]
    with pytest.warns(CategoryWarning, match="'huge'.*count as missing"):
        assert encoder.encode(pd.DataFrame({"grade": ["medium", "huge"]})).tolist() == [[1, 0], [0, 1]]


def test_intervals_are_in_order():
    frame = pd.DataFrame({"age": pd.cut(Z[:, 0], 5)})
    model = kw.MarsRegressor().fit(frame, Z[:, 0])
    assert model.encoder_.feature_names == ("age",)
    assert model.rsq_ > 0.8


def test_numbers_as_text_are_read_as_numbers_and_said():
    frame = FRAME.assign(b=[None if k == 3 else f"{v:.3f}" for k, v in enumerate(Z[:, 1])])
    with pytest.warns(ColumnWarning, match="column 'b' holds numbers as text"):
        encoder, matrix = learn_table(frame[["a", "b"]])
    assert isinstance(encoder.columns[1], Number)
    assert encoder.columns[1].indicator
    assert matrix[:3, 1].tolist() == [float(f"{v:.3f}") for v in Z[:3, 1]]
    assert np.array_equal(encoder.encode(frame[["a", "b"]]), matrix)
    # Codes stay categories: with a zero in front, or a few whole numbers.
    assert learn_encoder(pd.DataFrame({"zip": ["0123", "4567"]})).feature_names == ("zip=0123", "zip=4567")
    assert learn_encoder(pd.DataFrame({"kind": ["1", "2", "10"]})).feature_names == ("kind=1", "kind=10", "kind=2")
    with pytest.raises(DataError, match="column 'b' held numbers in training and now holds text"):
        encoder.encode(pd.DataFrame({"a": [1.0], "b": ["one"]}))


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
def test_words_for_no_value_among_numbers_as_text(make):
    words = {2: "", 5: " NA ", 9: "null"}
    spelled = [words.get(k, f"{v:.3f}") for k, v in enumerate(Z[:200, 1])]
    gaps = [None if k in words else v for k, v in enumerate(spelled)]
    with pytest.warns(ColumnWarning, match="'b' holds numbers as text and is read as numbers, '', ' NA ', 'null' as m"):
        encoder, matrix = learn_table(make({"b": spelled}))
    with pytest.warns(ColumnWarning, match="'b' holds numbers as text and is read as numbers; to have"):
        expected, numbers = learn_table(make({"b": gaps}))
    assert encoder == expected
    assert np.array_equal(matrix, numbers)
    assert np.array_equal(encoder.encode(make({"b": spelled})), matrix)


def test_texts_that_are_no_numbers_are_gaps_where_numbers_were():
    """Zip codes of training may all be numbers, and those of tomorrow not."""
    with pytest.warns(ColumnWarning, match="holds numbers as text"):
        encoder = learn_encoder(pd.DataFrame({"zip": [str(98000 + k) for k in range(50)]}))
    said = (
        "column 'zip' held numbers in training and now has texts that are not numbers ('98101-1234'); they count as "
        "missing"
    )
    for values in (["98003", "98101-1234", ""], np.array(["98003", "98101-1234", ""], dtype=object)):
        with pytest.warns(MissingWarning, match="'zip'") as caught:
            matrix = encoder.with_means(np.array([7.0])).encode(pd.DataFrame({"zip": values}))
        assert [str(w.message) for w in caught].count(said) == 1
        assert matrix[:, 0].tolist() == [98003.0, 7.0, 7.0]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([f"{v:.9f}" for v in Z[:99, 0]] + ["k.A."], "99 of its 100 different values look like numbers, 'k.A.' does"),
        ([f"{v:.9f}".replace(".", ",") for v in Z[:100, 0]], "100 of its 100 different values look like numbers, '"),
        ([f"${v:,.2f}" for v in np.arange(50) * 999.5 + 1], "look like numbers"),
        ([f"{d:%m/%d/%Y}" for d in pd.date_range("2024-01-01", periods=60)], r"dates .* '01/01/2024' say; to have da"),
    ],
)  # fmt: skip
def test_text_that_looks_like_numbers_or_dates_is_said(texts, said):
    frame = pd.DataFrame({"x": np.arange(4.0 * len(texts)), "t": texts * 4})
    with pytest.warns(ColumnWarning, match=said):
        kw.MarsRegressor().fit(frame, np.tile(np.arange(len(texts)) % 7.0, 4))


def test_codes_with_zeros_are_not_said_to_be_numbers(recwarn):
    codes = [f"{k:04d}" for k in range(60)] * 5
    kw.MarsRegressor().fit(pd.DataFrame({"code": codes}), np.tile(np.arange(60.0), 5))
    assert not [w for w in recwarn if "look like" in str(w.message)]


@pytest.mark.parametrize(
    "model",
    [kw.MarsRegressor(), kw.SplineNetRegressor(n_members=1, hidden=(16,), epochs=3, random_state=0),
     kw.HingingHyperplanesRegressor(max_hinges=2, random_state=0)],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_saved_and_explained(model, tmp_path):
    model.fit(FRAME.assign(grade=pd.Categorical(np.digitize(Z[:, 1], [0, 1]), ordered=True)), Y)
    frame = FRAME.assign(grade=pd.Categorical(np.digitize(Z[:, 1], [0, 1]), ordered=True))
    kw.save(model, tmp_path / "m")
    again = kw.load(tmp_path / "m")
    assert again.encoder_ == model.encoder_
    assert np.array_equal(again.predict(frame), model.predict(frame))
    explanation = kw.explain(model, frame, Y)
    assert list(explanation.effects) == ["a", "city: mean", "b", "grade"]
    explanation.to_html(tmp_path / "report.html")


@pytest.mark.filterwarnings("ignore:column 'text'")
@pytest.mark.parametrize("estimator", ["MarsRegressor", "MarsClassifier"])
def test_a_column_of_no_use_does_no_harm(estimator):
    """Short form of ``benchmarks/cardinality.py leak``."""
    ratios = []
    for seed in range(3):
        draw = np.random.default_rng(seed)
        U = draw.random((4000, 4))
        y = 10 * np.sin(np.pi * U[:, 0] * U[:, 1]) + 5 * U[:, 2] + draw.normal(size=4000)
        y = (y > 7).astype(float) if "Class" in estimator else y
        X = pd.DataFrame(U).rename(columns=str).assign(text=[f"t{k}" for k in draw.integers(400, size=4000)])
        errors = []
        for frame in (X, X.drop(columns="text")):
            with pytest.MonkeyPatch.context() as patch:
                # Even if the test for differences never said no.
                patch.setattr("knotwork.data.target_encoding.STANDARD_ERRORS", -1e9)
                model = getattr(kw, estimator)().fit(frame[:2000], y[:2000])
            found = model.predict_proba(frame[2000:])[:, 1] if "Class" in estimator else model.predict(frame[2000:])
            errors.append(np.sqrt(np.mean((found - y[2000:]) ** 2)))
        ratios.append(errors[0] / errors[1])
    assert np.mean(ratios) < 1.01


@given(st.integers(2, 40), st.integers(0, 10**6), st.floats(1e-200, 1e200))
def test_any_response_is_encoded_within_its_range(levels, seed, size):
    draw = np.random.default_rng(seed)
    n = draw.integers(2, 200)
    codes, y = draw.integers(levels, size=n), size * draw.standard_cauchy(n)
    found = encode_levels(codes, levels, Response(y[:, None]), None, draw.integers(FOLDS, size=n))
    margin = 1e-6 * np.ptp(y)
    for values in (found.means, found.rows, found.overall):
        assert values.min() >= 2 * y.min() - y.max() - margin
        assert values.max() <= 2 * y.max() - y.min() + margin


def test_memory_is_linear_in_the_rows():
    def peak(n):
        frame = pd.DataFrame({"a": np.arange(n) % 7.0, "city": np.char.add("c", (np.arange(n) // 2).astype(str))})
        y = rng.normal(size=n // 2)[np.arange(n) // 2] + 0.1 * rng.normal(size=n)
        tracemalloc.start()
        learn_table(frame, response=Response(y[:, None]))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(2000)
    small, large = peak(10_000), peak(40_000)
    assert large < 5 * small
    assert large < 40_000 * 1000
