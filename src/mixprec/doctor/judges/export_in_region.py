"""MP171: a module is traced or exported while autocast's weight cache is on."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._crash import confidence_of_crash, crash_says, described, here
from mixprec.doctor.judges._say import say
from mixprec.records import Verdict


def judge(examination: Examination) -> Verdict | None:
    """The tracer meets a cast weight that it cannot put into the graph."""
    found = crash_says(examination, r"Cannot insert a Tensor that requires grad as a constant")
    if found is None:
        return None
    arm, crash = found
    if crash.in_region is None and not any(region.entered for region in arm.regions):
        return None
    confidence, controls = confidence_of_crash(examination, crash)
    return say(
        "MP171",
        "The module is traced inside autocast with the weight cache on, so that cast weights become constants.",
        here(crash),
        evidence=(described(crash, arm),),
        confidence=confidence,
        ruled_out=controls,
    )
