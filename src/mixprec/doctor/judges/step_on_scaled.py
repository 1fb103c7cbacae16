"""MP003: an optimizer steps by itself on gradients that carry the loss scale."""

from __future__ import annotations

from mixprec.doctor._arm import Arm, Event, Examination
from mixprec.doctor.judges._protocol import on_ranks, scaling_is_on
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """A step that no scaler made, of gradients in state `scaled`, at a scale other than 1."""
    arm = observed(examination)
    if arm is None:
        return None
    for events in on_ranks(arm):
        if not scaling_is_on(events):
            continue
        for event in events:
            if event.kind == "step" and event.data.get("by_scaler") is False and event.data.get("state") == "scaled":
                scale = _scale(arm, event)
                if scale != 1.0:
                    return _say(examination, arm, event, scale)
    return None


def _scale(arm: Arm, event: Event) -> float | None:
    mine = (s for s in arm.steps if (s.rank, s.optimizer) == (event.rank, event.optimizer))
    return next((step.scale for step in mine if step.iteration >= event.iteration), None)


def _say(examination: Examination, arm: Arm, event: Event, scale: float | None) -> Verdict:
    step = next((s for s in arm.steps if s.optimizer == event.optimizer and s.iteration >= event.iteration), None)
    evidence = [Evidence("loss scale in the gradients of the step", scale, arm=arm.name, step=event.iteration)]
    if step is not None and step.update_ratio is not None:
        evidence.append(Evidence("change of the weights over their norm", step.update_ratio, arm=arm.name))
    return say(
        "MP003",
        "The optimizer steps by itself on gradients that still carry the loss scale.",
        event.site,
        evidence=evidence,
        confidence=confidence_of_protocol(examination, "MP003"),
    )
