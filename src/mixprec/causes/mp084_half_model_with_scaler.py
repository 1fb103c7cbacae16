"""MP084: the model's parameters are FP16 while a GradScaler is in use."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP084",
    name="half-model-with-scaler",
    title="The model's parameters are FP16 while a GradScaler is in use.",
    symptom=(
        'PyTorch raises "Attempting to unscale FP16 gradients."; with a fused optimizer nothing is raised and the '
        "updates round away."
    ),
    evidence="A trainable parameter is float16 and the scaler is enabled.",
    fix="Keep the parameters in FP32 and use autocast; for adapters, convert the trainable parameters to FP32.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://github.com/huggingface/peft/issues/341",
        "https://github.com/huggingface/transformers/issues/23165",
        "https://github.com/huggingface/transformers/issues/30559",
        "https://github.com/pytorch/pytorch/issues/74739",
    ),
    related=("MP061", "MP063", "MP097", "MP098"),
)
