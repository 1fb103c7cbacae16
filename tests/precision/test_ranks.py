"""Among ranks a window is exchanged once, unequal ranks give the gradient of all samples, and weights stay equal."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.distributed

WORKER = Path(__file__).parent / "ranks_worker.py"
LIMIT = 120.0
"""Seconds after which the ranks are killed; far above what they take, so only a hang meets it."""


@pytest.fixture(scope="module")
def found(run_ranks, tmp_path_factory):
    """What each of two ranks found."""
    folder = tmp_path_factory.mktemp("ranks")
    run_ranks([str(WORKER)], folder, 2, (), LIMIT)
    logs = "\n".join((folder / f"{rank}.log").read_text() for rank in range(2))
    assert all((folder / f"{rank}.pt").exists() for rank in range(2)), logs
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("case", ["fp32", "fp16", "master", "synced", "early"])
def test_ranks_end_with_the_same_weights(case, found):
    """Bit for bit, in every mode, with masters too."""
    assert all(torch.equal(a, b) for a, b in zip(found[0][case][0], found[1][case][0], strict=True))


@pytest.mark.parametrize(("case", "tolerance"), [("fp32", 1e-6), ("fp16", 2e-3), ("synced", 1e-6), ("early", 1e-6)])
def test_unequal_ranks_and_micro_batches_give_the_gradient_of_all_samples(case, tolerance, found):
    """With total = samples of all ranks / ranks, 3+5+2 samples here and 4+1+9 there are a batch of 24."""
    for mine, whole in zip(found[0][case][0], found[0]["whole"], strict=True):
        torch.testing.assert_close(mine, whole, rtol=tolerance, atol=tolerance)


def test_a_window_is_exchanged_once(found):
    """Under no_sync only the last micro-batch exchanges; without it each of the three does."""
    for rank in found:
        assert rank["synced"][1] == 3 * rank["fp32"][1]
        assert rank["early"][1] == rank["fp32"][1]
        assert rank["master"][1] == 5 * rank["fp32"][1]


def test_gradients_that_were_not_exchanged_are_not_stepped_with(found):
    """A window ended early without last=True is an error on every rank, with the way out, and no weight moves."""
    for rank in found:
        assert "no_sync(last=True) for the last micro-batch before finish()" in rank["forgotten"][2]
        assert rank["early"][2] == ""
        assert all(torch.equal(a, b) for a, b in zip(rank["forgotten"][0], found[0]["forgotten"][0], strict=True))
        assert not torch.equal(rank["forgotten"][0][0], rank["early"][0][0])


def test_ranks_do_not_drop_micro_batches_each_for_itself(found):
    """What one process may do is refused among several, with the reason."""
    for rank in found:
        assert "accepted is False among several ranks. Ranks would drop different micro-batches" in rank["refusal"]
