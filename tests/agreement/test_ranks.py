"""Ranks decide alike, in real processes: what each rank saved is compared here. `worker.py` has what they did."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

from mixprec._headroom import HeadroomRules, advance_headroom, initial_headroom
from mixprec._loss_scale import Event

pytestmark = [pytest.mark.distributed, pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="no gloo")]


@pytest.fixture(scope="session")
def two(launch: Any) -> Any:
    """What two ranks saved, by scenario."""
    return Scenarios(launch("two", 2))


@pytest.fixture(scope="session")
def four(launch: Any) -> Any:
    """What four ranks saved, by scenario."""
    return Scenarios(launch("four", 4))


class Scenarios:
    def __init__(self, ranks: list[Any]) -> None:
        self.ranks = ranks

    def __call__(self, name: str) -> list[Any]:
        for rank, results in enumerate(self.ranks):
            assert name in results, f"rank {rank} stopped before {name}"
            failed = results[name].get("failed") if isinstance(results[name], dict) else None
            assert failed is None, f"rank {rank}: {failed}"
        return [results[name] for results in self.ranks]


def same_parameters(steps_by_rank: list[list[dict[str, Any]]]) -> bool:
    first = steps_by_rank[0]
    return all(
        torch.equal(p, q)
        for steps in steps_by_rank[1:]
        for one, other in zip(first, steps, strict=True)
        for p, q in zip(one["params"], other["params"], strict=True)
    )


def outcomes(steps: list[dict[str, Any]]) -> list[tuple[bool, float]]:
    return [(step["applied"], step["scale"]) for step in steps]


EXPECTED = [(False, 32.0), (True, 32.0), (True, 32.0), (False, 16.0), (True, 16.0)]


@pytest.mark.parametrize("ranks", ["two", "four"])
@pytest.mark.parametrize("max_norm", [None, 1.0])
@pytest.mark.parametrize("kind", ["sgd", "adamw", "fused_adamw", "fused_sgd_momentum"])
def test_an_infinity_on_one_rank_skips_the_step_on_all(
    ranks: str, kind: str, max_norm: float | None, request: pytest.FixtureRequest
) -> None:
    """Scale, outcome and parameters are the same on every rank, fused or not, clipped or not."""
    results = [rank[kind, max_norm] for rank in request.getfixturevalue(ranks)("planted")]
    assert [outcomes(steps) for steps in results] == [EXPECTED] * len(results)
    assert same_parameters(results)


def test_without_agreement_the_ranks_part(two: Any) -> None:
    """The planted infinity is one that would be missed: a scaler on its own lets the ranks diverge."""
    first, second = two("alone")
    assert outcomes(first) != outcomes(second)
    assert not same_parameters([first, second])


def test_ranks_are_bit_equal_after_200_steps_of_random_overflows(two: Any) -> None:
    """A step is applied exactly when no rank overflowed, and scale and parameters stay equal to the last bit."""
    first, second = two("random_overflows")
    assert first["applied"] == second["applied"] == first["expected"]
    assert 0 < sum(first["applied"]) < 200
    assert first["last"]["scale"] == second["last"]["scale"]
    assert same_parameters([[first["last"]], [second["last"]]])


@pytest.mark.parametrize("kind", ["sgd", "adamw", "fused_adamw", "fused_sgd_momentum"])
def test_a_rank_without_gradients_takes_part(two: Any, kind: str) -> None:
    """It raises nothing, keeps its parameters, and follows the overflow of the others."""
    first, second = (rank[kind] for rank in two("no_gradients"))
    assert outcomes(first) == outcomes(second) == [(True, 64.0), (False, 32.0), (True, 32.0)]
    assert all(torch.equal(p, q) for p, q in zip(second[0]["params"], second[2]["params"], strict=True))
    assert not torch.equal(first[0]["params"][0], first[2]["params"][0])


@pytest.mark.parametrize("held", ["replicated", "sharded"])
def test_the_norm_counts_each_element_once(two: Any, held: str) -> None:
    """Replicated gradients are not counted once per rank, and disjoint ones are added up over ranks."""
    for rank in two("norms"):
        assert rank[held]["norm"] == pytest.approx(rank["whole"], rel=1e-6)
        assert rank[held]["coefficient"] == pytest.approx(0.5 / rank["whole"], rel=1e-5)


def test_different_scales_are_found_and_repaired(two: Any) -> None:
    """The error lists every rank's scale; a repair takes the lowest, with its counters, and holds."""
    for rank in two("different_scales"):
        assert rank["same"] is True
        text, values = rank["error"]
        assert values == (16.0, 64.0)
        assert "rank 0: 16, rank 1: 64" in text
        assert rank["repaired"] is False
        assert rank["after"] == (16.0, 0, True)


def test_ddp_needs_no_agreement(two: Any) -> None:
    """DDP's all-reduce carries the infinity of one rank's loss to all."""
    first, second = two("ddp")
    assert outcomes(first) == outcomes(second) == [(True, 64.0), (False, 32.0), (True, 32.0), (True, 32.0)]
    assert same_parameters([first, second])


def test_ranks_that_ran_out_of_inputs_are_made_equal_again(two: Any) -> None:
    """Under Join a rank without batches misses later overflows; the check after it repairs the scale."""
    first, second = two("uneven_inputs")
    assert (first["before"], second["before"]) == (32.0, 64.0)
    assert first["repaired"] is second["repaired"] is False
    assert first["after"] == second["after"]
    assert first["after"]["scale"] == 32.0


