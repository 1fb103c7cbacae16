"""MP048: the small constant that guards a division is zero in FP16."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP048",
    name="eps-rounds-to-zero",
    title="The small constant that guards a division is zero in FP16.",
    symptom="A division by zero gives infinity or NaN for constant or empty inputs.",
    evidence="The denominator is 0 in half precision, because a constant below 3e-8 rounds to 0 there.",
    fix="Divide in FP32, or take the constant from torch.finfo(x.dtype).",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/32137",
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
    ),
    related=("MP047", "MP063", "MP141"),
)
