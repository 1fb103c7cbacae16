"""MP161: one rank leaves the iteration because its own loss is not finite, and the others wait for it."""

from __future__ import annotations

import re

from mixprec.doctor._arm import Arm, Event, Examination
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import confidence_of_protocol, lint_finding, say
from mixprec.records import Evidence, Verdict

LOST = r"Connection closed by peer|timed? ?out|Timeout|Broken pipe|Connection reset|barrier|process group"


def judge(examination: Examination) -> Verdict | None:
    """The ranks made different numbers of backward passes, and the run broke or hung."""
    arm = observed(examination)
    if arm is None or arm.ranks < 2:
        return None
    counts = _backwards(arm)
    broke = arm.ended == "timed_out" or (arm.crash is not None and re.search(LOST, arm.crash.message, re.IGNORECASE))
    if not broke or len(set(counts.values())) < 2:
        return None
    return _say(examination, arm, counts)


def _backwards(arm: Arm) -> dict[int, int]:
    counts = dict.fromkeys(range(arm.ranks), 0)
    for event in arm.events:
        if event.kind == "backward":
            counts[event.rank] = max(counts.get(event.rank, 0), event.iteration + 1)
    return counts


def _say(examination: Examination, arm: Arm, counts: dict[int, int]) -> Verdict:
    fewest = min(counts, key=lambda rank: counts[rank])
    read = lint_finding(examination, "MP161")
    last: Event | None = next((e for e in reversed(arm.events) if e.rank == fewest and e.kind == "forward_begin"), None)
    return say(
        "MP161",
        "One rank leaves an iteration that the others go through, and their collectives no longer meet.",
        read.location if read else last.site if last else None,
        evidence=[
            Evidence(f"iterations with a backward on rank {rank}", n, arm=arm.name) for rank, n in counts.items()
        ],
        confidence=confidence_of_protocol(examination, "MP161"),
    )
