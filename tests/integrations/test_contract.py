"""One table of stacks, one set of properties: wherever mixprec trains, it does the same and says what it did."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mixprec.monitor import Monitor

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("ignore"),  # what the stacks themselves warn of is not ours to judge
]

STACKS = ("scaler", "precision", "accelerate", "fabric", "lightning", "transformers")

stacks = pytest.mark.parametrize("stack", STACKS)
optimizers = pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, a, b))


def test_the_table_is_whole(drivers):
    """Every driver of the table is tested."""
    assert tuple(drivers.DRIVERS) == STACKS


@stacks
@optimizers
def test_a_skip_is_skipped_everywhere(train, stack, fused):
    """Parameters, schedule and report agree that step 1 was not applied and the others were."""
    run = train(0, 4, overflow=(1,), fused=fused)

    assert [report.applied for report in run.reports] == [True, False, True, True]
    assert same(run.parameters[1], run.parameters[0])
    assert not same(run.parameters[2], run.parameters[1])
    assert not same(run.parameters[3], run.parameters[2])
    assert run.rates == [0.0625, 0.0625, 0.03125, 0.015625]


@stacks
def test_the_reported_scale_is_true(train, stack):
    """What multiplied the loss in backward is the scale that the report says, before and after a back-off."""
    run = train(0, 4, overflow=(1,))

    assert [report.scale_before for report in run.reports] == [65536.0, 65536.0, 32768.0, 32768.0]
    assert [report.scale_after for report in run.reports] == [65536.0, 32768.0, 32768.0, 32768.0]
    assert [m for i, m in enumerate(run.multipliers) if i != 1] == [65536.0, 32768.0, 32768.0]


@stacks
@optimizers
def test_resuming_is_exact(train, stack, fused):
    """Stopped after 3 steps, one of them skipped, and resumed, 6 steps end bit for bit where 6 in one run end."""
    setting = {"overflow": (1, 4), "fused": fused, "adam": True}
    whole = train(0, 6, **setting)
    stopped = train(0, 3, **setting)
    resumed = train(3, 6, stopped.state, **setting)

    assert same(stopped.parameters[-1], whole.parameters[2])
    assert same(resumed.parameters[-1], whole.parameters[-1])
    assert resumed.reports[-1].scale_after == whole.reports[-1].scale_after == 16384.0
    assert resumed.rates == whole.rates[3:]


@stacks
@optimizers
def test_clipping_equals_clipping_in_float32(train, drivers, stack, fused):
    """Three steps clipped to a quarter of their norm or less move parameters as float32 does, to fp16's rounding."""
    run = train(0, 3, max_norm=0.02, fused=fused)

    model = drivers.Net()
    optimizer = torch.optim.SGD(model.parameters(), drivers.RATE)
    schedule = drivers.make_schedule(optimizer)
    norms = []
    for step in range(3):
        optimizer.zero_grad()
        model(**drivers.batch(step, ()))["loss"].backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.02)))
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.step()
        schedule.step()
        moved = torch.cat([(p - q).reshape(-1) for p, q in zip(model.parameters(), before, strict=True)]).norm()
        assert float(moved) == pytest.approx(0.02 * run.rates[step] * 2, rel=1e-3)
        for here, there in zip(run.parameters[step], model.parameters(), strict=True):
            torch.testing.assert_close(here, there.detach(), rtol=0, atol=1e-5)
    assert min(norms) > 0.08


@stacks
def test_nothing_is_counted_or_logged_twice(train, stack):
    """Every step has one report, numbered in order, and one line in the stack's own log where it keeps one."""
    run = train(0, 4, overflow=(1,))

    assert [report.step for report in run.reports] == [0, 1, 2, 3]
    assert len(run.multipliers) == 4
    assert run.logged in (None, [0, 1, 2, 3])


@stacks
@optimizers
def test_the_monitor_sees_what_happened_in_every_stack(train, stack, fused):
    """A monitor that is only told model and optimizer records each step's scale and outcome, and names the fault that
    was planted: a loss that is infinite, which no log of averages would show.
    """
    watched: list[Monitor] = []
    run = train(0, 4, overflow=(1, 2), fused=fused, watch=lambda *of: watched.append(Monitor(*of)))
    (monitor,) = watched
    monitor.close()

    assert [(record.reason, record.scale) for record in monitor.records] == [
        (report.reason.value, report.scale_before) for report in run.reports
    ]
    assert [record.step for record in monitor.records] == [0, 1, 2, 3]
    assert "MP133" in {finding.code for finding in monitor.findings}


@stacks
def test_a_healthy_run_raises_no_alarm(train, stack):
    """The nearest healthy neighbour: the same training without the fault."""
    watched: list[Monitor] = []
    train(0, 4, watch=lambda *of: watched.append(Monitor(*of)))
    watched[0].close()

    assert watched[0].findings == []
