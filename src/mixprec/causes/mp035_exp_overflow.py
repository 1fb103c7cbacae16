"""MP035: exp() receives a value whose result does not fit."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP035",
    name="exp-overflow",
    title="exp() receives a value whose result does not fit.",
    symptom="Infinite values appear in variational losses, temperatures or hand-written softmax.",
    evidence="exp runs in FP16 on an input above 11.09, or in FP32 on one above 88.7.",
    fix="Clamp the exponent, or stay in the log domain with logsumexp and log_softmax.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
        "https://docs.pytorch.org/docs/stable/amp.html",
    ),
    related=("MP031", "MP047"),
)
