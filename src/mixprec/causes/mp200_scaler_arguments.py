"""MP200: the scaler was given arguments that make no sense."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP200",
    name="scaler-arguments",
    title="The scaler was given arguments that make no sense.",
    symptom="The scale runs away, or every few steps are lost to probing.",
    evidence=(
        "growth_interval is below 10, init_scale is not above 0 or is above 2^24, or a factor is on the wrong side "
        "of 1."
    ),
    fix="Leave the arguments out; the defaults are right for almost every model.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=("https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",),
    related=("MP014", "MP015"),
)
