"""MP167: the layers are so small that casts, scaler and calls cost more than half precision saves."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP167",
    name="layers-too-small",
    title="The layers are so small that casts, scaler and calls cost more than half precision saves.",
    symptom="Mixed precision is slower than FP32.",
    evidence="The FLOPs per matrix product are tiny, and casts and the scaler take longer than the products.",
    fix="Train in FP32, use larger batches, or compile the model.",
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html",
        "https://github.com/pytorch/pytorch/issues/118499",
    ),
    related=("MP101", "MP102"),
)
