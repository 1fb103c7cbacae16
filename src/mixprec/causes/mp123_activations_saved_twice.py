"""MP123: activations are saved for backward in FP32 and again in half precision."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP123",
    name="activations-saved-twice",
    title="Activations are saved for backward in FP32 and again in half precision.",
    symptom="Memory for activations hardly falls.",
    evidence="The bytes saved for backward show FP32 tensors beside half copies of the same values.",
    fix="Use fused kernels or activation checkpointing.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/66707",
        "https://docs.pytorch.org/tutorials/intermediate/autograd_saved_tensors_hooks_tutorial.html",
    ),
    related=("MP110", "MP125"),
)
