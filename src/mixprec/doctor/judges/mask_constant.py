"""MP041: a constant does not fit FP16, and PyTorch says so."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._crash import confidence_of_crash, crash_says, described, here
from mixprec.doctor.judges._say import say
from mixprec.records import Verdict


def judge(examination: Examination) -> Verdict | None:
    """The exception names the conversion; its line is at fault."""
    found = crash_says(examination, r"value cannot be converted to type .*(?:Half|BFloat16).* without overflow")
    if found is None:
        return None
    arm, crash = found
    confidence, controls = confidence_of_crash(examination, crash)
    return say(
        "MP041",
        "A constant is filled into an FP16 tensor that cannot hold it: FP16 ends at 65504.",
        here(crash),
        evidence=(described(crash, arm),),
        confidence=confidence,
        ruled_out=controls,
    )
