"""MP083: backward runs inside the autocast region."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Evidence, Severity, Verdict


def judge(examination: Examination) -> Verdict | None:
    """A backward that was called while autocast was on in its thread."""
    arm = observed(examination)
    for event in arm.events if arm is not None else ():
        assert arm is not None
        if event.kind == "backward" and event.data.get("in_region"):
            return say(
                "MP083",
                "backward() is called inside the autocast region; only the forward pass and the loss belong there.",
                event.site,
                evidence=(
                    Evidence("dtype of the region", event.data["in_region"], arm=arm.name, step=event.iteration),
                ),
                confidence=confidence_of_protocol(examination, "MP083"),
                severity=Severity.WARNING,
            )
    return None
