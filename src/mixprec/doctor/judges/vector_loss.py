"""MP027: an FP16 loss with one element per sample overflows when it is multiplied by the scale."""

from __future__ import annotations

from mixprec.doctor._arm import Examination
from mixprec.doctor.judges._protocol import enabled
from mixprec.doctor.judges._reading import failure, observed
from mixprec.doctor.judges._say import say
from mixprec.formats import find_format
from mixprec.records import Confidence, Evidence, Severity, Verdict


def judge(examination: Examination) -> Verdict | None:
    """scale() of an FP16 tensor with dimensions, whose mean times the scale is beyond FP16."""
    arm = observed(examination)
    fails = failure(arm) is not None
    for event in arm.events if arm is not None else ():
        assert arm is not None
        if event.kind != "scale" or not enabled(event) or event.data.get("loss_dtype") != "float16":
            continue
        scale = next((step.scale for step in arm.steps if step.iteration >= event.iteration), None)
        loss = event.data.get("loss")
        if event.data.get("loss_shape") and scale and loss and abs(loss) * scale > find_format("float16").max:
            return say(
                "MP027",
                "The loss is an FP16 vector, and times the scale it is beyond 65504; reduce it in FP32 first.",
                event.site,
                evidence=(
                    Evidence("mean of the loss", loss, arm=arm.name, step=event.iteration),
                    Evidence("loss scale", scale, arm=arm.name, step=event.iteration),
                ),
                confidence=Confidence.CONFIRMED if fails else Confidence.CONSISTENT,
                severity=Severity.ERROR if fails else Severity.INFO,  # not every backward uses the value of its loss
            )
    return None
