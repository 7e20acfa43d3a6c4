"""Two processes that train one network: the same as one process with all rows, and no hang whatever happens to one."""

import os
import pickle
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

import knotwork as kw
from knotwork.network.train.rows import Part
from tests.network.train import two_ranks
from tests.network.train.two_ranks import EQUAL, LAST, RANKS, X, Y

# Seconds, on a machine that is busy with other things; they take about ten. pytest's own limit is above.
TIMEOUT = 200


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the cases of two_ranks give: by rank, of the last case, and what was printed."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": ""}
    command = [sys.executable, "-W", "error", two_ranks.__file__, str(folder)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as process:
        try:
            printed, errors = process.communicate(timeout=TIMEOUT)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)  # the ranks, too
            raise
    assert printed.splitlines()[-1:] == ["[0, -9]"], errors[-3000:]
    ranks = [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)]
    files = {path.name for path in folder.iterdir()}
    return {"ranks": ranks, "last": torch.load(folder / "last.pt"), "printed": printed, "files": files}


def trained(found, name):
    return [rank[name] for rank in found["ranks"]]


def test_all_ranks_end_with_the_same_bits(found):
    names = [name for name, value in found["ranks"][0].items() if isinstance(value, dict)]
    assert len(names) > 10
    for name in names:
        first, second = trained(found, name)
        assert first["history"] == second["history"], name
        assert first["weights"].keys() == second["weights"].keys()
        assert name != "other scaling" or "0.centre" in first["weights"]
        for key, value in first["weights"].items():
            assert torch.equal(value, second["weights"][key]), (name, key)


@pytest.mark.parametrize("name", EQUAL)
def test_two_ranks_equal_one_process_with_all_rows(found, name):
    options, tables, make = EQUAL[name]
    alone = two_ranks.trained_on(
        make(), options, tuple(t[:LAST] for t in (X, *tables)), tuple(t[LAST:] for t in (X, *tables))
    )
    together = trained(found, name)[0]
    for key, value in alone["weights"].items():
        torch.testing.assert_close(together["weights"][key], value, rtol=1e-10, atol=1e-10)
    ours, theirs = together["history"], alone["history"]
    for key in ("undone", "best_epoch", "validation_unseen"):
        assert ours[key] == theirs[key]
    for key in ("train_loss", "validation_loss", "learning_rate"):
        np.testing.assert_allclose(ours[key], theirs[key], rtol=1e-10)
    assert theirs["best_epoch"] > 0  # something was learned
    assert bool(theirs["undone"]) == (name == "setbacks")


def test_the_validation_loss_is_that_of_all_validation_rows(found):
    result = trained(found, "squared error")[0]
    net = two_ranks.plain()
    net.load_state_dict(result["weights"])
    with torch.no_grad():
        error = (net(torch.from_numpy(X[LAST:]))[:, 0].numpy() - Y[LAST:]) ** 2
    history = result["history"]
    np.testing.assert_allclose(history["validation_loss"][history["best_epoch"]], error.mean(), rtol=1e-9)


@pytest.mark.parametrize("name", ["unequal", "share", "loader", "two rows"])
def test_ranks_with_other_numbers_of_rows_and_batches_train_together(found, name):
    history = trained(found, name)[0]["history"]
    assert len(history["train_loss"]) == (4 if name == "loader" else 5)
    assert history["train_loss"][-1] < history["train_loss"][0]


def test_a_rank_with_fewer_rows_spreads_them_over_the_steps():
    part = Part(torch.arange(21.0)[:, None], torch.zeros(21, 1), torch.ones(21))
    generator = torch.Generator().manual_seed(0)
    for steps in (3, 5, 10, 40):
        batches = list(part.shared(8, generator, steps))
        assert len(batches) == steps
        rows = [batch.x[:, 0].tolist() for batch in batches if batch is not None]
        assert sorted(row for batch in rows for row in batch) == list(range(21))
        assert min(map(len, rows)) >= 2
        assert max(map(len, rows)) - min(map(len, rows)) <= (1 if steps > 3 else 3)


def test_the_callback_of_one_rank_ends_all(found):
    assert len(trained(found, "stopped by rank 1")[0]["history"]["train_loss"]) == 3


def test_copies_of_a_row_are_on_one_side_on_all_ranks(found):
    first, second = trained(found, "held")
    assert torch.equal(first[20:], second[:60])  # rows 20 to 80, which both have
    assert 0.2 < second.double().mean() < 0.3
    assert [held.any().item() for held in trained(found, "held, one of equal rows")] == [True, False]


def test_rows_at_equal_distances_are_those_of_the_whole_table(found):
    for rows in trained(found, "spread"):
        assert torch.equal(rows, torch.from_numpy(X[:LAST:8]))


