"""MP070: in reinforcement learning, the trainer and the sampler compute different log-probabilities."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP070",
    name="trainer-sampler-mismatch",
    title="In reinforcement learning, the trainer and the sampler compute different log-probabilities.",
    symptom="The reward collapses.",
    evidence=(
        "The divergence between the trainer's and the sampler's log-probabilities is not zero before the first update."
    ),
    fix="Use FP16 or an FP32 head on both sides, and the same kernels.",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://arxiv.org/abs/2510.26788",
        "https://github.com/allenai/open-instruct/issues/1387",
    ),
    related=("MP071",),
)
