"""MP025: between two backward passes of one iteration the script moves the weights along gradients that still carry the
scale (SAM's first half-step), and lands far away or at NaN.
"""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Event, Examination
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import confidence_of_protocol, lint_finding, say
from mixprec.records import Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """Weights that were moved far by hand while their gradients were scaled."""
    arm = observed(examination)
    for event in arm.events if arm is not None else ():
        if event.kind == "weights_moved" and event.data.get("state") == "scaled" and event.data.get("far"):
            assert arm is not None
            return _say(examination, arm, event)
    return None


def _say(examination: Examination, arm: Arm, event: Event) -> Verdict:
    lint = lint_finding(examination, "MP025")
    finite = event.data.get("finite")
    return say(
        "MP025",
        "The script moves the weights between two backward passes, along gradients that still carry the loss scale.",
        event.site if lint is None else lint.location,
        evidence=(
            Evidence("state of the gradients at the move", event.data.get("state"), arm=arm.name, step=event.iteration),
            Evidence("weights after it are finite", finite, arm=arm.name, step=event.iteration),
            *(
                [Evidence("length of the move over that of the weights", event.data.get("ratio"), arm=arm.name)]
                if finite
                else []
            ),
        ),
        confidence=confidence_of_protocol(examination, "MP025"),
    )
