"""Fits to rows that are not in memory equal fits to the same rows in memory, wherever the rows are."""

import contextlib
import itertools
import logging
import os
import pickle
import signal
import uuid
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sklearn.utils._param_validation import InvalidParameterError

import knotwork as kw
from knotwork.data.limits import SAMPLE
from knotwork.errors import DataError, NetworkError, SampleWarning
from knotwork.estimators.sources import SurveyPart
from knotwork.network.train.buffer import Buffered

N = 1400
ENGINES = ["batches", "parquet", "dask"]
TEXT = ["x", "y", "z"]


def table(n=N, seed=0, text=(), gaps=False):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.exponential(size=n), "c": rng.normal(size=n) + 5.0})
    z = np.abs(X.a) + np.sqrt(X.b) + rng.normal(size=n) * 0.3
    if text:
        X["t"] = rng.choice(text, n)
        z += X.t == "x"
    if gaps:
        X.loc[rng.random(n) < 0.1, "c"] = np.nan
        z += 2.0 * X.c.isna()
    return X, z.to_numpy()


# What is fitted: an estimator, its table, y and weights.
def cases():
    rng = np.random.default_rng(1)
    X, z = table()
    yield "regression", kw.MarsRegressor(), X, z, None
    yield "several responses", kw.MarsRegressor(scale_responses=True), X, np.stack([z, 100 * X.c + z], axis=1), None
    yield "two classes", kw.MarsClassifier(), X, z > np.median(z), None
    labels = np.array(["low", "middle", "top"], dtype=object)[np.digitize(z, [1.5, 2.5])]
    yield "three classes", kw.MarsClassifier(class_weight="balanced"), X, labels, None
    yield "weights", kw.MarsRegressor(), X, z, rng.integers(0, 3, N).astype(float)
    X, z = table(text=TEXT)
    yield "text", kw.MarsRegressor(), X, z, None
    X, z = table(gaps=True)
    yield "gaps", kw.MarsRegressor(), X, z, rng.uniform(0.5, 1.5, N)
    yield "monotone", kw.MarsRegressor(monotonic_cst={"b": 1}), X, z, None
    X, z = table(text=["x", "y"], gaps=True)
    z = z + 3.0 * np.minimum(X.a.clip(lower=0), X.b) + 1.5 * X.b * (X.t == "y")
    yield "degree 2", kw.MarsRegressor(max_degree=2, max_terms=11), X, z, rng.uniform(0.5, 1.5, N)
    labels = np.array(["low", "middle", "top"], dtype=object)[np.digitize(z, np.quantile(z, [0.3, 0.7]))]
    yield "classes of degree 2", kw.MarsClassifier(max_degree=2, max_terms=9), X, labels, rng.uniform(0.5, 1.5, N)
    # The rest of interactions, on one engine.
    options = {"interaction": "product", "max_parents": 3, "max_terms": 9}
    yield "products of degree 3", kw.MarsRegressor(max_degree=3, **options), X, z, None
    auto = kw.MarsRegressor(max_degree="auto", max_terms=9)
    yield "automatic degree 2", auto, X, np.stack([z, X.b - z], axis=1), None
    yield (
        "automatic degree 2 of classes",
        kw.MarsClassifier(max_degree="auto", max_terms=9),
        X,
        X.a * (X.b > 0.7) > 0.2,
        None,
    )


