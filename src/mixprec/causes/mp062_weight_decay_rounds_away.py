"""MP062: weight decay is too small for the precision of the weights."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP062",
    name="weight-decay-rounds-away",
    title="Weight decay is too small for the precision of the weights.",
    symptom="The weights do not shrink at all.",
    evidence=(
        "The product of learning rate and decay is below half the dtype's epsilon, so multiplying by it changes "
        "nothing."
    ),
    fix="Keep FP32 master weights.",
    where=(Where.RUN,),
    raises="silent",
    sources=("https://arxiv.org/abs/2010.06192",),
    related=("MP061",),
)
