"""MP020: the learning-rate scheduler advances even when the scaler skipped the step."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP020",
    name="scheduler-ignores-skips",
    title="The learning-rate scheduler advances even when the scaler skipped the step.",
    symptom=(
        "The schedule runs ahead and part of the warm-up is used up by steps that never happened; PyTorch warns "
        "once, at the start."
    ),
    evidence="There are more scheduler steps than applied optimizer steps.",
    fix=(
        "Step the scheduler only when the step was applied: compare scaler.get_scale() before and after update(), "
        "or use report.applied of mixprec."
    ),
    where=(Where.LINT, Where.RUN),
    raises="warns",
    sources=(
        "https://github.com/pytorch/pytorch/issues/44511",
        "https://github.com/pytorch/pytorch/issues/55585",
        "https://github.com/pytorch/pytorch/issues/67590",
        "https://github.com/huggingface/transformers/issues/11144",
    ),
    related=("MP021", "MP213"),
)
