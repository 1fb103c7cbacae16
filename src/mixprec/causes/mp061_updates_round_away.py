"""MP061: weights are kept in 16 bits without an FP32 copy, so small updates are lost in rounding."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP061",
    name="updates-round-away",
    title="Weights are kept in 16 bits without an FP32 copy, so small updates are lost in rounding.",
    symptom="Training reaches a plateau early or loses accuracy late in the run.",
    evidence=(
        "Many elements do not change in a step although their gradient is not zero: with AdamW at a learning rate "
        "of 1e-5, about 94 per cent in bfloat16, about half in FP16 and none in FP32."
    ),
    fix="Keep FP32 weights and use autocast, or use stochastic rounding or Kahan summation.",
    where=(Where.LINT, Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://arxiv.org/abs/2010.06192",
        "https://github.com/pytorch/pytorch/issues/120376",
        "https://arxiv.org/abs/1710.03740",
    ),
    related=("MP062", "MP063", "MP064"),
)
