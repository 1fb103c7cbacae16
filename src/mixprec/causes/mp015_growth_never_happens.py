"""MP015: the loss scale never grows again."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP015",
    name="growth-never-happens",
    title="The loss scale never grows again.",
    symptom="The scale stays low for the whole run and more gradients than necessary are flushed to zero.",
    evidence=(
        "The growth counter is above the growth interval, because the interval was lowered during the run, or "
        "overflows arrive about as often as the interval is long."
    ),
    fix="Set the growth interval before the first step and choose it shorter than the distance between overflows.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/cuda/AmpKernels.cu",
    ),
    related=("MP014", "MP060", "MP200"),
)
