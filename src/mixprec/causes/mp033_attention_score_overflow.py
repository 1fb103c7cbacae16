"""MP033: attention scores overflow before they are scaled."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP033",
    name="attention-score-overflow",
    title="Attention scores overflow before they are scaled.",
    symptom="Softmax in attention returns NaN.",
    evidence=(
        "The output of bmm, baddbmm or attention is infinite before the softmax while queries and keys are finite."
    ),
    fix="Scale the query before the product, normalise queries and keys, or use scaled_dot_product_attention.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/huggingface/transformers/issues/9295",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
    ),
    related=("MP030", "MP043"),
)
