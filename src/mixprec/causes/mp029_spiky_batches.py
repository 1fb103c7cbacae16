"""MP029: single batches have much larger gradients than the rest, and the scale follows them too slowly."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP029",
    name="spiky-batches",
    title="Single batches have much larger gradients than the rest, and the scale follows them too slowly.",
    symptom="One to ten per cent of all steps are skipped, spread over the whole run.",
    evidence=(
        "Skips belong to particular batches or long sequences, whose gradient norm in FP32 is far above the median."
    ),
    fix="Clip, lower the learning rate, or repair those batches; mixed precision is not at fault.",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://github.com/deepspeedai/DeepSpeed/issues/5426",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/9799",
    ),
    related=("MP010", "MP011", "MP131"),
)
