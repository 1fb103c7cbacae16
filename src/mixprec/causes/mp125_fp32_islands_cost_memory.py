"""MP125: FP32 islands and promotions keep large activations in FP32."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP125",
    name="fp32-islands-cost-memory",
    title="FP32 islands and promotions keep large activations in FP32.",
    symptom="Less memory is saved than expected.",
    evidence="A large share of the saved bytes is FP32 behind an island or a promoting op.",
    fix="Cast back to half after the island, and keep buffers in the compute dtype.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/amp.html",
        "https://docs.pytorch.org/docs/stable/tensor_attributes.html",
    ),
    related=("MP086", "MP123"),
)
