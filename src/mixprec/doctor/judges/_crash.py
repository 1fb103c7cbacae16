"""What the exception that ended a script says, before anybody asks why: its words, its line, what it was handed.

The line that raises is often innocent; a judge takes it only where the fault is on it.
"""

from __future__ import annotations

import re
from pathlib import Path

from mixprec.doctor._arm import Arm, Crash, Examination
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import say
from mixprec.records import Confidence, Evidence, Location, Severity, Verdict

__all__ = [
    "MIXED",
    "confidence_of_crash",
    "crash_of",
    "crash_says",
    "described",
    "here",
    "lint_names_the_crash",
    "mixed_dtypes",
]

MIXED = re.compile(
    r"same dtype|same scalar type|expected scalar type|to be equal to src\.dtype|mixed dtype"
    r"|dtypes? (?:must|should)? ?match"
    r"|should be the same|dtype .* should match|expected m1 and m2|must have the same|Expected object of scalar type"
    r"|have different dtypes?|incompatible dtypes?|expects? (?:self|source|value) ?.* same|can't be cast|self\.dtype"
    r"|expected dtype .* but got dtype|expected .* to have .*dtype|do(?:es)? not match .*dtype",
    re.IGNORECASE,
)
"""Messages of PyTorch that say that two dtypes met where one was wanted."""


def crash_of(examination: Examination) -> tuple[Arm, Crash] | None:
    """The observing arm and the exception that ended it."""
    arm = observed(examination)
    return None if arm is None or arm.crash is None else (arm, arm.crash)


def crash_says(examination: Examination, *patterns: str) -> tuple[Arm, Crash] | None:
    """The same, if the message holds one of these regular expressions."""
    found = crash_of(examination)
    if found is None or not any(re.search(pattern, found[1].message, re.IGNORECASE) for pattern in patterns):
        return None
    return found


def here(crash: Crash) -> Location:
    """The innermost line of the user's."""
    return crash.frames[-1] if crash.frames else Location()


def described(crash: Crash, arm: Arm) -> Evidence:
    """The exception as evidence."""
    first = crash.message.strip().splitlines()[0] if crash.message.strip() else ""
    return Evidence("the script raised", f"{crash.kind}: {first}"[:300], arm=arm.name, step=crash.iteration)


def mixed_dtypes(crash: Crash) -> bool:
    """Whether the message says that 16 and 32 bits met."""
    half = re.search(r"half|bfloat16|float16", crash.message, re.IGNORECASE)
    held = {stats.dtype for stats in crash.tensors}
    both = "float32" in held and not held.isdisjoint({"float16", "bfloat16"})
    return MIXED.search(crash.message) is not None and (half is not None or both)


def confidence_of_crash(examination: Examination, crash: Crash) -> tuple[Confidence, tuple[Evidence, ...]]:
    """Confirmed if the FP32 control gets past the place; the control is the evidence."""
    control = examination.arm("fp32")
    if control is None or control.ended not in ("finished", "stopped", "crashed"):
        return Confidence.CONSISTENT, ()
    if control.crash is None or control.crash.message != crash.message:
        return Confidence.CONFIRMED, (Evidence("the same place in FP32", "does not raise", arm=control.name),)
    return Confidence.CONSISTENT, (Evidence("the same place in FP32", "raises as well", arm=control.name),)


def lint_names_the_crash(examination: Examination) -> Verdict | None:
    """An exception of which no judge knows the words, on a line of which lint says that it is an error."""
    found = crash_of(examination)
    if found is None:
        return None
    arm, crash = found
    read = next((f for f in examination.lint if f.severity is Severity.ERROR and _same_line(f.location, crash)), None)
    if read is None:
        return None
    confidence, controls = confidence_of_crash(examination, crash)
    evidence = (described(crash, arm), Evidence("lint says of the line that raises", read.message))
    return say(read.code, read.message, read.location, evidence=evidence, confidence=confidence, ruled_out=controls)


def _same_line(read: Location, crash: Crash) -> bool:
    at = here(crash)
    if at.file is None or at.line is None or read.file is None or read.line is None:
        return False
    return Path(read.file).name == Path(at.file).name and read.line <= at.line <= (read.end_line or read.line)
