"""The benchmark suite: splits, what is final, forms of tables, statistics; on tables made here, without its wheels."""

import numpy as np
import pandas as pd
import pytest
from benchmarks.suite import __main__ as commands
from benchmarks.suite import draw, load, measure, models, prepare, ranks, report, results, small, starts
from benchmarks.suite.catalogue import CLASSES, REGRESSION, TABLES
from scipy import stats


def frame(rows: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    price = rng.normal(size=rows)
    return pd.DataFrame({
        "price": price,
        "area": np.where(rng.random(rows) < 0.2, np.nan, price + rng.normal(size=rows)),
        "code": rng.integers(0, 3, rows),
        "kind": pd.Series(rng.choice(["a", "b", "c"], rows)).mask(rng.random(rows) < 0.1),
        "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 700, rows), unit="D"),
        "class": np.where(price > 0.5, "high", np.where(price < np.sort(price)[3], "rare", "low")),
        "id": np.arange(rows),
    })  # fmt: skip


@pytest.fixture
def saratoga(monkeypatch):
    """A regression table and a table with classes, in the places of two development tables."""
    tables = {
        "saratoga": load.Table("R:a/b", "price", "regression", "", ("id", "class"), ("sold",), ("code",)),
        "chile": load.Table("R:a/b", "class", "classes", "", ("id", "price"), ("sold",)),
    }
    monkeypatch.setattr(load, "_read", lambda place: frame())
    for name, table in tables.items():
        monkeypatch.setitem(TABLES, name, table)
    load.load.cache_clear()
    yield
    load.load.cache_clear()


def test_the_final_third_is_what_the_seed_draws():
    assert draw.PATH.read_text().split() == draw.draw()
    assert len(draw.FINAL & set(REGRESSION)) == len(REGRESSION) // 3
    assert len(draw.FINAL & set(CLASSES)) == len(CLASSES) // 3
    assert len(REGRESSION) >= 20
    assert len(CLASSES) >= 15


def test_final_tables_are_refused_without_the_option():
    assert not draw.FINAL & set(commands.chosen_tables(None, final=False))
    assert set(commands.chosen_tables(None, final=True)) == draw.FINAL
    final = min(draw.FINAL)
    with pytest.raises(SystemExit, match=f"{final} is a final table"):
        commands.main(["run", "--tables", "saratoga", final, "--models", "linear"])
    with pytest.raises(SystemExit, match="final tables only"):
        commands.chosen_tables(["saratoga", final], final=True)
    with pytest.raises(SystemExit, match="no table 'nowhere'"):
        commands.chosen_tables(["nowhere"], final=False)
    assert not draw.FINAL & set(small.tables())


@pytest.mark.usefixtures("saratoga")
def test_columns_come_as_they_are():
    X = load.load("saratoga").X
    assert list(X) == ["area", "code", "kind", "sold"]
    assert load.text_columns(X) == ["code", "kind"]
    assert X["area"].isna().any()
    assert X["kind"].isna().any()
    assert set(X["code"]) == {"0", "1", "2"}
    assert pd.api.types.is_datetime64_any_dtype(X["sold"])


@pytest.mark.usefixtures("saratoga")
def test_rare_classes_are_left_out():
    assert (frame()["class"] == "rare").sum() == 3
    whole = load.load("chile")
    assert set(whole.y) == {"high", "low"}
    assert len(whole.X) == len(whole.y) == 397


@pytest.mark.usefixtures("saratoga")
def test_stored_tables_are_those_of_the_wheels(tmp_path, monkeypatch):
    commands.main(["store", str(tmp_path), "--tables", "saratoga", "chile"])
    wheels = {name: load.load(name) for name in ("saratoga", "chile")}
    assert wheels["saratoga"].X["kind"].isna().any()
    monkeypatch.setenv("KNOTWORK_TABLES", str(tmp_path))
    monkeypatch.setattr(load, "_read", lambda place: pytest.fail("the wheel is read"))
    load.load.cache_clear()
    for name, whole in wheels.items():
        stored = load.load(name)
        pd.testing.assert_frame_equal(stored.X, whole.X, check_exact=True)
        np.testing.assert_array_equal(stored.y, whole.y)
        assert stored.y.dtype == whole.y.dtype


@pytest.mark.usefixtures("saratoga")
def test_splits_are_disjoint_and_repeatable():
    train, test = load.load_split("saratoga", 1)
    again, _ = load.load_split("saratoga", 1)
    other, _ = load.load_split("saratoga", 2)
    assert len(train.y) == 280
    assert len(test.y) == 120
    assert not set(train.y) & set(test.y)
    np.testing.assert_array_equal(train.y, again.y)
    assert (train.y != other.y).any()
    few, rest = load.load_split("saratoga", 1, 50)
    assert (len(few.y), len(rest.y)) == (50, 350)
    one, two = load.load_split("chile", 0)
    assert abs(np.mean(one.y == "high") - np.mean(two.y == "high")) < 0.02


@pytest.mark.usefixtures("saratoga")
def test_forms_of_the_table():
    train, test = load.load_split("saratoga", 0)
    unseen = test.X.assign(kind="new")
    by_target = prepare.categories(max_levels=2, target_type="continuous")
    for form in (prepare.numeric(train.X), prepare.filled(), prepare.named(), by_target):
        made = pd.DataFrame(form.fit_transform(train.X, train.y))
        later = pd.DataFrame(form.transform(unseen))
        assert len(made) == len(train.y)
        assert made.shape[1] == later.shape[1]
    numbers = prepare.numeric(train.X).fit(train.X)
    for values in (numbers.transform(train.X), numbers.transform(unseen)):
        assert np.isfinite(values).all()
    assert not prepare.filled().fit_transform(train.X).isna().any().any()
    categories = prepare.categories().fit(train.X, train.y)
    text = categories.transform(unseen).select_dtypes("category")
    assert text.shape[1] == 2
    assert text.iloc[:, 1].isna().all()


@pytest.mark.usefixtures("saratoga")
def test_run_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    out = tmp_path / "results.csv"
    asked = ["run", "--tables", "saratoga", "chile", "--models", "linear", "hgb", "--out", str(out)]
    commands.main([*asked, "--splits", "0"])
    first = results.read(out)
    assert list(first.metric) == ["rmse", "rmse", "log_loss", "log_loss"]
    assert first.error_rate.notna().tolist() == [False, False, True, True]
    assert (first.error > 0).all()
    fitted = []
    real = measure.measure
    monkeypatch.setattr(measure, "measure", lambda *a, **k: fitted.append(a) or real(*a, **k))
    commands.main([*asked, "--splits", "0", "1"])
    assert {split for _, split, _ in fitted} == {1}
    assert len(results.read(out)) == 8
    fitted.clear()
    commands.main([*asked, "--splits", "0", "--again"])
    assert len(fitted) == 4
    assert len(results.read(out)) == 8


@pytest.mark.usefixtures("saratoga")
def test_own_models_are_measured(tmp_path):
    result = measure.measure("saratoga", 0, "mars_1")
    train, test = load.load_split("saratoga", 0)
    assert result.error < np.sqrt(np.mean((test.y - train.y.mean()) ** 2))
    assert result.version.startswith("0.")


@pytest.mark.usefixtures("saratoga")
def test_networks_train_on_the_device_that_is_named(tmp_path, capsys):
    X = load.load("saratoga").X
    assert models.make("net_1", X, "regression", 0, "meta").device == "meta"
    out = tmp_path / "results.csv"
    commands.main(
        ["run", "--tables", "saratoga", "--models", "net_1", "--splits", "0", "--device", "meta", "--out", str(out)]
    )
    assert "device must name a device of this machine, 'meta'" in capsys.readouterr().out
    assert not out.exists()


def test_a_failing_model_leaves_no_row(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(measure, "measure", lambda *a, **k: 1 / 0)
    commands.attempt(tmp_path / "results.csv", "saratoga", 0, "linear")
    assert "ZeroDivisionError" in capsys.readouterr().out
    assert not (tmp_path / "results.csv").exists()


def test_errors():
    assert measure.rmse(np.array([1.0, 2.0]), np.array([[1.0], [4.0]])) == pytest.approx(np.sqrt(2))
    classes = np.array(["a", "b"])
    loss, wrong = measure.class_errors(np.array(["a", "b"]), np.array([[0.5, 0.5], [1.0, 0.0]]), classes)
    assert loss == pytest.approx(-(np.log(0.5) + np.log(1e-6)) / 2, rel=1e-4)
    assert wrong == 0.5
    with pytest.raises(ValueError, match="not finite"):
        measure.rmse(np.zeros(2), np.array([0, np.nan]))


def made_results() -> pd.DataFrame:
    errors = {"catboost": [1.0, 2.0, 3.0, 4.0], "hgb": [1.1, 1.9, 3.3, 4.4], "net_1": [0.9, 2.2, 2.7, 3.6]}
    rows = [
        results.Result(table, split, model, 6000, "rmse", values[i] * (1 + split / 10), None, 10.0**i, 0.1, "1")
        for model, values in errors.items()
        for i, table in enumerate(["houses", "grid", "chile", "cells"])
        for split in (0, 1)
    ]
    return pd.DataFrame(rows)


def test_only_what_all_models_have_is_compared():
    made = made_results()
    lacking = made.drop(made[(made.model == "hgb") & ((made.table == "grid") | (made.split == 1))].index)
    errors, seconds = ranks.select(lacking, list(draw.DEVELOPMENT))
    assert set(errors.index) == {"houses", "chile", "cells"}
    assert errors.loc["houses", "catboost"] == pytest.approx(1.0)
    assert "grid" in errors.attrs["missing"]
    assert set(map(tuple, errors.attrs["splits"].values())) == {(0,)}
    assert seconds.loc["chile", "net_1"] == pytest.approx(100)


def test_ranks_and_ratios():
    errors, seconds = ranks.select(made_results(), list(draw.DEVELOPMENT))
    ratios = ranks.to_best_peer(errors)
    assert ratios.loc["grid", "catboost"] == pytest.approx(2 / 1.9)
    assert ranks.geometric_mean(ratios)["net_1"] == pytest.approx((0.9 * 2.2 / 1.9 * 0.9 * 0.9) ** 0.25)
    found = ranks.rank(errors)
    assert found.mean.to_dict() == {"catboost": 2.0, "hgb": 2.5, "net_1": 1.5}
    assert found.friedman == pytest.approx(stats.friedmanchisquare(*errors.to_numpy().T).pvalue)
    # Demšar (2006), table 5: q is 2.343 for three models at 5 %.
    assert found.critical_difference == pytest.approx(2.343 * np.sqrt(3 * 4 / (6 * 4)), rel=1e-3)
    text = report.report(errors, seconds)
    assert "| **SplineNet, 1 member** | 1.50 |" in text


def test_holm_adjusts_the_smallest_most():
    rng = np.random.default_rng(1)
    base = rng.uniform(1, 2, 20)
    errors = pd.DataFrame({"a": base, "b": base * 1.5, "c": base * rng.uniform(0.9, 1.1, 20)})
    adjusted = ranks.wilcoxon_holm(errors)
    logs = np.log(errors)
    raw = {pair: stats.wilcoxon(logs[pair[0]] - logs[pair[1]]).pvalue for pair in adjusted.index}
    ordered = sorted(raw, key=raw.get)
    assert adjusted[ordered[0]] == pytest.approx(3 * raw[ordered[0]])
    assert adjusted[ordered[1]] == pytest.approx(max(3 * raw[ordered[0]], 2 * raw[ordered[1]]))
    assert adjusted[("a", "c")] > 0.05


def test_pictures(tmp_path):
    pictures = pytest.importorskip("benchmarks.suite.pictures")
    errors, seconds = ranks.select(made_results(), list(draw.DEVELOPMENT))
    pictures.draw_ranks(errors, tmp_path / "ranks.svg")
    pictures.draw_error_against_time(errors, seconds, tmp_path / "time.svg")
    for name in ("ranks", "time"):
        assert "SplineNet, 1 member" in (tmp_path / f"{name}.svg").read_text()


def test_time_to_match_and_summary(tmp_path):
    run = starts.Run(1.0, 9.0, np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.3, 0.4]))
    assert starts.first_time(run, 0.4) == 2.0
    assert starts.first_time(run, 0.2) is None
    for seed, (error, match) in enumerate([(0.9, 1.0), (1.0, None), (1.1, 2.0)]):
        pair = starts.Pair("houses", 0, seed, error, 1.0, 5.0, 5.0, match, 4.0, "1")
        starts._append(tmp_path / "starts.csv", pair)
    table = starts.summary(starts.read(tmp_path / "starts.csv")).loc["houses"]
    assert table.ratio == pytest.approx(1.0)
    assert table.holds
    assert table.time == pytest.approx(0.5)
    assert "median 0.50 of 3 runs" in starts.report(tmp_path / "starts.csv")


@pytest.mark.usefixtures("saratoga")
def test_a_pair_of_starts(monkeypatch):
    real = starts.own
    monkeypatch.setattr(starts, "own", lambda *a: real(*a).set_params(epochs=3, hidden=(16,)))
    pair = starts.compare("saratoga", 0, 0)
    assert pair.spline_to_match is None or 0 < pair.spline_to_match <= pair.spline_seconds * 1.01
    assert 0 < pair.random_to_best <= pair.random_seconds * 1.01


@pytest.mark.usefixtures("saratoga")
def test_small_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(small, "tables", lambda: ["saratoga"])
    out = tmp_path / "small.csv"
    commands.main(["small", "--models", "linear", "mars_1", "--rows", "50", "--draws", "0", "1", "--out", str(out)])
    assert results.read(out).max_rows.tolist() == [50] * 4
    assert "50 training rows" in small.report(out)
