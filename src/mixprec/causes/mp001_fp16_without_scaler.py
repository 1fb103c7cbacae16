"""MP001: the model trains in FP16 autocast without loss scaling."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP001",
    name="fp16-without-scaler",
    title="The model trains in FP16 autocast without loss scaling.",
    symptom="Training is slow or stands still although the loss is finite, because small gradients become zero.",
    evidence=(
        "Autocast runs in float16 and no GradScaler is used; many FP16 gradients are zero or subnormal that are not "
        "so in an FP32 run or under a larger scale."
    ),
    fix="Scale the loss with a GradScaler, or use bfloat16, which needs no scaling.",
    where=(Where.LINT, Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://arxiv.org/abs/1710.03740",
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://docs.pytorch.org/docs/stable/amp.html",
    ),
    related=("MP060", "MP147"),
)
