"""MP169: a loss or metric is computed from half outputs after the autocast region has ended."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP169",
    name="loss-after-region",
    title="A loss or metric is computed from half outputs after the autocast region has ended.",
    symptom="Validation shows infinite or coarse losses while the training loss is fine.",
    evidence="The loss op has half inputs with autocast off; the same op inside the region runs in FP32.",
    fix="Call float() on the outputs first, or move the loss into the region.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/huggingface/pytorch-image-models/issues/1586",
        "https://github.com/ultralytics/ultralytics/issues/9546",
    ),
    related=("MP207", "MP032"),
)
