"""MP031: squaring or multiplying FP16 values overflows in hand-written code."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP031",
    name="square-overflow",
    title="Squaring or multiplying FP16 values overflows in hand-written code.",
    symptom="Infinite values appear in a hand-written norm, distance or pixel loss.",
    evidence=(
        "The op is a multiplication, pow or square on FP16 values above 256, whose square does not fit below 65504."
    ),
    fix="Convert to FP32 first, or use the built-in layer such as F.rms_norm.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/neuroneural/brainchop/issues/56",
        "https://docs.pytorch.org/docs/stable/amp.html",
    ),
    related=("MP032", "MP036", "MP067"),
)
