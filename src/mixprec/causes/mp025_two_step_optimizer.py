"""MP025: an optimizer that makes two steps per update, such as SAM, meets a scaler that expects one."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP025",
    name="two-step-optimizer",
    title="An optimizer that makes two steps per update, such as SAM, meets a scaler that expects one.",
    symptom="PyTorch raises at the second unscale_(), or the gradients of the second pass are not checked.",
    evidence="Two unscale_() or step() calls on one optimizer come between two updates of the scaler.",
    fix="Run both passes through their own scale, unscale_ and update cycle, or train in bfloat16.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://github.com/davda54/sam/issues/55",
        "https://github.com/davda54/sam/issues/97",
    ),
    related=("MP007", "MP024"),
)
