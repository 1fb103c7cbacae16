"""MP002: gradients are clipped while they carry the loss scale."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Event, Examination
from mixprec.doctor.judges._protocol import on_ranks
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """A clip of gradients in state `scaled`, at a scale other than 1."""
    arm = observed(examination)
    if arm is None:
        return None
    for events in on_ranks(arm):
        for event in events:
            if event.kind == "clip" and event.data.get("state") == "scaled" and _scale_at(arm, event) != 1.0:
                return say(
                    "MP002",
                    "Gradients are clipped while they still carry the loss scale: nearly nothing is left of them.",
                    event.site,
                    evidence=_evidence(arm, event),
                    confidence=confidence_of_protocol(examination, "MP002"),
                )
    return None


def _scale_at(arm: Arm, clip: Event) -> float | None:
    mine = [s for s in arm.steps if s.rank == clip.rank and s.optimizer == clip.optimizer and s.scale is not None]
    return next((step.scale for step in mine if step.iteration >= clip.iteration), None)


def _evidence(arm: Arm, clip: Event) -> list[Evidence]:
    step = next((s for s in arm.steps if s.optimizer == clip.optimizer and s.iteration >= clip.iteration), None)
    facts = [
        ("limit of the clip", clip.data.get("limit")),
        ("norm that the clip saw", clip.data.get("norm")),
        ("true norm of the gradients", step.grad_norm if step else None),
        ("loss scale", step.scale if step else None),
    ]
    return [Evidence(what, value, arm=arm.name, step=clip.iteration) for what, value in facts if value is not None]
