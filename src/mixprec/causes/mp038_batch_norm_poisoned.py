"""MP038: a bad batch was skipped by the scaler, but it has already gone into the running statistics."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP038",
    name="batch-norm-poisoned",
    title="A bad batch was skipped by the scaler, but it has already gone into the running statistics.",
    symptom="Training goes on as if nothing had happened; evaluation gives NaN.",
    evidence="Buffers such as running_mean are not finite while every parameter is.",
    fix="Restore the buffers from a checkpoint, and test the loss before the statistics are updated.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html",
    ),
    related=("MP131", "MP135"),
)
