"""MP211: gradients are clipped and stepped without a scaler and without a test that their norm is finite."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP211",
    name="nonfinite-norm-unchecked",
    title="Gradients are clipped and stepped without a scaler and without a test that their norm is finite.",
    symptom="A single bad batch turns the norm, then every gradient and every weight into NaN.",
    evidence=(
        "clip_grad_norm_ with its default error_if_nonfinite=False is followed by optimizer.step(), and nothing "
        "tests the norm."
    ),
    fix="Skip the step when the norm is not finite, or pass error_if_nonfinite=True.",
    where=(Where.LINT,),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",),
    related=("MP009", "MP140"),
)
