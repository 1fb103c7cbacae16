"""What follows applied steps follows nothing else."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from mixprec._schedule import Average, SkipAwareScheduler, StepCounter, warmup
from mixprec.errors import CheckpointError, InvalidValueError
from mixprec.records import StepReason, StepReport, StepValues

APPLIED, SKIPPED = (
    StepReport(StepValues(torch.tensor(flag), torch.tensor(1.0)), lambda v: StepValues(float(v.found_inf), 1.0))
    for flag in (0.0, 1.0)
)
INSIDE = StepReport(StepValues(torch.tensor(0.0), torch.tensor(1.0)), lambda v: v, reason=StepReason.ACCUMULATING)

SCHEDULERS = {
    "step": lambda o: lr_scheduler.StepLR(o, 3, gamma=0.5),
    "multistep": lambda o: lr_scheduler.MultiStepLR(o, [2, 5], gamma=0.1),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda k: 1 / (1 + k)),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, 10),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 2.0, total_steps=40),
    "chained": lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.ExponentialLR(o, 0.9)]),
}


def optimizer(lr=1.0):
    return torch.optim.SGD(nn.Linear(2, 1).parameters(), lr, momentum=0.9)


def rates(scheduler, opt, steps):
    seen = []
    for _ in range(steps):
        seen.append(opt.param_groups[0]["lr"])
        opt.step()
        scheduler.step()
    return seen


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)
def test_a_wrapped_schedule_moves_once_per_applied_step(make):
    """Over a mixed stream it is where the bare schedule is after as many steps as were applied."""
    mine, bare = optimizer(), optimizer()
    wrapped, plain = SkipAwareScheduler(make(mine)), make(bare)
    for report in [SKIPPED, APPLIED, INSIDE, APPLIED, SKIPPED, SKIPPED, APPLIED, INSIDE]:
        mine.step()
        assert wrapped.step(report) is report.applied
        if report.applied:
            bare.step()
            plain.step()
    assert wrapped.get_last_lr() == plain.get_last_lr()
    assert wrapped.state_dict().keys() == plain.state_dict().keys()
    assert wrapped.last_epoch == 3 if hasattr(plain, "last_epoch") else True


def test_a_wrapped_schedule_shares_its_checkpoints():
    """The state passes through, in both directions, and the wrapper pickles."""
    opt = optimizer()
    wrapped = SkipAwareScheduler(lr_scheduler.StepLR(opt, 2))
    for _ in range(3):
        opt.step()
        wrapped.step(APPLIED)
    bare = lr_scheduler.StepLR(optimizer(), 2)
    bare.load_state_dict(wrapped.state_dict())
    assert bare.last_epoch == 3
    again = SkipAwareScheduler(lr_scheduler.StepLR(optimizer(), 2))
    again.load_state_dict(bare.state_dict())
    assert again.last_epoch == 3
    assert pickle.loads(pickle.dumps(wrapped)).last_epoch == 3


def test_what_cannot_be_stepped_is_refused():
    """A schedule that wants a metric, a double wrapping, an optimizer and a call without report, each with advice."""
    opt = optimizer()
    with pytest.raises(InvalidValueError, match=r"Step it yourself after each validation: scheduler.step\(metric\)"):
        SkipAwareScheduler(lr_scheduler.ReduceLROnPlateau(opt))
    wrapped = SkipAwareScheduler(lr_scheduler.StepLR(opt, 2))
    with pytest.raises(InvalidValueError, match=r"Pass the scheduler that it wraps"):
        SkipAwareScheduler(wrapped)
    with pytest.raises(InvalidValueError, match=r"scheduler is 'SGD'; accepted is an object with step\(\)"):
        SkipAwareScheduler(opt)
    with pytest.raises(InvalidValueError, match=r"report is None; accepted is a StepReport. Pass what precision.step"):
        wrapped.step(None)
    opt.step()
    assert wrapped.step(APPLIED)


def test_warm_up_rises_linearly_and_holds():
    """Step k of n has (k+1)/n of the rate, or starts from a share; after n steps the rate is the optimizer's."""
    opt = optimizer(2.0)
    assert rates(warmup(opt, 4), opt, 6) == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]
    opt = optimizer(2.0)
    assert rates(warmup(opt, 2, start=0.5), opt, 3) == [1.5, 2.0, 2.0]


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=SCHEDULERS)
def test_after_the_warm_up_the_schedule_runs_as_it_would_alone(make):
    """The rates after n warm-up steps are those of the schedule from its own beginning."""
    alone, both = optimizer(), optimizer()
    expected = rates(make(alone), alone, 12)
    seen = rates(warmup(make(both), 5), both, 17)
    assert seen[:5] == pytest.approx([expected[0] * (k + 1) / 5 for k in range(5)])
    assert seen[5:] == expected


