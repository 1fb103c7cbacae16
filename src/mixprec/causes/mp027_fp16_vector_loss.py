"""MP027: the loss is an FP16 tensor with more than zero dimensions, so scaling overflows it."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP027",
    name="fp16-vector-loss",
    title="The loss is an FP16 tensor with more than zero dimensions, so scaling overflows it.",
    symptom="Every step is skipped although the loss looks small.",
    evidence=(
        "The loss is float16 with at least one dimension, and the loss times the scale exceeds 65504; a "
        "0-dimensional loss would have been promoted to FP32."
    ),
    fix="Reduce in FP32 before scaling: loss.float().mean().",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://docs.pytorch.org/docs/stable/tensor_attributes.html",
    ),
    related=("MP012", "MP032"),
)
