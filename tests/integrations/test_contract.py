"""One table of stacks, one set of properties: wherever mixprec trains, it does the same and says what it did."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("ignore"),  # what the stacks themselves warn of is not ours to judge
]

RANKS = ("ddp", "fsdp1", "fsdp2", "lightning_fsdp", "deepspeed")
STACKS = (
    *("scaler", "precision", "compile", "ddp", "fsdp1", "fsdp2", "accelerate", "fabric", "lightning", "lightning_fsdp"),
    *("transformers", "deepspeed", "bitsandbytes", "torchao"),
)
HELD_BY_ALL = ("skip", "scale", "resume", "clip", "once", "monitor")
LABELS = {
    **{"scaler": "`GradScaler`", "precision": "`Precision`", "compile": "torch.compile", "ddp": "DDP"},
    **{"fsdp1": "FSDP1", "fsdp2": "FSDP2", "accelerate": "Accelerate", "fabric": "Fabric", "lightning": "Lightning"},
    **{"lightning_fsdp": "Lightning, FSDP", "transformers": "Transformers", "deepspeed": "DeepSpeed"},
}
QUANTIZED = ("bitsandbytes", "torchao")
ADAPTIVE = {("bitsandbytes", False), ("torchao", False), ("fsdp2", True)}
"""Stacks, and whether fused, whose optimizer is AdamW where the others' is SGD."""


def _rows(stacks):
    marks = [pytest.mark.distributed, pytest.mark.slow]
    return [pytest.param(stack, marks=marks) if stack in RANKS else stack for stack in stacks]


stacks = pytest.mark.parametrize("stack", _rows(STACKS))
fused_too = pytest.mark.parametrize(
    ("stack", "fused"),
    [
        pytest.param(stack, fused, id=f"{stack}-{'fused' if fused else 'plain'}", marks=getattr(row, "marks", ()))
        for stack, row in zip(STACKS, _rows(STACKS), strict=True)
        for fused in (False, True)
        if not (fused and stack in QUANTIZED)
    ],
)


PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"


def test_the_page_has_this_table():
    """Its rows are these stacks in this order; every property that is tested is marked, and no other."""
    section = PAGE.read_text(encoding="utf-8").partition("## What is tested")[2]
    table = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    properties, _, *rows = table
    assert properties[1:] == ["skip", "scale", "ranks agree", "resume", "clip", "once", "monitor", "doctor"]
    assert [row[0] for row in rows] == [LABELS.get(stack, stack) for stack in STACKS]
    for stack, row in zip(STACKS, rows, strict=True):
        assert [cell for column, cell in zip(properties, row, strict=True) if column in HELD_BY_ALL] == ["●"] * 6
        assert (row[3] == "●") is (stack in (*RANKS, "accelerate", "fabric"))  # these two are in test_ranks.py


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, a, b))


def test_the_table_is_whole(drivers):
    """Every driver of the table is tested, those among ranks as such."""
    assert tuple(drivers.STACKS) == STACKS
    assert tuple(name for name, (*_, world) in drivers.STACKS.items() if world > 1) == RANKS


@fused_too
def test_a_skip_is_skipped_everywhere(runs, stack, fused):
    """Parameters, schedule and report agree that step 1 was not applied and the others were; among ranks only the last
    one's loss overflows.
    """
    run = runs("skipping", fused)

    assert [report.applied for report in run.reports] == [True, False, True, True]
    assert same(run.parameters[1], run.parameters[0])
    assert not same(run.parameters[2], run.parameters[1])
    assert not same(run.parameters[3], run.parameters[2])
    assert run.rates == [0.0625, 0.0625, 0.03125, 0.015625]


@stacks
def test_the_reported_scale_is_true(runs, stack):
    """What multiplied the loss in backward is the scale that the report says, before and after a back-off."""
    run = runs("skipping")

    assert [report.scale_before for report in run.reports] == [65536.0, 65536.0, 32768.0, 32768.0]
    assert [report.scale_after for report in run.reports] == [65536.0, 32768.0, 32768.0, 32768.0]
    assert [m for i, m in enumerate(run.multipliers) if i != 1] == [65536.0, 32768.0, 32768.0]


