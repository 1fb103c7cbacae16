"""MP063: an optimizer constant is 0 or 1 in the dtype of the weights, and one step makes them NaN."""

from __future__ import annotations

import math

from mixprec.doctor._arm import Arm, Examination, OptimizerRecord, StepRecord
from mixprec.doctor.judges._reading import courses, observed, optimizer_of, sound, trains_half_weights
from mixprec.doctor.judges._say import say
from mixprec.formats import find_format
from mixprec.records import Confidence, Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """Finite gradients, 16-bit weights, an epsilon that is 0 there, and weights that are not finite after a step."""
    arm = observed(examination)
    for steps in courses(arm) if arm is not None else ():
        assert arm is not None
        optimizer = optimizer_of(arm, steps[0].optimizer, steps[0].rank)
        if optimizer is None or optimizer.eps is None or not trains_half_weights(optimizer, "float16"):
            continue
        broken = next((n for n, step in enumerate(steps) if not step.weights_finite), None)
        if broken is None or not _vanishes(optimizer.eps) or not _finite(steps[broken]):
            continue
        return _say(examination, arm, optimizer, steps[broken])
    return None


def _vanishes(eps: float) -> bool:
    return 0 < eps <= find_format("float16").smallest_subnormal / 2


def _finite(step: StepRecord) -> bool:
    return step.grad_norm is None or math.isfinite(step.grad_norm)


def _say(examination: Examination, arm: Arm, optimizer: OptimizerRecord, step: StepRecord) -> Verdict:
    larger = examination.arm("adam-eps")
    cured = larger is not None and not any(not s.weights_finite for s in larger.steps)
    evidence = [
        Evidence("epsilon of the optimizer", optimizer.eps, arm=arm.name),
        Evidence("dtype of the weights", "float16", arm=arm.name),
        Evidence("gradients of the step were finite", True, arm=arm.name, step=step.iteration),
        Evidence("weights after the step are finite", False, arm=arm.name, step=step.iteration),
    ]
    if larger is not None:
        evidence.append(Evidence("weights with epsilon 1e-4", "finite" if cured else "not finite", arm=larger.name))
    healthy = sound(examination.arm("fp32"))
    return say(
        "MP063",
        f"The {optimizer.kind} epsilon of {optimizer.eps} is 0 in FP16, so that the first step divides by 0.",
        optimizer.site,
        evidence=evidence,
        confidence=Confidence.CONFIRMED if cured else Confidence.CONSISTENT,
        ruled_out=[Evidence("learning rate and data: the FP32 control", "is healthy", arm="fp32")] if healthy else (),
    )
