"""MP021: a fused optimizer skips inside its kernel, so whoever counts its calls believes that it stepped."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP021",
    name="fused-optimizer-hides-skips",
    title="A fused optimizer skips inside its kernel, so whoever counts its calls believes that it stepped.",
    symptom="Step counters, averages of weights and schedulers count steps that were never applied.",
    evidence=(
        "The optimizer takes found_inf itself (_step_supports_amp_scaling), found_inf was 1, and the optimizer's "
        "step hooks ran nevertheless."
    ),
    fix="Judge by found_inf or by a drop of the scale, not by whether optimizer.step() ran.",
    where=(Where.RUN,),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://github.com/pytorch/pytorch/issues/67590",
    ),
    related=("MP020", "MP174"),
)
