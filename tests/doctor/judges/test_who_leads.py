"""Which of two true causes leads: recordings in which one fact is another, so that the other cause is to be named."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from mixprec.doctor._arm import Arm, Examination, OptimizerRecord, StepRecord
from mixprec.doctor._kept import kept
from mixprec.doctor._verdict import verdicts
from mixprec.doctor.judges import infinity_meets, one_rank_is_bad, poisoned_buffers, poisoned_state
from mixprec.records import Severity

RECORDED = Path(__file__).parent / "recorded"
STEP = StepRecord(0, 0, 0, loss=1.0, grad_norm=1.0)


def recorded(name: str) -> Examination:
    """The examination of a faulty script."""
    return kept(RECORDED / f"{name}-bad.jsonl.xz")


def codes(examination: Examination) -> list[str]:
    """The codes of all verdicts, first the cause to repair."""
    return [verdict.code for verdict in verdicts(examination)]


def with_steps(examination: Examination, change: Callable[[StepRecord], StepRecord], *arms: str) -> Examination:
    """The examination with every step of these arms (all without names) changed."""
    changed = (
        dataclasses.replace(arm, steps=tuple(map(change, arm.steps))) if not arms or arm.name in arms else arm
        for arm in examination.arms
    )
    return dataclasses.replace(examination, arms=tuple(changed))


def observing(*steps: StepRecord, **more: object) -> Examination:
    """An examination of which only the observing arm is known."""
    arm = Arm("observe", steps=steps, optimizers=(OptimizerRecord(0, "Adam"),), **more)  # type: ignore[arg-type] # fields by name
    return Examination(("train.py",), (arm,))


def course(**fields: dict[int, object]) -> tuple[StepRecord, ...]:
    """Forty sound steps, of which some fields are others from an iteration on: `loss={7: nan, 8: 1.0}`."""
    steps = []
    for n in range(40):
        now = {name: at[max(k for k in at if k <= n)] for name, at in fields.items() if min(at) <= n}
        steps.append(dataclasses.replace(STEP, index=n, iteration=n, **now))
    return tuple(steps)


# MP038: what stays of a batch that was skipped


def test_statistics_that_stay_broken_lead_and_the_overflow_is_told() -> None:
    """What has to be repaired is what lasts; the batch that overflowed once comes second."""
    found = verdicts(recorded("mp038_skipped_batch"))
    assert [verdict.code for verdict in found] == ["MP038", "MP036"]
    assert found[0].severity is Severity.ERROR


def test_statistics_that_recover_leave_the_overflow() -> None:
    """Where the buffers are finite again, or most steps overflow, the overflow is the cause."""
    bad = recorded("mp038_skipped_batch")
    skip = next(step.iteration for step in bad.arms[0].steps if step.skipped)
    recovered = with_steps(bad, lambda s: dataclasses.replace(s, buffers_finite=s.iteration != skip), "observe")
    often = with_steps(bad, lambda s: dataclasses.replace(s, skipped=s.iteration >= skip), "observe")
    assert codes(recovered)[0] == codes(often)[0] == "MP036"
    assert "MP038" not in codes(recovered) + codes(often)


def test_buffers_that_hold_infinities_from_the_start_are_masks() -> None:
    """A causal mask of minus infinity that is registered as a buffer harms nobody."""
    assert codes(observing(*course(buffers_finite={0: False}))) == []
    turned = observing(*course(buffers_finite={10: False}))
    assert poisoned_buffers.judge(turned) is not None


def test_weights_that_break_as_well_are_not_the_buffers_fault() -> None:
    """Buffers and weights in one step have a common cause."""
    both = observing(*course(buffers_finite={10: False}, weights_finite={12: False}))
    assert poisoned_buffers.judge(both) is None


# MP140: weights put back, the state left


def test_a_state_that_breaks_every_later_step_leads_and_the_batch_is_told() -> None:
    """The bad record did its harm once; what goes on failing is the state."""
    assert codes(recorded("mp140_weights_put_back")) == ["MP140", "MP131"]


def test_weights_that_were_never_put_back_leave_the_batch() -> None:
    """A loss that stays NaN is that of broken weights, whatever the state holds."""
    bad = recorded("mp140_weights_put_back")
    broke = next(step.iteration for step in bad.arms[0].steps if not step.state_finite)
    left = with_steps(bad, lambda s: dataclasses.replace(s, loss=s.loss if s.iteration < broke else math.nan))
    assert codes(left) == ["MP131"]


@pytest.mark.parametrize(("size", "speaks"), [(None, True), (0.3, False)])
def test_a_part_of_the_weights_may_be_broken_and_unused(size: float | None, speaks: bool) -> None:
    """A row of a table that turned NaN and is not looked up leaves the loss finite without being put back."""
    broken = {"weights_finite": {9: False}, "state_finite": {9: False}, "weight_amax": {0: 0.3, 9: size}}
    steps = course(loss={9: math.nan, 10: 1.0}, grad_norm={9: math.nan, 10: 1.0}, **broken)
    assert (poisoned_state.judge(observing(*steps)) is not None) is speaks


# MP139: one rank


def on_rank(rank: int, *steps: StepRecord) -> tuple[StepRecord, ...]:
    """The steps as those of a rank."""
    return tuple(dataclasses.replace(step, rank=rank) for step in steps)


def test_the_rank_that_fails_alone_is_named() -> None:
    """Its number and its line are told; what makes NaN on both at once, or not for long, is no rank's."""
    bad = recorded("mp139_one_rank")
    first = verdicts(bad)[0]
    assert (first.code, first.severity) == ("MP139", Severity.ERROR)
    assert "rank 1" in first.message
    everywhere = with_steps(bad, lambda s: dataclasses.replace(s, loss=math.nan))
    assert one_rank_is_bad.judge(everywhere) is None
    passing = with_steps(
        bad, lambda s: s if s.iteration == 0 else dataclasses.replace(s, loss=1.0, weights_finite=True), "observe"
    )
    assert one_rank_is_bad.judge(passing) is None


