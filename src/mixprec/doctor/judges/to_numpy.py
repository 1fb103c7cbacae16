"""MP172: a bfloat16 tensor is handed to NumPy, which has no such type."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._crash import confidence_of_crash, crash_says, described, here
from mixprec.doctor.judges._say import say
from mixprec.records import Verdict


def judge(examination: Examination) -> Verdict | None:
    """The exception says it, on the line at fault."""
    found = crash_says(examination, r"unsupported ScalarType BFloat16")
    if found is None:
        return None
    arm, crash = found
    confidence, controls = confidence_of_crash(examination, crash)
    return say(
        "MP172",
        "A bfloat16 tensor is handed to NumPy, which has no bfloat16; call .float() first.",
        here(crash),
        evidence=(described(crash, arm),),
        confidence=confidence,
        ruled_out=controls,
    )
