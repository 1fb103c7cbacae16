"""MP209: an optimizer's gradients are made and unscaled, or cleared, in every iteration, and it takes no step."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Event, Examination, OptimizerRecord
from mixprec.doctor.judges._protocol import enabled, on_ranks
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Evidence, Verdict

ITERATIONS = 5
"""Of the script's other optimizer, in which this one could have stepped."""


def judge(examination: Examination) -> Verdict | None:
    """One of several optimizers of a run that came to its end, with gradients and without a step."""
    arm = observed(examination)
    if arm is None or arm.crash is not None:
        return None
    steps = [step for step in arm.steps if step.finished]
    stepped = {(step.rank, step.optimizer) for step in steps}
    if len(steps) < ITERATIONS:
        return None
    for optimizer in arm.optimizers:
        if (optimizer.rank, optimizer.optimizer) in stepped or optimizer.optimizer not in _given(arm):
            continue
        for events in on_ranks(arm):
            asked = [e for e in events if e.optimizer == optimizer.optimizer and e.rank == optimizer.rank]
            unscaled = [e for e in asked if e.kind == "unscale" and enabled(e)]
            cleared = [e for e in asked if e.kind == "zero_grad"]
            if len(unscaled) >= ITERATIONS or (len(cleared) >= ITERATIONS and arm.ended == "finished"):
                return _say(examination, arm, optimizer, (unscaled or cleared)[0])
    return None


def _given(arm: Arm) -> tuple[int, ...]:
    return tuple(arm.facts.get("given_gradients", ()))


def _say(examination: Examination, arm: Arm, optimizer: OptimizerRecord, asked: Event) -> Verdict:
    return say(
        "MP209",
        f"This {optimizer.kind} is given gradients, and no step is ever taken with it: its parameters do not learn.",
        asked.site,
        evidence=(
            Evidence("steps of the other optimizers", len(arm.steps), arm=arm.name),
            Evidence("its own steps", 0, arm=arm.name),
            Evidence("line that makes it", optimizer.site.line, arm=arm.name),
        ),
        confidence=confidence_of_protocol(examination, "MP209"),
    )
