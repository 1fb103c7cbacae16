"""MP146: zero_grad() is missing, so gradients of earlier iterations pile up."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP146",
    name="gradients-not-cleared",
    title="zero_grad() is missing, so gradients of earlier iterations pile up.",
    symptom=(
        "With a scaler the old part fades, as each unscale_() divides it again; without one, or at a scale near 1, "
        "training gets worse."
    ),
    evidence="Gradients are neither None nor zero at the first backward after a step.",
    fix="Call optimizer.zero_grad() once per step, in every branch.",
    where=(Where.LINT, Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/tutorials/recipes/recipes/zeroing_out_gradients.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP008", "MP203"),
)
