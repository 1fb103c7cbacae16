"""MP020: a schedule that goes on once per iteration goes on as well where the scaler skipped the step."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Event, Examination
from mixprec.doctor.judges._reading import event_run, observed
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Evidence, Severity, Verdict


def judge(examination: Examination) -> Verdict | None:
    """A scheduler steps between a skipped step of its optimizer and the next."""
    arm = observed(examination)
    if arm is None:
        return None
    for optimizer in arm.optimizers:
        if optimizer.rank:
            continue
        after = _after_skips(arm, optimizer.optimizer)
        if after:
            return _say(examination, arm, optimizer.optimizer, after)
    return None


def _after_skips(arm: Arm, optimizer: int) -> list[Event]:
    """Steps of the scheduler that followed a skipped step; none if it does not step in (nearly) every iteration."""
    events = event_run(arm)
    skipped = {step.iteration for step in arm.of(optimizer) if step.skipped and step.finished}
    attempts = [e for e in events if e.kind == "scaler_step" and e.optimizer == optimizer]
    follows = [_next_scheduler_step(events, attempt, optimizer) for attempt in attempts]
    if len(attempts) < 2 or sum(one is not None for one in follows) < 0.5 * len(attempts):
        return []
    return [step for attempt, step in zip(attempts, follows, strict=True) if step and attempt.iteration in skipped]


def _next_scheduler_step(events: tuple[Event, ...], attempt: Event, optimizer: int) -> Event | None:
    for event in events:
        if event.index <= attempt.index:
            continue
        if event.kind == "scheduler_step" and event.optimizer == optimizer:
            return event
        if event.kind == "scaler_step" and event.optimizer == optimizer:
            return None
    return None


def _say(examination: Examination, arm: Arm, optimizer: int, after: list[Event]) -> Verdict:
    steps = arm.of(optimizer)
    warned = [w for w in arm.warnings if "lr_scheduler.step()" in w.message]
    return say(
        "MP020",
        "The learning-rate schedule goes on although the scaler skipped the optimizer's step.",
        after[0].site,
        evidence=(
            Evidence(
                "steps that the scaler skipped", sum(step.skipped for step in steps), f"of {len(steps)}", arm=arm.name
            ),
            Evidence("steps of the schedule seen after a skipped one", len(after), arm=arm.name),
            Evidence("torch warns of it", bool(warned), arm=arm.name),
        ),
        confidence=confidence_of_protocol(examination, "MP020"),
        severity=Severity.WARNING,
    )
