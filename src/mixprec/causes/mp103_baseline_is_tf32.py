"""MP103: the FP32 baseline already uses TF32 on tensor cores."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP103",
    name="baseline-is-tf32",
    title="The FP32 baseline already uses TF32 on tensor cores.",
    symptom="The gain from half precision is about half of what was expected.",
    evidence="TF32 is allowed for matrix products in the FP32 run.",
    fix="State the baseline, and expect about two times less gain.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/RangiLyu/nanodet/issues/506",
        "https://docs.pytorch.org/docs/stable/notes/cuda.html",
    ),
    related=("MP072", "MP208"),
)
