"""Among ranks every stack does what one process does on the whole batch: skips together, clips by the whole norm."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.integrations, pytest.mark.distributed, pytest.mark.slow]

PROGRAM = Path(__file__).parent / "ranks_program.py"
LIMIT = 240.0
"""Seconds after which the ranks are killed; far above what they take, so only a hang meets it."""

CASES = {
    4: ("ddp", "fsdp1", "fsdp2", "fsdp2_policy", "saving"),
    2: ("ddp", "ddp_accumulating", "ddp_bf16", "fighting", "fsdp1", "fsdp2", "accelerate", "fabric", "resuming"),
}
"""The larger world first: what it saves is resumed in the smaller one."""

TRAINED = [(world, case) for world, cases in CASES.items() for case in cases if case not in ("fighting", "resuming")]


@pytest.fixture(scope="module")
def found(run_ranks, tmp_path_factory):
    """World size to what its ranks found; the log is in the failure of those that saved nothing."""
    place = tmp_path_factory.mktemp("contract")
    saved = {}
    for world, cases in CASES.items():
        folder = place / ("saving" if world == 4 else "other")
        folder.mkdir()
        run_ranks(["-W", "ignore", str(PROGRAM)], folder, world, cases, LIMIT)
        logs = "\n".join((folder / f"{rank}.log").read_text()[-3000:] for rank in range(world))
        assert all((folder / f"{rank}.pt").exists() for rank in range(world)), logs
        saved[world] = [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(world)]
    return saved


@pytest.fixture
def ranks(found):
    """`ranks(world, case)`: per rank its steps; a stack that is not installed is skipped by its extra's name."""

    def of(world: int, case: str) -> list[list]:
        results = [rank[case] for rank in found[world]]
        if isinstance(results[0], str):
            pytest.skip(f"extra: {results[0]}")
        return results

    return of


@pytest.mark.parametrize(("world", "case"), TRAINED)
def test_ranks_agree_after_every_step(world, case, ranks):
    """Parameters, the decision and the scale are the same on all ranks, bit for bit."""
    first, *others = ranks(world, case)
    for other in others:
        for mine, theirs in zip(first, other, strict=True):
            assert all(map(torch.equal, mine[0], theirs[0]))
            assert mine[1:] == theirs[1:]


@pytest.mark.parametrize(("world", "case"), TRAINED)
def test_one_ranks_overflow_is_skipped_by_all(world, case, ranks):
    """Only the last rank's samples overflow in step 2: no parameter moves in it on any rank, all others move."""
    steps = ranks(world, case)[0]
    assert [applied for _, applied, _ in steps] == [True, True, False, True, True]
    assert all(map(torch.equal, steps[2][0], steps[1][0]))
    assert not all(map(torch.equal, steps[3][0], steps[2][0]))
    scale = 1.0 if case == "ddp_bf16" else 2.0**16
    assert [after for *_, after in steps] == [scale, scale, *[max(scale / 2, 1.0)] * 3]


@pytest.mark.parametrize(("world", "case"), TRAINED)
def test_it_is_one_process_on_the_whole_batch(world, case, ranks, found):
    """Clipped by the norm of all shards and ranks, parameters follow float32's within the format's rounding."""
    tolerance = 2e-3 if case == "ddp_bf16" else 1e-4
    for (here, *_), (there, *_) in zip(ranks(world, case)[0], found[world][0]["one_process"], strict=True):
        for mine, whole in zip(here, there, strict=True):
            torch.testing.assert_close(mine, whole, rtol=0, atol=tolerance)


def test_a_run_goes_on_at_another_world_size(ranks):
    """Saved by four ranks through torch.distributed.checkpoint after a skip, resumed by two: the same steps follow."""
    whole, resumed = ranks(4, "saving")[0], ranks(2, "resuming")[0]
    assert [after for *_, after in resumed] == [2.0**15, 2.0**15]
    for (here, *_), (there, *_) in zip(resumed, whole[3:], strict=True):
        for mine, theirs in zip(here, there, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)


def test_fsdp_and_the_mode_do_not_fight(ranks):
    """FSDP, of either kind, that computes in float16 is refused in bf16-mixed and fp32, and taken in fp16-mixed."""
    for said in ranks(2, "fighting"):
        for bf16, fp32, fp16 in (said[:3], said[3:]):
            assert "is torch.float16; accepted is param_dtype=torch.bfloat16 or None in mode 'bf16-mixed'" in bf16
            assert "or None in mode 'fp32'" in fp32
            assert fp16 == ""
