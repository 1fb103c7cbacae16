"""MP082: a custom autograd.Function runs under autocast without custom_fwd and custom_bwd."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP082",
    name="custom-function-without-custom-fwd",
    title="A custom autograd.Function runs under autocast without custom_fwd and custom_bwd.",
    symptom=(
        "PyTorch raises a dtype mismatch in backward, or the backward silently runs in another dtype than the forward."
    ),
    evidence="A subclass of torch.autograd.Function is applied under autocast and its forward is not decorated.",
    fix=(
        "Decorate forward with torch.amp.custom_fwd(device_type=...) and backward with "
        "torch.amp.custom_bwd(device_type=...)."
    ),
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://github.com/pytorch/pytorch/issues/38487",
        "https://github.com/pytorch/pytorch/issues/132388",
        "https://github.com/pytorch/pytorch/issues/137033",
        "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
    ),
    related=("MP206", "MP091"),
)
