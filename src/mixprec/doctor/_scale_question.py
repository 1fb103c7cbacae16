"""A loss scale that settles below 1 is no warm-up: gradients leave FP16 at any useful scale, though FP32 is healthy."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor._verdict import only_the_scale, verdicts
from mixprec.doctor.judges._located import culprit
from mixprec.doctor.judges._reading import courses, failure, observed, skips, sound
from mixprec.records import Severity

__all__ = ["scale_question"]


def scale_question(known: Examination) -> str | None:
    """The experiment that would decide; None where the scale has room, or a verdict explains it."""
    arm, fault = observed(known), culprit(known)
    found = failure(arm)
    if arm is None or fault is None or found is None or found.how != "scale" or not only_the_scale(known):
        return None
    if not sound(known.arm("fp32")) or any(v.severity is Severity.ERROR for v in verdicts(known)):
        return None
    settled = min((s for steps in courses(arm) if (s := skips(steps).settled) is not None), default=1.0)
    if settled >= 1.0:
        return None
    at = fault.op.location
    place = f"line {at.line}" + (f" (module {at.module})" if at.module else "")
    return (
        f"Run it with that part in float32, or in bfloat16: gradients of {place} overflow FP16 at every loss scale "
        f"above {settled:.3g}, and the FP32 control is healthy."
    )
