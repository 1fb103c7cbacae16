"""MP040: the residual stream grows with depth and nears the FP16 limit in the late layers."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP040",
    name="residual-growth",
    title="The residual stream grows with depth and nears the FP16 limit in the late layers.",
    symptom="The last layers overflow first, or after some training.",
    evidence="The distance to 65504 shrinks from layer to layer.",
    fix="Scale the residual branches, add normalisation, or use bfloat16.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/huggingface/transformers/issues/14189",
        "https://arxiv.org/abs/2105.13290",
    ),
    related=("MP030", "MP037", "MP039"),
)
