"""MP001, MP060: gradients are flushed to zero in FP16, for want of a scaler or of a scale that is high enough."""

from __future__ import annotations

import math

from mixprec.doctor._arm import Arm, Examination
from mixprec.doctor.judges._located import traced
from mixprec.doctor.judges._reading import (
    computes_low,
    courses,
    learns_less,
    low_regions,
    median,
    observed,
    scalers_in_use,
)
from mixprec.doctor.judges._say import lint_finding, say
from mixprec.records import Confidence, Evidence, Location, Severity, Verdict

SHARE = 0.05
"""Share of gradients lost beyond the FP32 control's from which on it is underflow."""
FLUSHED = 0.3
"""Share of gradients that became 0 at a scale that looks high enough, and stays."""
BY_HAND = 8.0
"""A division of the gradients by this or more, the same each time, undoes a loss scale."""
SAME = 3
"""Steps in which two arms have next to the same weights."""


def judge(examination: Examination) -> Verdict | None:
    """An FP16 region with backward; without a scaler it is MP001, with one that sits low MP060."""
    arm = observed(examination)
    if arm is None or not low_regions(arm, "float16") or not any(e.kind == "backward" for e in arm.events):
        return None
    if not computes_low(arm) or _backpropagates_elsewhere(arm):
        return None
    lost = _lost(examination, arm)
    if not scalers_in_use(arm):
        return _no_scaler(examination, arm, lost)
    return _low_scale(examination, arm, lost)


def _backpropagates_elsewhere(arm: Arm) -> bool:
    """Whether no backward belongs to the FP16 region: its forward passes made no graph."""
    inside = [e for e in arm.events if e.kind == "forward_begin" and e.data.get("in_region") == "float16"]
    return bool(inside) and not any(e.data.get("grad") for e in inside)


def _lost(examination: Examination, arm: Arm) -> tuple[float | None, float | None, float | None]:
    """(share of activation gradients 0 or tiny here, the same in FP32, share that one op flushed)."""
    here = _share(arm)
    control = examination.arm("fp32")
    exact = _zeros(control) if control is not None else None
    flushed = max(
        (one.measures[0] + one.measures[1] for _, one in traced(examination, "flush") if one.measures), default=None
    )
    return here, exact, flushed


def _share(arm: Arm) -> float | None:
    sums = [
        (step.activation_zero_share or 0.0) + (step.activation_tiny_share or 0.0)
        for step in arm.steps
        if step.activation_zero_share is not None
    ]
    return median(sums)


def _zeros(arm: Arm) -> float | None:
    return median(step.activation_zero_share for step in arm.steps)


def _no_scaler(
    examination: Examination, arm: Arm, lost: tuple[float | None, float | None, float | None]
) -> Verdict | None:
    here, exact, flushed = lost
    excess = (here or 0.0) - (exact or 0.0) if exact is not None and here is not None else None
    own_scale = _scaled_by_hand(arm)
    measured = (excess is not None and excess > SHARE) or ((flushed or 0.0) > SHARE and own_scale is None)
    if own_scale is not None and not measured:
        return None
    at = next((r.site for r in low_regions(arm, "float16")), Location())
    lint = lint_finding(examination, "MP001")
    if lint is None and not measured and exact is not None and examination.arm("locate") is not None:
        return None  # nothing is lost, and the text knows of another way of scaling
    return say(
        "MP001",
        "FP16 autocast without a gradient scaler: small gradients are flushed to zero.",
        at if lint is None else lint.location,
        evidence=_evidence(arm, lost),
        confidence=Confidence.CONFIRMED if measured else Confidence.CONSISTENT if lint else Confidence.UNTESTED,
        severity=Severity.ERROR if measured else Severity.WARNING,
    )


def _scaled_by_hand(arm: Arm) -> float | None:
    """The loss scale that the script keeps itself: it divides all gradients by one number before each step.

    The same each time, or halved and doubled as overflows come and go.
    """
    for steps in courses(arm):
        factors = [step.divided_by for step in steps if step.divided_by is not None]
        if len(factors) >= 3 and min(factors) >= BY_HAND and all(_is_halving(f, factors[0]) for f in factors):
            return factors[0]
    return None


def _is_halving(factor: float, other: float) -> bool:
    power = math.log2(factor / other)
    return abs(power - round(power)) < 0.015


def _low_scale(
    examination: Examination, arm: Arm, lost: tuple[float | None, float | None, float | None]
) -> Verdict | None:
    here, exact, _ = lost
    control = examination.arm("fp32")
    if control is None or here is None or exact is None or here - exact < 0.2:
        return None
    harms = _gone_at_first(arm, control) >= FLUSHED and learns_less(examination) is not None
    for steps in courses(arm):
        scale = median(step.scale for step in steps)
        moves = len({step.scale for step in steps}) > 1
        if scale is None or any(step.skipped for step in steps) or (scale > 64.0 and (moves or not harms)):
            continue
        scaler = next((s for s in arm.scalers if s.scaler == steps[-1].scaler), None)
        return say(
            "MP060",
            f"The loss scale of {scale:g} is too low: gradients are flushed to zero in FP16.",
            scaler.site if scaler else steps[0].site,
            evidence=[*_evidence(arm, lost), Evidence("loss scale", scale, arm=arm.name)],
            confidence=Confidence.CONFIRMED,
        )
    return None


def _gone_at_first(arm: Arm, control: Arm) -> float:
    """The share that is 0 here and is not in FP32, while both still have the same weights and batches."""
    first = [median(s.activation_zero_share for s in one.steps if s.index < SAME) for one in (arm, control)]
    return 0.0 if first[0] is None or first[1] is None else first[0] - first[1]


def _evidence(arm: Arm, lost: tuple[float | None, float | None, float | None]) -> list[Evidence]:
    here, exact, flushed = lost
    facts = [
        ("activation gradients that are 0 or below 6.1e-5", here, arm.name),
        ("activation gradients that are 0 in FP32", exact, "fp32"),
        ("largest share that one op flushed", flushed, None),
    ]
    return [Evidence(what, value, "share", arm=name) for what, value, name in facts if value is not None]
