"""MP093: gradients are summed over ranks in FP16 before they are divided."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP093",
    name="reduce-in-fp16",
    title="Gradients are summed over ranks in FP16 before they are divided.",
    symptom="Infinite gradients appear only with many ranks.",
    evidence="The output of the all-reduce is infinite while its inputs are finite on every rank.",
    fix="Divide before the sum, or reduce in FP32.",
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py",
    ),
    related=("MP066", "MP092"),
)
