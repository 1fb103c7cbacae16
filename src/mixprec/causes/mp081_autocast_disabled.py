"""MP081: PyTorch switches autocast off because the device or dtype is not supported."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP081",
    name="autocast-disabled",
    title="PyTorch switches autocast off because the device or dtype is not supported.",
    symptom="Everything runs in FP32 after a single warning.",
    evidence="The warning was issued, and no matrix product runs in half precision.",
    fix="Name the device that is really used, and a dtype that it supports.",
    where=(Where.LINT, Where.RUN),
    raises="warns",
    sources=(
        "https://docs.pytorch.org/docs/stable/amp.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/autocast_mode.py",
    ),
    related=("MP080", "MP100"),
)