def test_what_float32_does_not_do_is_no_ranks_fault() -> None:
    """An overflow that meets one rank's batch first is one of precision."""
    bad = recorded("mp139_one_rank")
    sound = with_steps(bad, lambda s: dataclasses.replace(s, loss=1.0), "fp32")
    other = with_steps(bad, lambda s: dataclasses.replace(s, loss=1.0 if s.rank else math.nan), "fp32")
    unknown = dataclasses.replace(bad, arms=tuple(arm for arm in bad.arms if arm.name != "fp32"))
    assert [one_rank_is_bad.judge(one) for one in (sound, other, unknown)] == [None] * 3


@pytest.mark.parametrize(("before", "speaks"), [(2.0, True), (5e7, False)])
def test_a_loss_that_explodes_ends_on_one_rank_first(before: float, speaks: bool) -> None:
    """Of a training that diverges the other rank's last finite loss is huge."""
    lost = {"weights_finite": {20: False}, "grad_norm": {20: math.nan}}
    well = on_rank(0, *course(loss={0: 1.0, 20: before, 21: math.nan}, **lost))
    ill = on_rank(1, *course(loss={0: 1.0, 20: math.nan}, **lost))
    found = one_rank_is_bad.judge(observing(*well, *ill, ranks=2))
    assert (found is not None) is speaks


# MP046, MP047, MP051


def test_a_discarded_logarithm_is_where_and_a_kept_one_is_log() -> None:
    """With an infinite loss nothing was discarded; with a sound FP32 control it is a 0 that 16 bits made."""
    bad = recorded("mp046_entropy_of_a_mask")
    assert codes(bad)[0] == "MP046"
    lost = with_steps(bad, lambda s: dataclasses.replace(s, loss=math.nan if not s.weights_finite else s.loss))
    assert codes(lost)[0] == "MP047"
    control = bad.arm("fp32")
    assert control is not None
    healthy = dataclasses.replace(control, steps=(STEP,), modules=())
    rounded = dataclasses.replace(bad, arms=tuple(healthy if arm is control else arm for arm in bad.arms))
    assert codes(rounded)[0] == "MP047"


@pytest.mark.parametrize(("loss", "severity"), [(math.nan, Severity.ERROR), (1.0, Severity.WARNING)])
def test_an_infinity_that_makes_the_loss_nan_is_an_error(loss: float, severity: Severity) -> None:
    """What breaks the step is no mere warning."""
    found = infinity_meets.judge(
        with_steps(recorded("mp051_inf_times_zero"), lambda s: dataclasses.replace(s, loss=loss))
    )
    assert found is not None
    assert found.severity is severity
