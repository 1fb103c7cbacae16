"""MP007: unscale_() runs in every micro-batch of an accumulation window."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP007",
    name="unscale-every-micro-batch",
    title="unscale_() runs in every micro-batch of an accumulation window.",
    symptom="PyTorch raises on the second call; where that is guarded away, scaled and unscaled gradients are summed.",
    evidence="A backward pass follows unscale_() before the gradients were stepped and cleared.",
    fix="Call unscale_() once per window, just before clipping and the step.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        "https://github.com/pytorch/pytorch/blob/main/torch/amp/grad_scaler.py",
        "https://github.com/huggingface/transformers/issues/23935",
    ),
    related=("MP008", "MP142"),
)
