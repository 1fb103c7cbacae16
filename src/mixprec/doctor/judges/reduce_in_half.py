"""MP093: gradients are summed over the ranks in FP16 before they are divided."""

from __future__ import annotations

import math

from mixprec.doctor._arm import Arm, Event, Examination
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """An FP16 sum over ranks of finite gradients that is not finite, or that had no room left."""
    arm = observed(examination)
    if arm is None or arm.ranks < 2:
        return None
    reductions = [e for e in arm.events if e.kind == "all_reduce" and e.data.get("dtype") == "float16"]
    skipped = any(step.skipped for step in arm.steps)
    overflowed = [e for e in reductions if _overflows(arm, e)]
    return _say(examination, arm, overflowed[0]) if overflowed and skipped else None


def _overflows(arm: Arm, event: Event) -> bool:
    amax = event.data.get("amax")
    return amax is not None and (not math.isfinite(amax) or amax * arm.ranks > 65504)


def _say(examination: Examination, arm: Arm, event: Event) -> Verdict:
    return say(
        "MP093",
        "Scaled gradients are summed over the ranks in FP16 before they are divided by their number.",
        event.site,
        evidence=(
            Evidence("dtype of the sum", "float16", arm=arm.name, step=event.iteration),
            Evidence("largest gradient of this rank", event.data.get("amax"), arm=arm.name, step=event.iteration),
            Evidence("ranks", arm.ranks, arm=arm.name),
            Evidence("skipped steps", sum(step.skipped for step in arm.steps if step.rank == 0), arm=arm.name),
        ),
        confidence=confidence_of_protocol(examination, "MP093"),
    )
