"""MP094: the DeepSpeed engine manages FP16 and the script adds autocast or a scaler of its own."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP094",
    name="deepspeed-and-own-amp",
    title="The DeepSpeed engine manages FP16 and the script adds autocast or a scaler of its own.",
    symptom="The loss is scaled twice, and DeepSpeed stops at its minimum loss scale.",
    evidence="fp16 is enabled in the DeepSpeed configuration, and the script uses torch.amp as well.",
    fix="Leave precision to one of them.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/deepspeedai/DeepSpeed/issues/5426",
        "https://github.com/deepspeedai/DeepSpeedExamples/issues/418",
    ),
    related=("MP210", "MP012"),
)
