"""init_ in a process group: two gloo ranks, each with its own rows, begin as one process with all rows does."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import knotwork as kw
from knotwork.data.learn import learn_table
from knotwork.spline.columns import TermValues, term_units
from knotwork.spline.logits import fit_logits
from tests.network.start.rank import OUTPUTS, data, module


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """Run both ranks; return the folder of what they left."""
    folder = tmp_path_factory.mktemp("ranks")
    script = Path(__file__).with_name("rank.py")
    running = [subprocess.Popen([sys.executable, str(script), str(rank), str(folder)]) for rank in (0, 1)]
    try:
        codes = [process.wait(timeout=120) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert codes == [0, -9]  # the second killed itself in the end
    return folder


@pytest.mark.parametrize("name", OUTPUTS)
def test_ranks_begin_as_one_process_does(ranks, name):
    X, y, weight = data(name)
    (first, spline), (second, other) = (torch.load(ranks / f"{name}-{rank}", weights_only=False) for rank in (0, 1))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert spline.to_dict() == other.to_dict()
    net = module(name)
    report = kw.init_(net, X, y, sample_weight=weight)
    assert [str(term) for term in spline.terms] == [str(term) for term in report.spline.terms]
    rows = learn_table(X)[1] if hasattr(X, "columns") else X
    expected = report.spline(rows)
    if "classes" in name:  # which one process fits up to 1 % of the likelihood, and ranks to the end
        codes = np.unique(y, return_inverse=True)[1]
        units = term_units(spline.terms, rows, np.ones(len(rows)), rows.std(axis=0))
        found = fit_logits(TermValues(spline.terms, rows), codes, codes.max() + 1, np.ones(len(rows)), 1.0, units)
        found = found.polished()
        expected = (spline.basis(rows) @ found.coef + found.intercept).reshape(expected.shape)
    assert np.abs(spline(rows) - expected).max() <= 1e-9 * expected.std()
    net.load_state_dict(first)
    assert (
        np.abs(net(torch.tensor(rows)).detach().numpy().reshape(expected.shape) - expected).max()
        <= 1e-9 * expected.std()
    )


def test_what_is_wrong_on_one_rank_is_said_on_all(ranks):
    first, second = ((ranks / f"messages-{rank}").read_text().splitlines() for rank in (0, 1))
    assert first == second
    assert "X must be finite" in first[0]
    assert first[1].startswith("on rank 1: X, y and sample_weight must have the same rows")
    assert len(first) == 3


def test_a_rank_that_dies_ends_the_others_with_a_sentence(ranks):
    assert "all 2 ranks must take part, one does not answer" in (ranks / "alone").read_text()