def test_a_rate_in_a_tensor_stays_that_tensor():
    """Compiled and captured optimizers hold the rate by reference, so it is written in place."""
    rate = torch.tensor(2.0)
    opt = torch.optim.Adam(nn.Linear(2, 1).parameters(), rate)
    scheduler = warmup(opt, 2)
    held = opt.param_groups[0]["lr"]
    assert held.item() == 1.0
    opt.step()
    scheduler.step()
    assert opt.param_groups[0]["lr"] is held
    assert held.item() == 2.0


def test_a_warm_up_resumes_where_it_was():
    """Saved and loaded in the middle it goes on with the same rates, in the rise as after it."""
    for stop in (3, 7):
        opt = optimizer()
        whole = rates(warmup(SCHEDULERS["cosine"](opt), 5), opt, 12)
        first = optimizer()
        scheduler = warmup(SCHEDULERS["cosine"](first), 5)
        rates(scheduler, first, stop)
        second = optimizer()
        resumed = warmup(SCHEDULERS["cosine"](second), 5)
        resumed.load_state_dict(scheduler.state_dict())
        second.load_state_dict(first.state_dict())
        assert rates(resumed, second, 12 - stop) == pytest.approx(whole[stop:])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"steps": 0}, "steps is 0; accepted is a whole number, 1 or more"),
        ({"steps": 1.5}, "steps is 1.5"),
        ({"steps": 3, "start": 1.0}, "start is 1.0; accepted is a share of the learning rate"),
        ({"steps": 3, "start": -0.1}, "start is -0.1"),
    ],
)
def test_a_warm_up_has_steps_and_a_share_to_start_from(arguments, text):
    """What makes no ramp is refused; one step from 0 is the shortest."""
    with pytest.raises(InvalidValueError, match=text):
        warmup(optimizer(), **arguments)
    warmup(optimizer(), 1, start=0.0)


def test_a_warm_up_before_a_metric_schedule_is_refused():
    """ReduceLROnPlateau cannot follow by itself."""
    with pytest.raises(InvalidValueError, match="ReduceLROnPlateau"):
        warmup(lr_scheduler.ReduceLROnPlateau(optimizer()), 3)
    with pytest.raises(InvalidValueError, match="epoch is 3; accepted is None"):
        warmup(optimizer(), 3).step(3)


def test_the_counter_tells_applied_from_skipped():
    """Micro-batches count as neither, and the counts are saved."""
    counter = StepCounter()
    for report in [APPLIED, SKIPPED, INSIDE, APPLIED]:
        counter.update(report)
    assert (counter.applied, counter.skipped) == (2, 1)
    again = StepCounter()
    again.load_state_dict(counter.state_dict())
    assert again == counter
    with pytest.raises(CheckpointError, match="skipped is None in the checkpoint; accepted is a int"):
        again.load_state_dict({"applied": 1})


def test_an_average_follows_applied_steps_in_float32():
    """It equals the float64 recurrence over the applied steps, for bf16 weights too, where bf16 would stand still."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.ones(64, dtype=torch.bfloat16)
    average = Average([weight], decay=0.999)
    expected = weight.double()
    in_bf16 = weight.clone()
    for index in range(300):
        weight.copy_(1.0 + 0.25 * torch.rand(64, generator=generator))
        report = [APPLIED, SKIPPED, INSIDE][index % 3]
        assert average.update(report) is report.applied
        if report.applied:
            expected = 0.999 * expected + 0.001 * weight.double()
            in_bf16.lerp_(weight, 0.001)
    torch.testing.assert_close(average.values[0].double(), expected, rtol=1e-6, atol=0)
    assert torch.equal(in_bf16, torch.ones(64, dtype=torch.bfloat16))
    average.copy_to([weight])
    assert torch.equal(weight, expected.bfloat16())


def test_an_average_is_saved_and_checked():
    """It resumes exactly, and a state that does not fit is refused before anything is written."""
    average = Average([torch.zeros(2), torch.zeros(3)], 0.9)
    state = {"decay": 0.5, "values": [torch.ones(2), torch.ones(3)]}
    with pytest.raises(CheckpointError, match=r"values in the checkpoint do not have the shapes \[\(2,\), \(3,\)\]"):
        average.load_state_dict({"decay": 0.5, "values": [torch.ones(2)]})
    assert average.decay == 0.9
    average.load_state_dict(state)
    assert average.state_dict()["decay"] == 0.5
    assert torch.equal(average.values[1], torch.ones(3))
    with pytest.raises(InvalidValueError, match=r"decay is 1.0; accepted is a share"):
        Average([torch.zeros(2)], 1.0)
