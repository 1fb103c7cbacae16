"""MP097: the adapters on a quantised model are trainable in FP16."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP097",
    name="adapter-in-half",
    title="The adapters on a quantised model are trainable in FP16.",
    symptom='PyTorch raises "Attempting to unscale FP16 gradients.", or the adapters turn NaN.',
    evidence="Trainable parameters are half while the frozen base is quantised.",
    fix="Keep the adapters in FP32, for example with prepare_model_for_kbit_training.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://github.com/huggingface/peft/issues/341",
        "https://huggingface.co/docs/peft/main/en/developer_guides/troubleshooting",
    ),
    related=("MP084",),
)
