"""MP068: a metric or loss is summed up in half precision."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP068",
    name="running-sum-in-half",
    title="A metric or loss is summed up in half precision.",
    symptom="The metric stops growing: adding 1 to 2048 in FP16, or to 256 in bfloat16, changes nothing.",
    evidence="A running total is a 16-bit tensor.",
    fix="Accumulate in FP32, or in Python numbers.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",),
    related=("MP032", "MP064", "MP065"),
)
