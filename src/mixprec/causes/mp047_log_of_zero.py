"""MP047: log() receives a zero that FP16 rounding has made."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP047",
    name="log-of-zero",
    title="log() receives a zero that FP16 rounding has made.",
    symptom="The loss is infinite or NaN when the model is sure of itself.",
    evidence=(
        "The input of log is 0 in half precision; a guard below 3e-8 rounds to 0 there, and sigmoid reaches exactly "
        "0 and 1."
    ),
    fix="Use log_softmax, logsigmoid or binary_cross_entropy_with_logits, or a guard of at least 1e-4 in FP16.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
        "https://github.com/pytorch/pytorch/issues/61098",
    ),
    related=("MP048", "MP049", "MP035"),
)