@pytest.mark.parametrize("stack", _rows(RANKS))
def test_ranks_agree(launched, runs, stack):
    """After every step of every scenario parameters, report and scale are the same on all ranks, bit for bit."""
    first, *others = launched(stack)

    for other in others:
        for name, run in first.items():
            assert run.reports == other[name].reports
            assert run.rates == other[name].rates
            for mine, theirs in zip(run.parameters, other[name].parameters, strict=True):
                assert same(mine, theirs)


@fused_too
def test_resuming_is_exact(runs, stack, fused):
    """Stopped after 3 steps, one of them skipped, and resumed, 6 steps end bit for bit where 6 in one run end."""
    whole, stopped, resumed = (runs(name, fused) for name in ("whole", "stopped", "resumed"))

    assert same(stopped.parameters[-1], whole.parameters[2])
    assert same(resumed.parameters[-1], whole.parameters[-1])
    assert resumed.reports[-1].scale_after == whole.reports[-1].scale_after == 16384.0
    assert resumed.rates == whole.rates[3:]


@fused_too
def test_clipping_equals_clipping_in_float32(runs, drivers, stack, fused):
    """Three steps clipped to a quarter of their norm or less move parameters as float32 does, to fp16's rounding of
    gradients; of the weights themselves in DeepSpeed, and of a whole update where AdamW divides by their size.
    """
    run = runs("clipped", fused)

    adaptive = (stack, fused) in ADAPTIVE
    tolerance = 2.0**-12 if adaptive or stack == "deepspeed" else 1e-5
    model = drivers.Net()
    kind = torch.optim.AdamW if adaptive else torch.optim.SGD
    optimizer = kind(model.parameters(), drivers.RATE)
    schedule = drivers.make_schedule(optimizer)
    norms = []
    for step in range(3):
        optimizer.zero_grad()
        model(**drivers.batch(step, ()))["loss"].backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.02)))
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.step()
        schedule.step()
        if not adaptive:
            moved = torch.cat([(p - q).reshape(-1) for p, q in zip(model.parameters(), before, strict=True)]).norm()
            assert float(moved) == pytest.approx(0.02 * run.rates[step] * 2, rel=1e-3)
        for here, there in zip(run.parameters[step], model.parameters(), strict=True):
            torch.testing.assert_close(here.float(), there.detach(), rtol=0, atol=tolerance)
    assert min(norms) > 0.08


@stacks
def test_nothing_is_counted_or_logged_twice(runs, stack):
    """Every step has one report, numbered in order, and one line in the stack's own log where it keeps one."""
    run = runs("skipping")

    assert [report.step for report in run.reports] == [0, 1, 2, 3]
    assert len(run.multipliers) == 4
    assert run.logged in (None, [0, 1, 2, 3])


@fused_too
def test_the_monitor_sees_what_happened_in_every_stack(runs, launched, stack, fused):
    """A monitor that is only told model and optimizer, and in DeepSpeed the reader, records each step's scale and
    outcome, and names the fault that was planted, on the rank that has it: an infinite loss, which no log of averages
    would show.
    """
    run = runs("faulty", fused)
    last = launched(stack)[-1]["faulty", fused] if stack in RANKS else run

    assert run.watched == [(report.step, report.reason, report.scale_before) for report in run.reports]
    assert [reason for _, reason, _ in run.watched] == ["applied", "found_inf", "found_inf", "applied"]
    assert "MP133" in last.findings


@stacks
def test_a_healthy_run_raises_no_alarm(runs, stack):
    """The nearest healthy neighbour: the same training without the fault."""
    run = runs("healthy")

    assert len(run.watched) == 4
    assert run.findings == []
