"""MP013: the loss scale has become so small that dividing by it makes healthy gradients infinite."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP013",
    name="collapsed-scale-poisons",
    title="The loss scale has become so small that dividing by it makes healthy gradients infinite.",
    symptom="Weights turn NaN on good data, long after the batch that started it.",
    evidence=(
        "The scale is below 1; at or below 2^-128 its reciprocal is infinite in FP32, so clean gradients become NaN "
        "while found_inf stays 0."
    ),
    fix=(
        "Restore the weights from a checkpoint, start with a fresh scaler and find out why the scale fell; "
        "mixprec.GradScaler keeps a floor."
    ),
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/99640",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP012", "MP009"),
)
