"""MP067: two large, nearly equal numbers are subtracted in low precision."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP067",
    name="cancellation",
    title="Two large, nearly equal numbers are subtracted in low precision.",
    symptom="Variances turn negative, distances turn noisy, and roots of them turn NaN.",
    evidence=(
        "The relative error of the op against FP32 is far above the dtype's epsilon, as in mean(x^2) minus mean(x)^2."
    ),
    fix="Use the centred formula, or compute it in FP32.",
    where=(Where.LINT, Where.RUN, Where.CONTROL),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",),
    related=("MP031", "MP050"),
)
