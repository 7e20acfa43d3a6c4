import numpy as np
import pytest

from knotwork.experiments.evidence import doubts, published_errors
from knotwork.experiments.protocol import FULL, MARKS, PUBLISHED, load_matrix, shortened, split


@pytest.mark.parametrize(("data", "rows", "inputs"), [("abalone", 4177, 10), ("wine", 4898, 11)])
def test_the_split_is_seven_to_three_and_keeps_every_row_once(data, rows, inputs):
    s = split(data, seed=5)
    assert s.train.x.shape[1] == inputs
    assert len(s.train) + len(s.validation) == round(0.7 * rows)
    assert len(s.train) + len(s.validation) + len(s.test) == rows
    _, y, _ = load_matrix(data)
    ours = np.concatenate([part.y for part in (s.train, s.validation, s.test)])[:, 0] * s.unit + y.min()
    np.testing.assert_allclose(np.sort(ours), np.sort(y[:, 0]), atol=1e-9)


def test_minmax_scales_by_the_training_rows_and_y_by_the_whole_range():
    s = split("abalone", seed=0)
    np.testing.assert_array_equal(s.train.x.min(axis=0), 0.0)
    np.testing.assert_array_equal(s.train.x.max(axis=0), 1.0)
    assert s.unit == 28  # 1 to 29 rings
    everything = np.concatenate([s.train.y, s.validation.y, s.test.y])
    assert everything.min() == 0
    assert everything.max() == 1


def test_zscore_is_of_the_training_rows_and_of_the_same_split():
    ours, theirs = split("wine", seed=2, scaling="zscore"), split("wine", seed=2)
    np.testing.assert_allclose(ours.train.x.mean(axis=0), 0.0, atol=1e-10)
    np.testing.assert_allclose(ours.train.y.std(), 1.0)
    shift = ours.test.y * ours.unit - theirs.test.y * theirs.unit
    np.testing.assert_allclose(shift, np.full_like(shift, shift[0, 0]), atol=1e-9)


def test_seeds_differ_and_repeat():
    assert (split("abalone", 1).train.x == split("abalone", 1).train.x).all()
    assert (split("abalone", 1).test.y != split("abalone", 2).test.y).any()


def test_copies_of_training_rows_are_marked():
    s = split("wine", seed=0)
    seen = {tuple(row) for row in np.concatenate([s.train.x, s.validation.x])}
    assert [tuple(row) not in seen for row in s.test.x] == s.fresh.tolist()
    assert 0.1 < 1 - s.fresh.mean() < 0.4
    assert split("abalone", seed=0).fresh.all()


def test_the_published_figures_are_those_of_the_paper():
    abalone = PUBLISHED["abalone"]
    assert abalone["before"]["random"] == pytest.approx(np.mean(abalone["before"]["random_each"]), abs=1e-6)
    assert abalone["after"]["500"] == {"converted": 0.0014002, "random": 0.0048307}
    assert PUBLISHED["wine"]["after"] == {"50": {"converted": 0.0363380, "random": 0.0443018}}
    assert len(published_errors("abalone")) == 8
    assert set(abalone["after"]) == {str(m) for m in MARKS}


def test_a_short_plan_asks_the_same_questions():
    plan = shortened(FULL)
    assert plan.marks == (50,)
    assert FULL.marks == (50, 300, 500)
    assert plan.widths == FULL.widths


def test_impossible_figures_are_told_from_possible_ones():
    def strong(mean, best, unit):
        models = {"mean of the training rows": mean, "spline": 1.1 * best, "gradient boosting": best}
        return {"strong_models": {"unit": unit, "least": 0.9 * best, "splits": 5, "models": {
            name: {"mse": {"mean": mse}, "rmse_in_units": {"mean": mse**0.5 * unit}} for name, mse in models.items()
        }}}  # fmt: skip

    found = doubts("abalone", strong(0.0132, 0.0056, 28.0))
    assert any("500 epochs, 0.0014002" in s and "1.05 rings" in s and "2.10 rings" in s for s in found)
    assert any("50 epochs, 0.0043887" in s and "lucky split" in s for s in found)
    assert not any("0.0061599" in s or "0.1372" in s for s in found)  # a fair network, an untrained one
    found = doubts("wine", strong(0.0218, 0.0105, 6.0))
    assert len(found) == 3
    assert all("guessing the mean of the training rows has MSE 0.0218" in s for s in found)
