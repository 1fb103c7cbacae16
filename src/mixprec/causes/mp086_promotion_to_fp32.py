"""MP086: an FP32 buffer or mask turns half activations back into FP32."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP086",
    name="promotion-to-fp32",
    title="An FP32 buffer or mask turns half activations back into FP32.",
    symptom="The layers after it save neither time nor memory.",
    evidence="An elementwise op has half and FP32 inputs and an FP32 output, which later ops cast down again.",
    fix="Keep the buffer in the compute dtype, or cast it where it is used.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/tensor_attributes.html",
        "https://docs.pytorch.org/docs/stable/amp.html",
    ),
    related=("MP085", "MP105", "MP125"),
)
