"""MP130: the learning rate is too high, or gradients explode; precision is not the cause."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP130",
    name="learning-rate-too-high",
    title="The learning rate is too high, or gradients explode; precision is not the cause.",
    symptom="The loss diverges in every precision.",
    evidence="FP32 and FP64 controls diverge at about the same step.",
    fix="Lower the learning rate, warm up longer, or clip.",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=("https://arxiv.org/abs/1211.5063",),
    related=("MP039", "MP131"),
)
