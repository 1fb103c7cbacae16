"""MP131, MP135, MP136: what an op was given was bad before the iteration began.

A batch: the data. Weights at the first step: the checkpoint. Weights later: an earlier step.
"""

from __future__ import annotations

import math

from mixprec.doctor._arm import Arm, Examination, StepRecord
from mixprec.doctor.judges._located import MATMULS, Fault, culprit
from mixprec.doctor.judges._masks import constant_that_overflows
from mixprec.doctor.judges._reading import courses, failure, finite_loss, observed
from mixprec.doctor.judges._say import say
from mixprec.doctor.judges.poisoned_state import restored_bad
from mixprec.records import Confidence, Evidence, Location, Verdict

WORDS = {
    "MP131": "A batch holds values that are not finite.",
    "MP135": "The weights were not finite when the iteration began: an earlier step broke them.",
    "MP136": "The weights are not finite before the first step: the checkpoint or the initialisation is bad.",
}


def judge(examination: Examination) -> Verdict | None:
    """The first bad batch of the observing arm, or what the located op was given."""
    arm = observed(examination)
    if arm is None:
        return None
    batch = next((step for step in arm.steps if not step.batch_finite and _harmed(step)), None)
    harmless = any(not step.batch_finite and not _harmed(step) for step in arm.steps)
    if batch is not None and not harmless and not _broken_before(arm, batch):
        return _say("MP131", arm, batch.iteration, _loss_or_forward(arm, examination), _rest(batch))
    if restored_bad(arm) is not None:
        return None  # the bad numbers that an op was given are the state's
    fault = culprit(examination)
    if fault is not None and (fault.role == "given" or _read(fault)) and not constant_that_overflows(fault):
        return _given(arm, fault) if failure(arm) is not None else None  # what no loss and no step reads is a choice
    born = next((o for o in arm.optimizers if not o.finite_at_first), None)
    first = next(iter(sorted(arm.steps, key=lambda step: step.iteration)), None)
    if born is not None and first is not None and (born.optimizer, born.rank) == (first.optimizer, first.rank):
        return _say("MP136", arm, first.iteration, _read_from(arm, fault), ())
    return None


def _read_from(arm: Arm, fault: Fault | None) -> Location:
    """The line that loaded a file before the first step; else where the values first went wrong, or were first used."""
    start = next((e.index for e in arm.events if e.kind in ("forward_begin", "backward")), math.inf)
    loads = [event.site for event in arm.events if event.kind == "file_loaded" and event.index < start]
    if loads:
        return loads[-1]
    if fault is not None and fault.op.location.line is not None:
        return fault.op.location
    return next((event.site for event in arm.events if event.kind == "forward_begin"), Location())


def _harmed(step: StepRecord) -> bool:
    """Whether the step failed: a mask of minus infinity among the inputs harms nothing."""
    return step.skipped or not step.weights_finite or not finite_loss(step)


def _broken_before(arm: Arm, batch: StepRecord) -> bool:
    return any(not step.weights_finite and step.iteration < batch.iteration for step in arm.steps)


def _rest(batch: StepRecord) -> list[Evidence]:
    return [Evidence("fingerprint of the batch", batch.batch, step=batch.iteration)]


def _loss_or_forward(arm: Arm, examination: Examination) -> Location:
    fault = culprit(examination)
    if fault is not None and fault.op.location.line is not None:
        return fault.op.location
    return next((event.site for event in arm.events if event.kind == "forward_begin"), Location())


def _given(arm: Arm, fault: Fault) -> Verdict | None:
    earlier = any(not s.weights_finite and s.iteration < fault.iteration for steps in courses(arm) for s in steps)
    weights = fault.op.location.module and (
        fault.packet in MATMULS or fault.op.cast or fault.packet in ("embedding", "t")
    )
    if earlier:
        code = "MP135"
    elif _loaded(arm, fault) or (weights and _weights_read(fault)):
        code = "MP136" if fault.iteration == 0 else "MP135"
    elif fault.op.phase not in ("forward", "recompute"):
        return None  # gradients of a backward that was not traced: an overflow as any other, and no batch
    else:
        code = "MP131"
    at = fault.op.location
    return _say(code, arm, fault.iteration, at, fault.evidence())


def _read(fault: Fault) -> bool:
    """Whether the op only put bytes from a file under a tensor."""
    return fault.packet == "set_"


def _loaded(arm: Arm, fault: Fault) -> bool:
    """Whether the op copies what a checkpoint held into weights."""
    return _read(fault) or (
        fault.packet == "copy_" and ("load" in fault.traced.source or fault.op.call == "load_state_dict")
    )


def _weights_read(fault: Fault) -> bool:
    """Whether the bad operand is no activation: the op's other float operands are finite, or it is the only one."""
    bad = [stats for stats in fault.op.inputs if not stats.finite]
    return bool(bad) and (len(fault.op.inputs) > 1 or fault.op.cast)


def _say(code: str, arm: Arm, iteration: int, at: Location, evidence: object) -> Verdict:
    first = Evidence("first iteration with it", iteration, arm=arm.name, step=iteration)
    return say(code, WORDS[code], at, evidence=(first, *evidence), confidence=Confidence.CONFIRMED)  # type: ignore[misc] # lists and tuples of Evidence