def test_a_rank_that_refuses_its_rows_tells_the_others(found):
    for name in ("bad rows", "one row"):
        others, own = trained(found, name)
        assert own[0] == "NetworkError"
        assert others == (
            "RankError", f"ranks train together or not at all, and rank 1 has failed: NetworkError: {own[1]}"
        )  # fmt: skip
    assert trained(found, "as it was") == [True, True]  # although rank 1 had taken over the weights of rank 0


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("other options", "NetworkError", "rank 1 has other options than rank 0"),
        ("other layers", "NetworkError", "rank 1 has other layers than rank 0"),
        ("in DDP", "NetworkError", "pass net.module"),
        ("estimator, one row", "NetworkError", "on rank 1: every rank needs 2 rows to train on"),
        ("estimator, options", "NetworkError", "rank 1 has other epochs than rank 0; only the rows may differ"),
        ("estimator, members", "DataError", "set n_members=1"),
        ("estimator, parts", "NetworkError", "on rank 1: inside torchrun every rank passes a table or an array"),
        ("estimator, bad rows", "NetworkError", "on rank 1: responses must be finite"),
        ("estimator, responses", "DataError", "loss='poisson' takes responses of 0 or more"),
    ],
)
def test_what_ranks_cannot_do_together_is_refused_on_all(found, name, kind, words):
    for said in trained(found, name):
        assert said[0] == kind
        assert words in said[1]


@pytest.mark.parametrize("name", two_ranks.ESTIMATORS)
def test_an_estimator_on_two_ranks_is_that_of_one_process_with_the_rows_of_both(found, name):
    model, tables = two_ranks.ESTIMATORS[name]
    parts = [two_ranks.shard(rank, two_ranks.TABLE, *tables) for rank in range(RANKS)]
    alone = two_ranks.fitted_to(model, (kw.Batches(parts),))
    first, second = trained(found, name)
    assert first["fitted"] == second["fitted"]
    assert first["history"] == second["history"]
    assert first["history"]["best_epoch"] > 0  # something was learned
    for key, value in alone["weights"].items():
        assert torch.equal(first["weights"][key], second["weights"][key])
        torch.testing.assert_close(first["weights"][key], value, rtol=1e-6, atol=1e-6)  # which are float32
    for key in ("train_loss", "validation_loss"):
        there, here = first["history"][key], alone["history"][key]
        np.testing.assert_allclose(there[0], here[0], rtol=1e-12)  # the start
        # Sums over ranks are rounded in another order, by 1e-16. Adam divides a gradient by its size + 1e-8, so that
        # the step of a small one moves by up to 1e-8 of the rate.
        np.testing.assert_allclose(there, here, rtol=1e-7)
    ours, theirs = (pickle.loads(each["fitted"]["encoder_"]) for each in (first, alone))
    assert ours.feature_names == theirs.feature_names


def test_estimators_on_ranks_train_on_all_rows_where_the_sample_has_few(found):
    ((own,), held, weights), ((other,), same, others) = trained(found, "beyond the sample")
    assert held == same > 10
    assert all(torch.equal(value, others[key]) for key, value in weights.items())
    assert own + other == LAST - held


def test_an_estimator_on_ranks_goes_on_from_the_checkpoint_of_rank_0(found):
    for whole, resumed in zip(trained(found, "estimator, whole"), trained(found, "estimator, resumed"), strict=True):
        assert len(whole) == len(resumed) > 3
        for (name, value), (other, again) in zip(whole, resumed, strict=True):
            assert name == other
            assert torch.equal(value, again), name
    assert [said[0] for said in trained(found, "estimator, crash")] == ["Crash", "RankError"]
    assert trained(found, "estimator, file left") == [True, False]
    assert trained(found, "estimator, file afterwards") == [False, False]


def test_a_training_of_two_ranks_goes_on_from_its_checkpoint(found):
    whole, resumed = trained(found, "whole")[0], trained(found, "resumed")[0]
    for key, value in whole["weights"].items():
        assert torch.equal(value, resumed["weights"][key]), key
    for history in (whole["history"], resumed["history"]):
        history.pop("seconds", None)
    assert whole["history"] == resumed["history"]
    assert [said[0] for said in trained(found, "crash")] == ["RankError", "Crash"]


def test_rank_0_writes_the_checkpoint_and_refuses_that_of_another_fit(found):
    assert trained(found, "file") == [True, False]
    assert trained(found, "file afterwards") == [False, False]
    first, second = trained(found, "other data")
    assert first[0] == "DataError"
    assert "has other data or weights" in first[1]
    assert second[0] == "RankError"
    assert first[1] in second[1]


def test_progress_is_shown_by_rank_0_only(found):
    assert found["printed"].count("epoch 1/1") == 1


def test_the_example_in_the_docs_runs(found):
    # Both ranks write to one pipe: rank 1's line may follow rank 0's progress without a line break.
    lines = re.findall(r"rank ([01]): (0\.\d+)\n", found["printed"])
    assert sorted(rank for rank, _ in lines) == ["0", "1"]
    assert len({loss for _, loss in lines}) == 1
    assert float(lines[0][1]) < 0.5
    assert "model" in found["files"]
    assert "run.checkpoint" not in found["files"]


def test_a_killed_rank_ends_the_other_with_a_sentence(found):
    last = found["last"]
    assert last["said"][0] == "RankError"
    assert last["said"][1].startswith("all 2 ranks must go on together, and one that rank 0 waits for has ended")
    assert last["as it was"]
    assert last["file"]  # to go on from
