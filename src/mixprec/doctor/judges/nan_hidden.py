"""MP133, MP134: something turns NaN into a number before anybody sees it."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination, TracedOp
from mixprec.doctor.judges._located import packet, traced
from mixprec.doctor.judges._reading import finite_loss, observed
from mixprec.doctor.judges._say import lint_finding, say
from mixprec.records import Confidence, Evidence, Location, Severity, Verdict


def judge(examination: Examination) -> Verdict | None:
    """An op that read NaN and gave numbers; or a log that filters a loss that was NaN."""
    for arm, one in traced(examination, "hides"):
        if packet(one.op).startswith("nan_to_num"):
            return _replaced(arm, one)
    return _filtered(examination)


def _replaced(arm: Arm, one: TracedOp) -> Verdict:
    bad = one.op.inputs[0] if one.op.inputs else None
    return say(
        "MP134",
        "nan_to_num replaces NaN or infinity that the model made, so that nobody sees it.",
        one.op.location,
        evidence=(
            Evidence("NaN elements that were replaced", bad.nans if bad else None, arm=arm.name, step=one.iteration),
            Evidence(
                "infinite elements that were replaced", bad.infs if bad else None, arm=arm.name, step=one.iteration
            ),
        ),
        confidence=Confidence.CONFIRMED,
    )


def _filtered(examination: Examination) -> Verdict | None:
    arm, lint = observed(examination), lint_finding(examination, "MP133")
    seen = arm.facts.get("nan_filter") if arm is not None else None
    if arm is None or (lint is None and not seen):
        return None
    at = lint.location if lint is not None else Location(**(seen or {}))
    bad = next((step for step in arm.steps if not finite_loss(step)), None)
    if bad is None:
        return None
    return say(
        "MP133",
        "The log filters NaN out of the loss; the loss itself was not finite.",
        at,
        evidence=(Evidence("loss", bad.loss, arm=arm.name, step=bad.iteration),),
        confidence=Confidence.CONFIRMED,
        severity=Severity.WARNING,
    )
