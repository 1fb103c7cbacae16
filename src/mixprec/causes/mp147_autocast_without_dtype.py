"""MP147: autocast is given no dtype, and its default is not what the rest of the script assumes."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP147",
    name="autocast-without-dtype",
    title="Autocast is given no dtype, and its default is not what the rest of the script assumes.",
    symptom="On one device a needless scaler runs with bfloat16, on another FP16 runs without a scaler.",
    evidence=(
        "The dtype in the region differs from the one that the script's switch or the scaler's enabled= implies; "
        "the default is FP16 on CUDA and bfloat16 on CPU."
    ),
    fix="Pass dtype= to autocast, and derive the scaler's enabled= from the same variable.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/amp.html",),
    related=("MP001", "MP019"),
)
