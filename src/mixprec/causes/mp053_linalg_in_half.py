"""MP053: a linear-algebra or Fourier op runs on half precision."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP053",
    name="linalg-in-half",
    title="A linear-algebra or Fourier op runs on half precision.",
    symptom="PyTorch raises \"not implemented for 'Half'\", or the result is useless.",
    evidence="The op belongs to torch.linalg or torch.fft and its input is float16 or bfloat16.",
    fix="Compute it in FP32 under autocast(enabled=False) with x.float().",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://docs.pytorch.org/docs/stable/linalg.html",
        "https://docs.pytorch.org/docs/stable/fft.html",
    ),
    related=("MP164", "MP168"),
)
