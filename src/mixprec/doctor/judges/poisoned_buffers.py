"""MP038: running statistics have kept the NaN or infinity of a batch whose step was skipped, and the training goes on.

A scaler takes back the step of a bad batch, not what batch norm saw of it. Where the weights break as well, or most
later steps fail, the buffers are a consequence and no cause; one that holds infinities from the start is a mask.
"""

from __future__ import annotations

from collections.abc import Sequence

from mixprec.doctor._arm import Arm, Examination, ModuleRecord, StepRecord
from mixprec.doctor.judges._reading import courses, finite_loss, observed
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Location, Verdict

HEALTHY = 0.9
"""Share of the later steps that are applied with a finite loss."""


def judge(examination: Examination) -> Verdict | None:
    """Buffers turn bad in one step, stay so to the end, and nearly every later step is sound."""
    arm = observed(examination)
    for steps in courses(arm) if arm is not None else ():
        broke = next((n for n, step in enumerate(steps) if not step.buffers_finite), None)
        if broke is None or not _turned(steps, broke) or not all(step.weights_finite for step in steps):
            continue
        after = steps[broke + 1 :]
        if after and _lasts(after) and sum(map(_sound, after)) >= HEALTHY * len(after):
            assert arm is not None
            return _say(arm, steps[broke], len(after))
    return None


def _turned(steps: Sequence[StepRecord], broke: int) -> bool:
    """Whether the buffers were finite before: one was measured then, or this forward itself went wrong."""
    return (
        any(map(_measured, steps[:broke])) or steps[broke].first_bad_module is not None or not finite_loss(steps[broke])
    )


def _lasts(after: Sequence[StepRecord]) -> bool:
    measured = [step for step in after if _measured(step) or not step.buffers_finite]
    return bool(measured) and not measured[-1].buffers_finite


def _measured(step: StepRecord) -> bool:
    """Buffers are read in the first iterations and every tenth, and wherever a module went wrong."""
    return step.iteration < 3 or step.iteration % 10 == 0


def _sound(step: StepRecord) -> bool:
    return not step.skipped and finite_loss(step)


def _say(arm: Arm, step: StepRecord, later: int) -> Verdict:
    holder = _holder(arm, step)
    evidence = [
        Evidence("first iteration with it", step.iteration, arm=arm.name, step=step.iteration),
        Evidence("loss of that step", step.loss, arm=arm.name, step=step.iteration),
        Evidence("that step was skipped", step.skipped, arm=arm.name, step=step.iteration),
        Evidence("later steps, with finite weights throughout", later, arm=arm.name),
    ]
    if step.first_bad_module is not None:
        evidence.append(Evidence("first module that went wrong there", step.first_bad_module, arm=arm.name))
    return say(
        "MP038",
        "Buffers such as running statistics are not finite although the weights are: the bad batch was skipped, but "
        "what it left there stays.",
        step.site if holder is None else holder,
        evidence=evidence,
        confidence=Confidence.CONFIRMED,
    )


def _holder(arm: Arm, step: StepRecord) -> Location | None:
    """Where the first normalisation with running statistics is called."""
    holders = [m for m in arm.modules if m.rank == step.rank and m.buffer_dtypes and m.site.line is not None]
    chosen: ModuleRecord | None = next((m for m in holders if "Norm" in m.kind), holders[0] if holders else None)
    return None if chosen is None else chosen.site
