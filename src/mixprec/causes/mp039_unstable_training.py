"""MP039: weights or logits grow steadily until any precision fails."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP039",
    name="unstable-training",
    title="Weights or logits grow steadily until any precision fails.",
    symptom="Training breaks after a long healthy stretch; bfloat16 only fails later.",
    evidence="The largest magnitude of one layer rises over many steps, in the FP32 control as well.",
    fix=(
        "Lower the learning rate, clip, normalise queries and keys, or penalise large logits; another dtype only "
        "delays it."
    ),
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://arxiv.org/abs/2309.14322",
        "https://arxiv.org/abs/2204.02311",
    ),
    related=("MP030", "MP130", "MP071"),
)
