"""MP032: a sum over many FP16 values exceeds the FP16 range."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP032",
    name="reduction-overflow",
    title="A sum over many FP16 values exceeds the FP16 range.",
    symptom="A loss or norm becomes infinite for large inputs only; a sum of 70000 ones is already infinite.",
    evidence=(
        "The output of sum, mean or cumsum is infinite, its inputs are finite, and their number times their mean "
        "exceeds 65504. CPU and CUDA differ, as autocast sums in FP32 only on CUDA."
    ),
    fix="Sum in FP32: x.float().sum() or x.sum(dtype=torch.float32).",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/52501",
        "https://docs.pytorch.org/docs/stable/amp.html",
    ),
    related=("MP027", "MP031", "MP068"),
)