@pytest.mark.parametrize("kind", ["sgd", "adamw", "fused_adamw", "mixed"])
def test_replicated_dtensors_agree_about_an_infinity_on_one_rank(two: Any, kind: str) -> None:
    """No process_group is needed; plain parameters may be in the same optimizer; the norm counts replicas once."""
    first, second = (rank[kind] for rank in two("replicated_dtensors"))
    assert outcomes(first) == outcomes(second) == [(True, 64.0), (False, 32.0), (True, 32.0)]
    expected = math.sqrt(16) if kind != "mixed" else math.sqrt(2 * 16 + 4)
    assert first[0]["norm"] == second[0]["norm"] == pytest.approx(expected)
    if kind != "mixed":
        assert same_parameters([first, second])


@pytest.mark.parametrize("use_orig_params", [False, True])
def test_fsdp1_users_change_one_import(two: Any, use_orig_params: bool) -> None:
    """Torch's argument order, fused, an infinity in one shard skips both ranks; the norm is the whole model's."""
    results = two("fsdp1")
    for rank in results:
        steps = rank[use_orig_params]
        assert outcomes(steps) == [(True, 64.0), (False, 16.0), (True, 16.0)]
        assert steps[0]["norm"] == pytest.approx(rank["norm"], rel=1e-5)


@pytest.mark.parametrize("kind", [("fused_adamw", False), ("sgd", False), ("fused_adamw", True), ("two", False)])
def test_headroom_follows_the_largest_gradient_of_all_ranks(two: Any, kind: tuple[str, bool]) -> None:
    """Every rank holds what the specification makes of the maximum over ranks, and an infinity on one skips on all."""
    first, second = (rank[kind] for rank in two("headroom"))
    rules = HeadroomRules(init_scale=64.0, growth_interval=3)
    state, events = initial_headroom(rules), set()
    for one, other in zip(first["seen"], second["seen"], strict=True):
        found, amax = one[0] or other[0], max(one[1], other[1])
        state, event = advance_headroom(rules, state, found, amax)
        events.add(event)
        assert one[2:5] == other[2:5] == (found, state.scale, state.peak)
        assert found or one[5] == other[5] > 0.0
    assert events == {Event.HOLD, Event.GROW, Event.BACK_OFF, Event.LOWER}
    assert first["same"] is second["same"] is True
    assert first["repaired"] == second["repaired"] == (0.0,)


def test_a_submesh_agrees_with_the_mesh_it_was_cut_from(four: Any) -> None:
    """Tensor-parallel parameters on one dimension: an infinity on one of four ranks skips all four."""
    results = four("submesh")
    assert [outcomes(steps) for steps in results] == [[(True, 64.0), (False, 32.0), (True, 32.0)]] * 4
    assert results[0][0]["norm"] == pytest.approx(math.sqrt(32))


def test_two_meshes_in_one_optimizer_agree(four: Any) -> None:
    """An infinity in a parameter of one mesh skips the parameters of the other, on every rank."""
    results = four("two_meshes")
    assert [outcomes(steps) for steps in results] == [[(True, 64.0), (False, 32.0), (True, 32.0)]] * 4


def test_fsdp2_trains_as_one_process_does(four: Any) -> None:
    """200 steps with random overflows on a replicate × shard mesh: outcome, scale, norm and parameters are one
    process's, and bit-equal across ranks.
    """
    results = four("hsdp")
    for rank in results:
        for ours, control in rank["seen"]:
            assert (ours.found_inf, ours.scale_after) == (control.found_inf, control.scale_after)
            if not ours.found_inf:
                assert ours.grad_norm == pytest.approx(control.grad_norm, rel=1e-5)
        for param, control in zip(rank["params"], rank["control"], strict=True):
            torch.testing.assert_close(param, control, rtol=1e-4, atol=1e-5)
        assert rank["seen"] == results[0]["seen"]
        assert all(torch.equal(p, q) for p, q in zip(rank["params"], results[0]["params"], strict=True))
    assert 0 < sum(ours.found_inf for ours, _ in results[0]["seen"]) < 200


def test_pipeline_stages_agree_and_one_may_have_no_gradients(four: Any) -> None:
    """Two stages on two ranks each: the norm is over both stages, and a stage without gradients follows the other."""
    results = four("pipeline")
    assert [outcomes(steps) for steps in results] == [[(True, 64.0), (True, 64.0), (False, 32.0)]] * 4
    for steps in results:
        assert [step["norm"] for step in steps[:2]] == pytest.approx([math.sqrt(4 + 16), math.sqrt(16)])


@pytest.mark.parametrize("ranks", ["two", "four"])
def test_a_step_takes_one_collective(ranks: str, request: pytest.FixtureRequest) -> None:
    """Flag and norm travel together, for several optimizers too, on a 2-D mesh too; alone there is none."""
    for rank in request.getfixturevalue(ranks)("collectives"):
        assert rank == {"plain": [1, 1, 1], "headroom": [1, 1, 1], "dtensor": [1, 1, 1], "nobody": [0, 0, 0]}


def test_a_killed_rank_is_an_error_and_not_a_hang(launch: Any) -> None:
    """The survivor's step raises because the connection is gone, and not because its patience is."""
    error, gone = (rank if isinstance(rank, str) else rank["killed"] for rank in launch("killed", 2))
    assert gone == "gone"
    assert re.search(r"onnection|peer|rank", error)
    assert "imed out" not in error
