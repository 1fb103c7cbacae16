"""MP009: gradients become NaN or infinite after unscale_() has checked them."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP009",
    name="nonfinite-after-unscale",
    title="Gradients become NaN or infinite after unscale_() has checked them.",
    symptom="The weights turn NaN although the scaler reports no overflow.",
    evidence=(
        "found_inf is 0, yet gradients are not finite when the optimizer steps; usual reasons are clipping by an "
        "infinite norm, gradient hooks and added noise."
    ),
    fix=(
        "Make the edit before unscale_(), or test the norm and skip the step, for example with error_if_nonfinite=True."
    ),
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://github.com/pytorch/pytorch/blob/main/test/test_cuda.py",
    ),
    related=("MP002", "MP013", "MP211"),
)
