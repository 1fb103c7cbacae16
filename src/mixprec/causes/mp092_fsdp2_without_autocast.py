"""MP092: FSDP2's mixed-precision policy casts parameters but does not enter autocast."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP092",
    name="fsdp2-without-autocast",
    title="FSDP2's mixed-precision policy casts parameters but does not enter autocast.",
    symptom="Losses and softmax run in bfloat16, and FP32 buffers stay FP32.",
    evidence="The table of op dtypes shows softmax or cross entropy in bfloat16.",
    fix="Enter autocast around the forward pass, or cast logits to FP32 before the loss.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/Modalities/modalities/issues/464",
        "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html",
    ),
    related=("MP066", "MP089", "MP093"),
)
