"""MP100: the device has no fast arithmetic for the chosen dtype."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP100",
    name="no-fast-16-bit",
    title="The device has no fast arithmetic for the chosen dtype.",
    symptom="Half precision is as slow as FP32, or slower.",
    evidence=(
        "The dtype is bfloat16 and the compute capability is below 8.0; torch.cuda.is_bf16_supported() counts "
        "emulation by default."
    ),
    fix="Use FP16 on such GPUs, and ask is_bf16_supported(including_emulation=False).",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/148322",
        "https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_bf16_supported.html",
    ),
    related=("MP081", "MP108"),
)
