"""MP065: positions, counters or time steps are kept in half precision."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP065",
    name="positions-in-half",
    title="Positions, counters or time steps are kept in half precision.",
    symptom="Neighbouring positions become equal, and long sequences lose quality.",
    evidence="A 16-bit tensor holds whole numbers above 2048 in FP16 or above 256 in bfloat16.",
    fix="Keep them as integers or FP32, build rotary tables in FP32, and cast only the result.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/huggingface/transformers/issues/29285",
        "https://arxiv.org/abs/2411.13476",
    ),
    related=("MP068", "MP168"),
)
