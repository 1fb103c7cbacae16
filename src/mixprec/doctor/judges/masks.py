"""MP042, MP043, MP044: a mask becomes minus infinity, or a row has nothing left that is not masked."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._located import Fault, confidence_of_fault, culprit, faults, fp32_fails, traced
from mixprec.doctor.judges._masks import constant_that_overflows, masks_that_meet
from mixprec.doctor.judges._say import lint_finding, say
from mixprec.records import Confidence, Evidence, Severity, Verdict

WORDS = {
    "MP042": "A constant beyond 65504 becomes infinite in FP16.",
    "MP043": "A row is masked throughout: softmax over minus infinity alone is NaN, in every dtype.",
    "MP044": "Two masks of the smallest FP16 number are added and become minus infinity.",
}


def judge(examination: Examination) -> Verdict | None:
    """The op that made the infinity; where it was made on purpose, the softmax that was left with nothing else."""
    fault = culprit(examination)
    if fault is None:
        return _without_harm(examination)
    if fault.backward:
        return None
    code, shown = _cause(examination, fault)
    if code is None:
        return None
    confidence, ruled_out = confidence_of_fault(examination)
    if code == "MP043":
        confidence = Confidence.CONFIRMED if fp32_fails(examination) else Confidence.CONSISTENT
    evidence = shown.evidence()
    written = sorted({value for value in shown.constants() if abs(value) > 6e4}, key=abs)
    if written:
        evidence.append(Evidence("constant in the script", written[-1], arm=shown.arm.name))
    return say(code, WORDS[code], shown.op.location, evidence=evidence, confidence=confidence, ruled_out=ruled_out)


def _without_harm(examination: Examination) -> Verdict | None:
    """The constant became infinite and softmax took it so far; text and run agree that it is not what was meant."""
    lint = lint_finding(examination, "MP042")
    hidden = [Fault(one, arm) for arm, one in traced(examination, "hidden")]
    shown = next((one for one in hidden if one.low and constant_that_overflows(one)), None)
    if lint is None or shown is None:
        return None
    return say(
        "MP042",
        WORDS["MP042"],
        shown.op.location,
        evidence=shown.evidence(),
        confidence=Confidence.CONFIRMED,
        severity=Severity.WARNING,
    )


def _cause(examination: Examination, fault: Fault) -> tuple[str | None, Fault]:
    if fault.role == "given" and constant_that_overflows(fault):
        return "MP042", fault
    if fault.role == "first_inf":
        if masks_that_meet(fault):
            return "MP044", fault
        if constant_that_overflows(fault) and fault.low:
            return "MP042", fault
        return None, fault
    softmaxes = [one for one in faults(examination) if "softmax" in one.packet or "attention" in one.packet]
    masked = next((one for one in softmaxes if one.role in ("nan_from_inf", "first_nan") and _all_masked(one)), None)
    accused = [one for one in faults(examination) if one.role == "first_inf" and not one.backward]
    if masked is not None and not accused:
        return "MP043", masked
    return None, fault


def _all_masked(fault: Fault) -> bool:
    return any(stats.infs for stats in fault.op.inputs) or "attention" in fault.packet
