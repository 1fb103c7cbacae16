"""MP088: weights change inside an autocast region that has cast them already."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import confidence_of_protocol, lint_finding, say
from mixprec.records import Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """A region with the cache on in which a weight changed after a module had used it, and one was used again."""
    arm = observed(examination)
    for event in arm.events if arm is not None else ():
        assert arm is not None
        if event.kind == "weights_changed":
            lint = lint_finding(examination, "MP088")
            return say(
                "MP088",
                "Weights are changed inside the autocast region; the casts of the old ones are used on.",
                event.site if lint is None else lint.location,
                evidence=(
                    Evidence(
                        "weights changed in the region", event.data.get("count"), arm=arm.name, step=event.iteration
                    ),
                ),
                confidence=confidence_of_protocol(examination, "MP088"),
            )
    return None
