import numpy as np
import pytest
from scipy import stats

from knotwork.experiments.summary import Runs, catching_up, chosen, compare, interval


def record(seed, start, rate, validation, test, **others):
    return {"seed": seed, "start": start, "scaling": "minmax", "rate": rate, "validation": validation, "test": test,
            "train": test, "terms": 4, **others}  # fmt: skip


def test_the_interval_is_that_of_a_t_test():
    values = [1.0, 2.5, 2.0, 4.0]
    ours = interval(values)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (ours["low"], ours["high"]) == pytest.approx((expected.low, expected.high))


def test_one_seed_has_no_interval():
    assert interval([3.0]) == {"mean": 3.0, "low": None, "high": None, "sd": None}


def test_rates_are_chosen_on_validation_rows_never_on_test_rows():
    runs = [record(0, "random", 1e-3, [5, 3, 4], [9, 9, 1]), record(0, "random", 1e-2, [5, 4, 2], [9, 9, 8])]
    ((run, epoch),) = chosen(runs, 2, best=False).values()
    assert (run["rate"], epoch) == (1e-2, 2)
    ((run, epoch),) = chosen(runs, 1, best=True).values()
    assert (run["rate"], epoch) == (1e-3, 1)


def test_the_best_epoch_may_be_the_start():
    ((_, epoch),) = chosen([record(0, "converted", 1e-3, [1, 3, 4], [1, 3, 4])], 2, best=True).values()
    assert epoch == 0


def test_differences_are_paired_by_seed():
    entry = compare({0: 1.0, 1: 3.0}, {1: 4.0, 0: 2.0})
    assert entry["difference"]["mean"] == -1
    assert entry["difference"]["low"] == pytest.approx(-1)
    assert entry["ratio"] == pytest.approx(4 / 6)
    assert entry["ratio_of_pairs"]["mean"] == pytest.approx((0.5 + 0.75) / 2)


def test_catching_up_counts_epochs_at_the_fastest_rate():
    runs = Runs([
        record(0, "converted", 1e-3, [1, 1], [2.0, 1.0]), record(1, "converted", 1e-3, [1, 1], [0.5, 1.0]),
        record(0, "random", 1e-3, [1] * 4, [9, 5, 2.5, 1.9]), record(0, "random", 1e-2, [1] * 4, [9, 5, 2, 3]),
        record(1, "random", 1e-3, [1] * 4, [9, 5, 2.5, 1.9]),
    ])  # fmt: skip
    found = catching_up(runs)
    assert found["epochs"] == [2, None]
    assert (found["median"], found["never"], found["claimed"]) == (2, 1, 25)
    assert np.isfinite(found["median"])
