"""MP082, MP086, MP091, MP162, MP163: 16 and 32 bits met in an op that takes one dtype.

Which of them it is depends on where they met: in the backward of a function of the user's, in an op that writes by
index, in place, at a parameter, and whether the input had been 16-bit before something promoted it.
"""

from __future__ import annotations

import re

from mixprec.doctor._arm import Arm, Crash, Examination
from mixprec.doctor.judges._crash import confidence_of_crash, crash_of, described, here, mixed_dtypes
from mixprec.doctor.judges._located import traced
from mixprec.doctor.judges._reading import LOW, site_of_conversion, text_of
from mixprec.doctor.judges._say import lint_finding, say
from mixprec.records import Confidence, Evidence, Location, Verdict

BY_INDEX = re.compile(
    r"index put|index_put|index_add|index_copy|index_fill|scatter|masked_scatter|lerp|put_|masked_select|index_reduce"
    r"|source and destination dtypes|self and source|src\.dtype|self \(\w+\) and source",
    re.IGNORECASE,
)
IN_PLACE = re.compile(r"in-place|out=|result type|output tensor|\b\w+_\(", re.IGNORECASE)
WORDS = {
    "MP082": "An autograd function of the script mixes 16-bit and FP32 tensors, for autocast does not reach inside it.",
    "MP086": "An FP32 tensor has promoted 16-bit activations to FP32, and 16-bit weights do not take them.",
    "MP091": "An op in place or with out= is not autocast, and its operands have two dtypes.",
    "MP162": "An op that writes by index neither casts nor promotes: its target is FP32 and its source 16-bit.",
    "MP163": "16-bit weights are given FP32 inputs while autocast is off.",
}


def judge(examination: Examination) -> Verdict | None:
    """The message says that dtypes differ; the place says why."""
    found = crash_of(examination)
    if found is None or not mixed_dtypes(found[1]):
        return None
    arm, crash = found
    code, at = _cause(examination, arm, crash)
    confidence, controls = confidence_of_crash(examination, crash)
    if code == "MP086" and not any(one.ops for one in examination.arms):
        confidence = Confidence.CONSISTENT  # which op promoted is not known yet
    return say(
        code,
        WORDS[code],
        at,
        evidence=(described(crash, arm), *_operands(arm, crash)),
        confidence=confidence,
        ruled_out=controls,
    )


def _cause(examination: Examination, arm: Arm, crash: Crash) -> tuple[str, Location]:
    line = text_of(here(crash))
    if BY_INDEX.search(crash.message) or re.search(r"scatter|index_add|index_copy|lerp|\]\s*=[^=]", line):
        return "MP162", here(crash)
    if crash.in_backward and _own_backward(arm, crash):
        return "MP082", here(crash)
    if re.search(r"\.\w+_\(|out=|[-+*/@]=", line) or IN_PLACE.search(crash.message):
        return "MP091", here(crash)
    if crash.in_region is not None and lint_finding(examination, "MP082"):
        return "MP082", here(crash)
    if crash.in_region is None:
        promoted = _promoted(examination, arm, crash)
        if promoted is not None:
            return "MP086", promoted
        return "MP163", here(crash)
    return ("MP162" if _written_by_index(crash) else "MP091"), here(crash)


def _own_backward(arm: Arm, crash: Crash) -> bool:
    """Whether the innermost user's line is in a backward of the user's, and not the line that called backward."""
    starts = {(event.site.file, event.site.line) for event in arm.events if event.kind == "backward"}
    at = here(crash)
    return (at.file, at.line) not in starts


def _written_by_index(crash: Crash) -> bool:
    return "[" in text_of(here(crash)).split("=")[0]


def _promoted(examination: Examination, arm: Arm, crash: Crash) -> Location | None:
    """Where activations that had been 16-bit became FP32 before they reached a 16-bit module; None if never."""
    before = [module for module in arm.modules if module.calls]
    gave_half = any(dtype in LOW for module in before for dtype in module.output_dtypes)
    if not gave_half:
        return None
    mixed = next((one for _, one in traced(examination, "mixed")), None)
    if mixed is not None:
        return mixed.op.location
    return site_of_conversion(arm) or here(crash)


def _operands(arm: Arm, crash: Crash) -> tuple[Evidence, ...]:
    named = zip(crash.names, crash.tensors, strict=False)
    floating = [(name, stats) for name, stats in named if "float" in stats.dtype]
    return tuple(Evidence(f"dtype of {name}", stats.dtype, arm=arm.name) for name, stats in floating[:4])
