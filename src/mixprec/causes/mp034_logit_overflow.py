"""MP034: the last linear layer produces logits outside the FP16 range."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP034",
    name="logit-overflow",
    title="The last linear layer produces logits outside the FP16 range.",
    symptom="The loss is NaN although every layer before the head is healthy.",
    evidence="The first infinite output is that of the output head.",
    fix="Run the head in FP32, or limit the logits with a soft cap.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://github.com/unslothai/unsloth-zoo/issues/598",),
    related=("MP030", "MP122"),
)