CASES = {name: rest for name, *rest in cases()}


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes."""
    from dask.distributed import Client, LocalCluster

    options = {"processes": True, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with LocalCluster(n_workers=2, **options) as workers, Client(workers) as client:
        yield client


def pieces(X, y, weight, parts=7):
    edges = np.linspace(0, len(X), parts + 1).astype(int)
    rows = [slice(a, b) for a, b in itertools.pairwise(edges)]
    return [(X.iloc[r], y[r]) if weight is None else (X.iloc[r], y[r], weight[r]) for r in rows]


def fitted(engine, name, folder):
    model, X, y, weight = CASES[name]
    model = pickle.loads(pickle.dumps(model))
    if engine == "batches":
        return model.fit(kw.Batches(pieces(X, y, weight)))
    if engine == "parquet":
        columns = {"y": y} if y.ndim == 1 else {f"y{k}": column for k, column in enumerate(y.T)}
        names = "y" if y.ndim == 1 else list(columns)
        frame = X.assign(**columns, **({} if weight is None else {"w": weight}))
        path = folder / f"{name}.parquet"
        pq.write_table(pa.Table.from_pandas(frame), path, row_group_size=N // 7)
        assert pq.ParquetFile(path).num_row_groups == 7
        return model.fit(path, names, None if weight is None else "w")
    import dask.array as da
    import dask.dataframe as dd

    chunks = dd.from_pandas(X, npartitions=5).map_partitions(len).compute().tolist()
    collections = [None if v is None else da.from_array(v, chunks=(tuple(chunks), *v.shape[1:])) for v in (y, weight)]
    return model.fit(dd.from_pandas(X, npartitions=5), *collections)


def structure(term):
    """What a term is, but for the slopes of a minimum."""
    return type(term), getattr(term, "hinges", term)


@pytest.mark.parametrize(
    ("engine", "name"),
    [(e, name) for e in ENGINES for name in CASES if e == "batches" or not name.startswith(("auto", "products"))],
)
def test_a_fit_to_parts_is_the_fit_in_memory(engine, name, tmp_path, request):
    if engine == "dask":
        request.getfixturevalue("cluster")
    model, X, y, weight = CASES[name]
    expected = pickle.loads(pickle.dumps(model)).fit(X, y, weight)
    found = fitted(engine, name, tmp_path)
    assert [structure(term) for term in found.spline_.terms] == [structure(term) for term in expected.spline_.terms]
    slopes = [[slope for term in m.spline_.terms for slope in getattr(term, "slopes", ())] for m in (found, expected)]
    np.testing.assert_allclose(*slopes, rtol=1e-12)  # those of a minimum are quotients of stds, which are sums
    assert ("degree" in name) <= any(len(term.features) > 1 for term in expected.spline_.terms)
    values = [m.decision_function(X) if hasattr(m, "classes_") else m.predict(X) for m in (found, expected)]
    size = np.std(values[1], axis=0)
    # Sums are not corrected by the rows where inequalities hold.
    assert (np.abs(values[0] - values[1]) <= (1e-6 if name == "monotone" else 1e-9) * size).all()
    np.testing.assert_allclose(found.gcv_, expected.gcv_, rtol=1e-9)
    np.testing.assert_allclose(found.feature_importances_, expected.feature_importances_, atol=1e-6)
    assert found.get_feature_names_out().tolist() == expected.get_feature_names_out().tolist()
    if hasattr(expected, "classes_"):
        np.testing.assert_array_equal(found.classes_, expected.classes_)
        np.testing.assert_allclose(found.deviance_, expected.deviance_, rtol=1e-9)
        np.testing.assert_allclose(found.null_deviance_, expected.null_deviance_, rtol=1e-12)
    chosen = [getattr(m.fit_, "search", m.fit_).selection.held_out_by_degree for m in (found, expected)]
    assert bool(chosen[1]) == name.startswith("auto")
    np.testing.assert_allclose(*chosen, rtol=1e-9)
    copy = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(copy.predict(X), found.predict(X))


def test_nearly_collinear_terms_are_corrected_by_the_rows():
    rng = np.random.default_rng(0)
    a = rng.normal(size=2000)
    X = pd.DataFrame({"a": a, "b": a + 1e-4 * rng.normal(size=2000), "c": rng.normal(size=2000)})
    y = np.abs(a) + 3e3 * (X.b - X.a).to_numpy() + rng.normal(size=2000) * 0.1
    expected = kw.MarsRegressor(threshold=0).fit(X, y)
    found = kw.MarsRegressor(threshold=0).fit(kw.Batches(pieces(X, y, None)))
    assert [str(t) for t in found.spline_.terms] == [str(t) for t in expected.spline_.terms]
    assert np.abs(found.predict(X) - expected.predict(X)).max() <= 1e-6 * y.std()


def test_sampled_knots_predict_as_well(tmp_path):
    X, y = table(SAMPLE + 30_000, seed=3)
    new, target = table(20_000, seed=4)
    mean = [np.mean((m.predict(new) - target) ** 2) for m in (
        kw.MarsRegressor().fit(X, y), kw.MarsRegressor().fit(kw.Batches(pieces(X, y, None, 3)))
    )]  # fmt: skip
    assert mean[1] <= 1.005 * mean[0]


def test_the_survey_of_parts_is_that_of_all_rows():
    X, y = table(SAMPLE + 10_000, seed=5, text=TEXT)
    X["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(len(X)) % 900, unit="D")
    X.loc[70_001, "c"] = np.nan  # one gap, which the sample may not have
    X.loc[3, "t"] = "rare"
    found = kw.MarsRegressor(max_terms=8).fit(kw.Batches(pieces(X, y, None, 4)))
    expected = kw.MarsRegressor(max_terms=8).fit(X, y)
    assert found.encoder_.feature_names == expected.encoder_.feature_names
    numbers = [k for k, name in enumerate(found.encoder_.feature_names) if name in ("a", "b", "day")]
    assert found.limits_.lower[numbers].tolist() == pytest.approx(expected.limits_.lower[numbers].tolist())
    assert found.knots_[0].count == 0
    assert found.training_rows_ is None


def test_memory_maps_and_datasets(tmp_path):
    X, y = table()
    expected = kw.MarsRegressor().fit(X, y).predict(X)
    np.save(tmp_path / "X.npy", X.to_numpy())
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    found = kw.MarsRegressor().fit(kw.Batches(mapped, memory_limit=1 << 26), y)
    np.testing.assert_allclose(found.predict(mapped), expected, atol=1e-9)
    for k, (part, own) in enumerate(pieces(X, y, None, 3)):
        pq.write_table(pa.Table.from_pandas(part.assign(y=own)), tmp_path / f"{k}.parquet")
    (tmp_path / "X.npy").unlink()
    for source in (ds.dataset(tmp_path), tmp_path, str(tmp_path)):
        found = kw.MarsRegressor().fit(source, "y")
        np.testing.assert_allclose(found.predict(X), expected, atol=1e-9)
        assert list(found.feature_names_in_) == ["a", "b", "c"]


def test_filters_and_partitions_of_datasets_count(tmp_path):
    X, y = table(text=TEXT)
    expected = kw.MarsRegressor().fit(X[X.a < 0.5], y[X.a < 0.5]).predict(X)
    frame = X.assign(y=y)
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "t.parquet", row_group_size=100)
    some = ds.dataset(tmp_path / "t.parquet").filter(ds.field("a") < 0.5)
    np.testing.assert_allclose(kw.MarsRegressor().fit(some, "y").predict(X), expected, atol=1e-9)
    frame = frame.sort_values("t", kind="stable", ignore_index=True)
    pq.write_to_dataset(pa.Table.from_pandas(frame), tmp_path / "hive", partition_cols=["t"])
    found = kw.MarsRegressor().fit(ds.dataset(tmp_path / "hive", partitioning="hive"), "y")
    assert list(found.feature_names_in_) == ["a", "b", "c", "t"]
    np.testing.assert_allclose(found.predict(X), kw.MarsRegressor().fit(frame[list(X)], frame.y).predict(X), atol=1e-9)


def test_any_object_that_can_be_read_again():
    import torch

    X, y = table()
    rows = torch.utils.data.TensorDataset(torch.tensor(X.to_numpy()), torch.tensor(y))
    loader = torch.utils.data.DataLoader(rows, batch_size=300)
    found = kw.MarsRegressor().fit(loader)
    np.testing.assert_allclose(found.predict(X.to_numpy()), kw.MarsRegressor().fit(X, y).predict(X), atol=1e-9)


def test_parts_without_weight_or_rows_count_nothing(tmp_path):
    X, y = table()
    weight = np.ones(N)
    weight[400:600] = 0.0  # all of one batch
    expected = kw.MarsRegressor().fit(X, y, weight).predict(X)
    parts = [(X[a:b], y[a:b], weight[a:b]) for a, b in ((0, 0), (0, 400), (400, 600), (600, N))]
    np.testing.assert_allclose(kw.MarsRegressor().fit(kw.Batches(parts)).predict(X), expected, atol=1e-9)
    labels = [(a, b > 2, c) for a, b, c in parts]
    found = kw.MarsClassifier().fit(kw.Batches(labels)).decision_function(X)
    np.testing.assert_allclose(found, kw.MarsClassifier().fit(X, y > 2, weight).decision_function(X), atol=1e-6)


def test_files_of_a_folder_must_go_together(tmp_path):
    X, y = table(400)
    pq.write_table(pa.Table.from_pandas(X.assign(y=y)), tmp_path / "1.parquet")
    pq.write_table(pa.Table.from_pandas(X.assign(y=y, b="text")), tmp_path / "2.parquet")
    with pytest.raises(DataError, match="columns of the same types"):
        kw.MarsRegressor().fit(tmp_path, "y")


def test_columns_that_no_term_uses_are_read_twice(tmp_path):
    X, y = table()
    read = []

    class Watched(kw.Batches):
        def source(self, *how):
            source = super().source(*how)
            parts = source.parts
            source.parts = lambda columns: read.append(columns) or parts(columns)
            return source

    pq.write_table(pa.Table.from_pandas(X.assign(y=y, n=np.arange(N) % 2)), tmp_path / "t.parquet")
    kw.MarsRegressor().fit(Watched(tmp_path / "t.parquet"), "y")
    assert read == [None, None, ["a", "b"]]


class Growing:
    """Batches that are more each time."""

    def __init__(self, X, y):
        self.batches, self.times = (X, y), 0

    def __iter__(self):
        self.times += 1
        return iter([self.batches] * self.times)


def test_interactions_take_a_reading_for_a_step():
    _, X, y, _ = CASES["degree 2"]
    times = []
    for degree in (1, 2):
        source = Counted(pieces(X, y, None))
        found = kw.MarsRegressor(max_degree=degree, max_terms=9).fit(kw.Batches(source))
        times.append(source.times)
    steps = len(found.fit_.selection.steps) - 1
    assert found.fit_.selection.stopped == "reached max_terms (9)"
    assert steps >= 4
    assert times[1] == times[0] + steps - 1  # nothing follows the last step


class Drifting(Growing):
    """Batches whose values are others from the fourth reading on."""

    def __iter__(self):
        self.times += 1
        X, y = self.batches
        return iter([(X, y), (X + 1e-9 * (self.times > 3), y)])


def test_readings_for_interactions_are_compared_too():
    X, y = table(400)
    with pytest.raises(DataError, match="column 'a' has other values than before"):
        kw.MarsRegressor(max_degree=2).fit(kw.Batches(Drifting(X, y)))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (kw.MarsRegressor(max_degree=2, monotonic_cst={"a": 1}), "are additive, got max_degree=2"),
        (kw.MarsRegressor(cv=3), "none held out, got cv=3"),
        (kw.MarsRegressor(loss="poisson"), "squared errors from sums of parts, got loss='poisson'"),
        (kw.MarsRegressor(compat="earth"), "got compat='earth'"),
        (kw.MarsRegressor(backend="torch"), "summed on the CPU"),
        (kw.MarsRegressor(max_knots=None), "got max_knots=None"),
        (kw.MarsClassifier(monotonic_cst={"a": 1}), "got monotonic_cst"),
    ],
)
def test_what_fits_to_parts_do_not_have(model, message):
    X, y = table(400)
    y = y if isinstance(model, kw.MarsRegressor) else y > 2
    with pytest.raises(DataError, match=message):
        model.fit(kw.Batches(pieces(X, y, None)))
    assert not hasattr(model, "fit_")


class Silent:
    """Has an ``__iter__`` that says nothing, as a scripted module of torch does."""

    def __iter__(self):
        raise NotImplementedError


def broken():
    X, y = table(400)
    many = X.assign(t=[f"level {k % 60}" for k in range(400)])
    yield "a generator", lambda: (pair for pair in pieces(X, y, None)), None, "can be read once at most"
    yield "an __iter__ that raises", lambda: kw.Batches(Silent()), None, "can be read once at most"
    yield "no pairs", lambda: kw.Batches([X, X]), None, r"batches must be \(X, y\)"
    yield "y beside", lambda: kw.Batches(pieces(X, y, None)), y, "bring their own y"
    yield "no rows", lambda: kw.Batches([]), None, "the source has none"
    yield "other columns", lambda: kw.Batches([(X, y), (X[["a", "b"]], y)]), None, "the same columns"
    yield "other kinds", lambda: kw.Batches([(X, y), (X.astype({"a": str}), y)]), None, "columns of one kind"
    yield "infinity", lambda: kw.Batches([(X, y), (X.replace({"a": {X.a[0]: np.inf}}), y)]), None, "contains inf"
    yield "many categories", lambda: kw.Batches(pieces(many, y, None)), None, "has 60 categories"
    yield "no such file", lambda: "nowhere.parquet", "y", "does not exist"
    yield "some weights", lambda: kw.Batches([(X, y, np.ones(400)), (X, y)]), None, "some with and some without"
    yield "a growing source", lambda: kw.Batches(Growing(X, y)), None, "got 800 rows and then 1200"
    yield "lengths", lambda: kw.Batches([(X, y[:5])]), None, "same number of rows"


@pytest.mark.parametrize(("what", "X", "y", "message"), [pytest.param(*case, id=case[0]) for case in broken()])
def test_bad_sources_are_refused(what, X, y, message):
    with pytest.raises(DataError, match=message):
        kw.MarsRegressor().fit(X(), y)


def test_names_of_columns_are_checked(tmp_path):
    X, y = table(400)
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_pandas(X.assign(y=y)), path)
    for own, weight, message in (
        ("z", None, "no column 'z'"),
        ("y", "w", "no column 'w'"),
        (y, None, "name of a column"),
        (["y", "y"], None, "must be different columns of the file"),
        ("y", "y", "must be different columns of the file"),
    ):
        with pytest.raises(DataError, match=message):
            kw.MarsRegressor().fit(path, own, weight)
    (tmp_path / "text.parquet").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="must be Parquet"):
        kw.MarsRegressor().fit(tmp_path / "text.parquet", "b")
    with pytest.raises(DataError, match="memory_limit must be a number of bytes"):
        kw.Batches(path, memory_limit=10)
    wide = np.random.default_rng(0).normal(size=(50, 500))
    with pytest.raises(DataError, match="leave room for fewer than 3 knots"):
        kw.MarsRegressor().fit(kw.Batches(wide, memory_limit=1 << 26), wide[:, 0])
    wide = wide.reshape(-1, 50)
    with pytest.raises(DataError, match="those of 121 terms and 20 parents need"):
        kw.MarsRegressor(max_degree=2, max_terms=121).fit(kw.Batches(wide, memory_limit=1 << 26), wide[:, 0])
    with pytest.raises(InvalidParameterError):
        kw.MarsRegressor(max_knots=0).fit(path, "y")


def test_predictions_of_collections_wait_until_they_are_asked_for(cluster):
    import dask.array as da
    import dask.dataframe as dd

    X, y = table(text=TEXT)
    frames = dd.from_pandas(X, npartitions=3)
    regressor = kw.MarsRegressor().fit(X, np.stack([y, -y], axis=1))
    found = regressor.predict(frames)
    assert isinstance(found, da.Array)
    assert found.shape[1:] == (2,)
    np.testing.assert_array_equal(found.compute(), regressor.predict(X))
    classifier = kw.MarsClassifier().fit(X[["a", "b"]].to_numpy(), np.where(y > 2, "high", "low"))
    rows = da.from_array(X[["a", "b"]].to_numpy(), chunks=(500, 1))
    for name in ("predict", "predict_proba", "decision_function", "predict_log_proba"):
        method = getattr(classifier, name)
        lazy = method(rows)
        assert lazy.shape == method(X[["a", "b"]].to_numpy()).shape
        np.testing.assert_array_equal(lazy.compute(), method(X[["a", "b"]].to_numpy()))


def test_collections_must_match():
    import dask.array as da

    X, y = table(400)
    rows = da.from_array(X.to_numpy(), chunks=(100, 3))
    with pytest.raises(DataError, match="y must be a Dask array or series"):
        kw.MarsRegressor().fit(rows, y)
    with pytest.raises(DataError, match="same number of rows, got 400 and 399"):
        kw.MarsRegressor().fit(rows, da.from_array(y[:399], chunks=100))


def dying(part, folder):
    """Return a partition; the ninth call of all, in the second reading of six partitions, kills its worker first."""
    (Path(folder) / uuid.uuid4().hex).touch()
    calls = len(list(Path(folder).iterdir()))
    if calls >= 9 and not (Path(folder) / "killed").exists():
        (Path(folder) / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


def test_a_worker_that_dies_changes_nothing(cluster, tmp_path):
    import dask.dataframe as dd

    X, y = table(text=TEXT, gaps=True)
    frames = dd.from_pandas(X.assign(y=y), npartitions=6)
    expected = kw.MarsRegressor().fit(frames[list(X)], frames["y"])
    mortal = frames[list(X)].map_partitions(dying, str(tmp_path), meta=frames[list(X)]._meta)
    found = kw.MarsRegressor().fit(mortal, frames["y"])
    assert (tmp_path / "killed").exists()
    assert found.spline_.coef.tobytes() == expected.spline_.coef.tobytes()
    assert found.spline_.intercept.tobytes() == expected.spline_.intercept.tobytes()
    assert found.gcv_ == expected.gcv_
    with contextlib.suppress(Exception):
        cluster.wait_for_workers(2, timeout=20)


def small_sample(monkeypatch, rows=600):
    """Let a sample have fewer rows, so that small sources are larger than it."""
    monkeypatch.setattr("knotwork.data.survey.SAMPLE", rows)


def network(name, **options):
    kind = kw.SplineNetClassifier if "classes" in name else kw.SplineNetRegressor
    return kind(**{"hidden": (32,), "epochs": 2, "batch_size": 64, "random_state": 0, **options})


class Counted:
    """Batches that count how often they are read."""

    def __init__(self, batches):
        self.batches, self.times = batches, 0

    def __iter__(self):
        self.times += 1
        return iter(self.batches)


@pytest.mark.parametrize("name", ["text", "three classes"])
def test_networks_train_on_rows_as_they_are_read(name, monkeypatch):
    _, X, y, _ = CASES[name]
    whole = network(name).fit(kw.Batches(pieces(X, y, None, 1)))
    assert len(whole.oof_prediction_) == N
    small_sample(monkeypatch)
    stepped = []
    shuffled = Buffered.shuffled

    def watched(self, *how):
        for batch in shuffled(self, *how):
            stepped.append(len(batch))
            yield batch

    monkeypatch.setattr(Buffered, "shuffled", watched)
    source = Counted(pieces(X, y, None, 7))
    found = network(name).fit(kw.Batches(source))
    held = np.count_nonzero(~np.isnan(found.oof_prediction_.reshape(600, -1)[:, 0]))
    assert 60 < held < 120  # 15 % of the sample; all other rows train
    assert sum(stepped) == 2 * (N - held)
    assert found.training_rows_ is None
    # The start is that of all rows: as good on those that the sample never had.
    errors = []
    for model in (whole, found):
        values = model.spline_(model.encoder_.encode(X))
        wrong = model.classes_[values.argmax(axis=1)] != y if "classes" in name else (values - y) ** 2
        errors.append(np.mean(wrong))
    assert errors[1] <= 1.05 * errors[0]
    assert found.score(X, y) > 0.7
    readings = source.times
    again = network(name, epochs=3).fit(kw.Batches(source))
    assert source.times - readings == readings + 1  # an epoch is a reading
    assert np.array_equal(network(name).fit(kw.Batches(source)).predict(X), found.predict(X))
    assert again.history_.validation_loss[:1] == found.history_.validation_loss[:1]
    with pytest.raises(NetworkError, match="is additive"):
        network(name, hidden=(8, 8), max_degree=2, epochs=0).fit(kw.Batches(pieces(X, y, None)))


def test_held_out_rows_and_their_copies_are_in_no_batch(monkeypatch):
    X, y = table(700)
    X, y = pd.concat([X, X], ignore_index=True), np.concatenate([y, y])
    small_sample(monkeypatch)
    rows = []
    step = "knotwork.network.train.loop._Run._step"
    from knotwork.network.train.loop import _Run

    plain = _Run._step
    monkeypatch.setattr(step, lambda self, batch, *how: rows.append(batch.x.numpy()) or plain(self, batch, *how))
    found = network("text", epochs=1).fit(kw.Batches(pieces(X, y, None)))
    held = found.coordinates_.features(found.encoder_.encode(X)).astype(rows[0].dtype)
    trained = {row.tobytes() for batch in rows for row in batch}
    out = [row.tobytes() not in trained for row in held]
    assert np.array_equal(out[:700], out[700:])
    sampled = np.isfinite(found.oof_prediction_).sum()
    assert sampled <= sum(out) <= 2 * sampled


@pytest.mark.parametrize("kind", ["parquet", "array"])
def test_streams_of_files_are_shuffled_beyond_the_buffer(kind, tmp_path, monkeypatch):
    X, y = table()
    order = np.argsort(y)
    X, y = X.iloc[order].reset_index(drop=True), y[order]  # the worst order: sorted by the response
    small_sample(monkeypatch)
    if kind == "parquet":
        pq.write_table(pa.Table.from_pandas(X.assign(y=y)), tmp_path / "t.parquet", row_group_size=100)
        source, target = kw.Batches(tmp_path / "t.parquet"), "y"
    else:
        monkeypatch.setattr("knotwork.data.batches.BLOCK", 100)
        source, target = kw.Batches(X.to_numpy()), y
    orders = [None, *map(np.random.default_rng, (0, 0, 1))]
    parts = [np.concatenate([p.y for p in source.source(target, None).parts(None, order)]) for order in orders]
    assert np.array_equal(parts[0], y)
    assert np.array_equal(parts[1], parts[2])
    assert not np.array_equal(parts[1], parts[3])
    assert np.array_equal(np.sort(parts[1]), y)
    assert abs(np.corrcoef(parts[1], y)[0, 1]) < 0.7
    found = network("text").fit(source, target)
    assert found.score(X if kind == "parquet" else X.to_numpy(), y) > 0.7


def test_a_buffer_gives_every_row_once_an_epoch():
    import torch

    from knotwork.network.train.rows import Part

    def part(first, last):
        values = torch.arange(first, last, dtype=torch.float64)
        return Part(values[:, None], values[:, None], torch.ones(last - first))

    seen = []
    buffered = Buffered(lambda seed: iter([part(0, 70), part(70, 71), part(71, 205)]), 205, 60, part(0, 2))
    for seed in (0, 0, 1):
        batches = list(buffered.shuffled(8, torch.Generator().manual_seed(seed)))
        assert {len(batch) for batch in batches[:-1]} == {8}
        assert len(batches) == buffered.steps(8)
        seen.append(torch.cat([batch.x[:, 0] for batch in batches]))
        assert seen[-1].sort().values.tolist() == list(range(205))
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
    # A row waits: the first batches have none of the last rows, and later ones some of the first.
    assert seen[0][:24].max() < 60
    assert (seen[0][100:] < 60).any()
    with pytest.raises(DataError, match="the same rows each time it is read, got 206 rows to train on and then 205"):
        list(Buffered(buffered.read, 206, 60, part(0, 2)).shuffled(8, torch.Generator()))


def test_a_stream_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    _, X, y, _ = CASES["text"]
    small_sample(monkeypatch)
    source = kw.Batches(pieces(X, y, None))
    expected = network("text", epochs=4).fit(source)

    class Stopping(Counted):
        def __iter__(self):
            self.times += 1
            if self.times == self.last:
                raise KeyboardInterrupt
            return iter(self.batches)

    stopping = Stopping(source.data)
    stopping.last = 0
    network("text", epochs=0).fit(kw.Batches(stopping))
    stopping.last = 2 * stopping.times + 3  # in the third epoch
    model = network("text", epochs=4, checkpoint=tmp_path / "state")
    with pytest.raises(KeyboardInterrupt):
        model.fit(kw.Batches(stopping))
    assert not hasattr(model, "network_")
    assert (tmp_path / "state").exists()
    assert np.array_equal(model.fit(source).predict(X), expected.predict(X))


def test_collections_of_dask_train_on_a_sample(monkeypatch):
    import dask
    import dask.dataframe as dd

    _, X, y, _ = CASES["regression"]
    small_sample(monkeypatch)
    frames = dd.from_pandas(X.assign(y=y), npartitions=3)
    own = dask.config.set(scheduler="synchronous")  # other processes have samples of the usual size
    with own, pytest.warns(SampleWarning, match="a uniform sample of 600 of 1400 rows"):
        found = network("text").fit(frames[list(X)], frames["y"])
    assert len(found.oof_prediction_) == 600
    assert found.score(X, y) > 0.7


@pytest.mark.parametrize("option", [{"validation": [([0, 1], [2, 3])]}, {"spline_fraction": 0.5}])
def test_networks_of_sources_hold_rows_out_by_content(option):
    X, y = table(400)
    with pytest.raises(DataError, match="held out by their values"):
        network("text", **option).fit(kw.Batches(pieces(X, y, None)))
    with pytest.raises(DataError, match="groups are for rows in memory"):
        network("text").fit(kw.Batches(pieces(X, y, None)), groups=np.zeros(400))


class Failing:
    """Batches that cannot be read."""

    def __iter__(self):
        yield np.eye(4), np.arange(4.0)
        raise RuntimeError("the disk is gone")


@pytest.mark.parametrize(
    ("X", "y", "weight", "message"),
    [
        (kw.Batches(Failing()), None, None, "raised RuntimeError: the disk is gone"),
        (
            kw.Batches([(None, None)]),
            None,
            None,
            "a part must be a table or an array with rows, number 0 is a NoneType",
        ),
        (kw.Batches([(object(), object())]), None, None, "number 0 is a object"),
        (kw.Batches([(np.eye(4), np.ones((4, 1))), (np.eye(4), np.eye(4))]), None, None, "must have a y of one shape"),
        (kw.Batches(np.ones((40, 3))), 3, None, "needs a y of as many values, got 3"),
        (
            kw.Batches(np.ones((40, 3))),
            np.ones(40),
            np.ones(3),
            "needs a sample_weight of as many values, got 3 values",
        ),
        (kw.Batches(np.ones((40, 0))), np.ones(40), None, "needs at least one column"),
        (memoryview(np.eye(4)), None, None, "the target y is None"),
    ],
)
def test_sources_that_hold_something_else(X, y, weight, message):
    with pytest.raises(DataError, match=message):
        kw.MarsRegressor().fit(X, y, weight)


def test_files_whose_columns_change_their_type(tmp_path):
    table = pa.table({"a": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 4.0]})
    pq.write_table(table, tmp_path / "a.parquet")
    pq.write_table(table.set_column(0, "a", pa.array(["u", "v", "w"])), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="columns of the same types"):
        kw.MarsRegressor().fit(tmp_path, "y")


def test_a_folder_without_files_and_a_file_that_goes_away(tmp_path, monkeypatch):
    X, y = table(400)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="a folder of them, there is none"):
        kw.MarsRegressor().fit(tmp_path / "empty", "y")
    path = tmp_path / "t.parquet"
    pq.write_table(pa.Table.from_pandas(X.assign(y=y)), path, row_group_size=100)
    task = "knotwork.estimators.sources.SurveyPart.__call__"
    plain = SurveyPart.__call__
    monkeypatch.setattr(task, lambda self, rows: path.unlink(missing_ok=True) or plain(self, rows))
    with pytest.raises(DataError, match="files of a source must stay where they are"):
        kw.MarsRegressor().fit(path, "y")


def test_partitions_that_cannot_be_computed():
    da, delayed = pytest.importorskip("dask.array"), pytest.importorskip("dask.delayed").delayed

    def fail():
        raise RuntimeError("no such row")

    X = da.concatenate([da.ones((12, 3)), da.from_delayed(delayed(fail)(), shape=(12, 3), dtype=float)])
    with pytest.raises(DataError, match="one raised RuntimeError: no such row"):
        kw.MarsRegressor().fit(X, da.ones(24, chunks=12))


def test_parameters_that_are_arrays_are_compared():
    with pytest.raises((DataError, ValueError), match="cv"):
        kw.MarsRegressor(cv=np.full((4, 3), 3)).fit(kw.Batches([(np.eye(4), np.arange(4.0))]))
