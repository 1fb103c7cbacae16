"""MP022: a gradient penalty is made of gradients of the scaled loss and the scale is never divided out."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._protocol import between, last, on_ranks
from mixprec.doctor.judges._reading import observed
from mixprec.doctor.judges._say import confidence_of_protocol, say
from mixprec.records import Evidence, Verdict


def judge(examination: Examination) -> Verdict | None:
    """autograd.grad of a scaled output with a graph, and no look at the scale between two updates."""
    arm = observed(examination)
    for events in on_ranks(arm) if arm is not None else ():
        assert arm is not None
        for event in events:
            if event.kind != "grad" or not event.data.get("of_scale") or not event.data.get("create_graph"):
                continue
            before = last([e for e in events if e.index < event.index], "update")
            after = next((e for e in events if e.index > event.index and e.kind == "backward"), None)
            if after is None or any(e.kind == "scale_read" for e in between(events, before, after)):
                continue
            scale = next((step.scale for step in arm.steps if step.iteration >= event.iteration), None)
            return say(
                "MP022",
                "A penalty is made of gradients of the scaled loss, and nothing divides the scale out of them.",
                event.site,
                evidence=(
                    Evidence("loss scale in the gradients", scale, arm=arm.name, step=event.iteration),
                    Evidence("loss with the penalty", after.data.get("loss"), arm=arm.name, step=event.iteration),
                ),
                confidence=confidence_of_protocol(examination, "MP022"),
            )
    return None
