"""MP170: a resumed run steps before its first backward pass."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP170",
    name="step-before-backward",
    title="A resumed run steps before its first backward pass.",
    symptom='PyTorch raises "Attempted unscale_ but _scale is None", and the gradients of the open window are lost.',
    evidence=(
        "The first call on the scaler is unscale_() or step() with all gradients None, and the step counter was "
        "restored inside an accumulation window."
    ),
    fix="Step at the end of the window, and save only between windows.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://github.com/facebookresearch/fairseq2/issues/1346",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
    ),
    related=("MP017", "MP143"),
)
