"""MP024: a closure is given to scaler.step(), which loss scaling does not support."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP024",
    name="closure-with-scaler",
    title="A closure is given to scaler.step(), which loss scaling does not support.",
    symptom=(
        "A closure passed by keyword raises; one passed by position is accepted silently and the optimizer "
        "minimises the scaled loss."
    ),
    evidence="scaler.step() receives a callable, or it is given an optimizer such as LBFGS that needs one.",
    fix="Use no scaler for optimizers that call a closure; train them in FP32 or bfloat16.",
    where=(Where.LINT,),
    raises="raises",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    ),
    related=("MP025",),
)
