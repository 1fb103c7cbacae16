"""MP139: one rank's own loss is not finite where the others' are, and what the ranks share breaks them all.

That one rank meets it first by chance, as in a training that diverges or where FP16 overflows, is another matter: the
others' losses are as before, and in float32 the same rank fails alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mixprec.doctor._arm import Arm, Event, Examination, StepRecord
from mixprec.doctor.judges._located import Fault, culprit_of, faults
from mixprec.doctor.judges._reading import computes_low, event_run, finite_loss, observed
from mixprec.doctor.judges._say import say
from mixprec.doctor.judges.divergence import diverges
from mixprec.records import Confidence, Evidence, Location, Verdict

GROWN = 10.0
"""Times its first loss from which on a rank whose loss is still finite is about to lose it as well."""


def judge(examination: Examination) -> Verdict | None:
    """The first step with a loss that is not finite has it on some ranks only, and afterwards it is everybody's."""
    arm, control = observed(examination), examination.arm("fp32")
    if arm is None or arm.ranks < 2 or (control is None and computes_low(arm)):
        return None
    for optimizer in sorted({step.optimizer for step in arm.steps}):
        found = _first_bad(arm, optimizer)
        if found is None or diverges(arm, optimizer) or not _spreads(arm, found):
            continue
        if control is not None and _alone(_first_bad(control, optimizer)) != _alone(found):
            continue
        return _say(examination, arm, found, control)
    return None


def _first_bad(arm: Arm, optimizer: int) -> Sequence[StepRecord] | None:
    """One step of all ranks, the first in which some ranks' loss is not finite and the others' is as ever."""
    courses = [[s for s in arm.of(optimizer, rank) if s.finished] for rank in range(arm.ranks)]
    for attempts in zip(*courses, strict=False):
        bad = [step for step in attempts if not finite_loss(step)]
        if bad:
            calm = all(
                _calm(step, course[0]) for step, course in zip(attempts, courses, strict=True) if finite_loss(step)
            )
            return attempts if calm and len(bad) < len(attempts) else None
    return None


def _calm(step: StepRecord, first: StepRecord) -> bool:
    if step.loss is None or first.loss is None:
        return False
    return abs(step.loss) <= GROWN * max(abs(first.loss), 1.0)


def _alone(attempts: Sequence[StepRecord] | None) -> frozenset[int]:
    """The ranks whose loss is not finite."""
    return frozenset(step.rank for step in attempts or () if not finite_loss(step))


def _spreads(arm: Arm, attempts: Sequence[StepRecord]) -> bool:
    """Whether it breaks what a rank with a finite loss trains: its gradients in this step, and later it does not end.

    One bad batch that the scaler skips on all ranks is over with that step.
    """
    well = next(step for step in attempts if finite_loss(step))
    ill = next(step for step in attempts if not finite_loss(step))
    norm = well.grad_norm if well.grad_norm_at_step is None else well.grad_norm_at_step
    broken = (norm is not None and not math.isfinite(norm)) or not well.weights_finite
    later = [step for step in arm.of(ill.optimizer, ill.rank) if step.index > ill.index and step.finished]
    return broken and 2 * sum(not finite_loss(step) or not step.weights_finite for step in later) >= len(later)


def _say(examination: Examination, arm: Arm, attempts: Sequence[StepRecord], control: Arm | None) -> Verdict:
    ranks = sorted(_alone(attempts))
    ill = next(step for step in attempts if step.rank == ranks[0])
    said = "rank " + ", ".join(map(str, ranks))
    evidence = [
        Evidence(f"loss of rank {step.rank}", step.loss, arm=arm.name, step=step.iteration) for step in attempts
    ]
    evidence += [
        Evidence(f"gradient norm of rank {step.rank}", step.grad_norm, arm=arm.name, step=step.iteration)
        for step in attempts
        if finite_loss(step)
    ]
    fault = _fault(examination, ill)
    if fault is not None:
        evidence.append(
            Evidence(f"op that went wrong on rank {ill.rank}", fault.op.op, arm=fault.arm.name, step=fault.iteration)
        )
    return say(
        "MP139",
        f"Only {said} makes NaN or infinity of its own: the other ranks' loss is finite, and the all-reduce of the "
        "gradients spreads it to all.",
        _backward(arm, ill) if fault is None else fault.op.location,
        evidence=evidence,
        confidence=Confidence.CONFIRMED if control is not None else Confidence.CONSISTENT,
        ruled_out=[Evidence("precision: the FP32 control", f"{said} fails alone as well", arm=control.name)]
        if control is not None
        else (),
    )


def _fault(examination: Examination, step: StepRecord) -> Fault | None:
    """The op of that rank that went wrong, in that step or before it."""
    mine = [f for f in faults(examination) if f.traced.rank == step.rank and f.iteration <= step.iteration]
    return culprit_of([fault for fault in mine if fault.op.location.line is not None])


def _backward(arm: Arm, step: StepRecord) -> Location:
    """The line at which that rank's loss is known."""
    calls: list[Event] = [event for event in event_run(arm, step.rank) if event.kind == "backward"]
    return next((event.site for event in calls if event.iteration == step.iteration), step.site)
