"""MP141: a value that is tiny in FP16 is squared, and the result is divided by."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP141",
    name="tiny-denominator",
    title="A value that is tiny in FP16 is squared, and the result is divided by.",
    symptom=(
        "Gradients are NaN or infinite while the forward pass is finite; the scale ends far below what the "
        "gradients need."
    ),
    evidence=(
        "The first bad op is a division or reciprocal, mostly in backward, whose denominator is below 6.1e-5 in "
        "half and not zero in FP32; the FP32 and bfloat16 controls are clean."
    ),
    fix="Take the norm or the square in FP32: x.float().norm(...).",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
        "https://arxiv.org/abs/1710.03740",
    ),
    related=("MP045", "MP048"),
)
