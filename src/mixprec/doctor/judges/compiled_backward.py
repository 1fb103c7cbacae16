"""MP166: the backward of a compiled module runs under the caller's autocast, whatever its own regions say."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Examination
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Location, Verdict


def judge(examination: Examination) -> Verdict | None:
    """Gradients are not finite, and are with torch.compile off."""
    arm, eager = observed(examination), examination.arm("eager")
    if arm is None or eager is None or not _bad(arm) or _bad(eager):
        return None
    low = any(region.enabled for region in arm.regions)
    code = "MP166" if low else "MP095"
    return say(
        code,
        "Compiled, the backward runs under the caller's autocast and ignores the FP32 island inside."
        if low
        else "Gradients are not finite when compiled and are finite in eager mode.",
        _place(arm),
        evidence=(
            Evidence("backward passes with gradients that are not finite", _bad(arm), arm=arm.name),
            Evidence("the same with torch.compile off", _bad(eager), arm=eager.name),
        ),
        confidence=Confidence.CONFIRMED,
    )


def _bad(arm: Arm) -> int:
    """Backward passes whose gradients were not finite, by the look of them or by what the scaler skipped."""
    seen = sum(e.kind == "backward_done" and e.data.get("gradients_finite") is False for e in arm.events)
    return seen + sum(step.skipped for step in arm.steps if step.finished)


def _place(arm: Arm) -> Location:
    """The island inside the compiled module, if one was entered; else the line that compiles, or the region."""
    islands = [r.site for r in arm.regions if not r.enabled and r.entered]
    made = arm.facts.get("compile_site")
    regions = [r.site for r in arm.regions if r.enabled and r.entered]
    if islands:
        return islands[0]
    if isinstance(made, dict):
        return Location(file=made.get("file"), line=made.get("line"))
    return regions[0] if regions else Location()
