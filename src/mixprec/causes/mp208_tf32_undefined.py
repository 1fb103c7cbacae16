"""MP208: the script does not say whether FP32 matrix products may use TF32."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP208",
    name="tf32-undefined",
    title="The script does not say whether FP32 matrix products may use TF32.",
    symptom="Comparisons with an FP32 baseline depend on the version and the machine.",
    evidence="Neither torch.set_float32_matmul_precision nor allow_tf32 appears in a script that compares precisions.",
    fix="Call torch.set_float32_matmul_precision with the precision that is meant.",
    where=(Where.LINT,),
    raises="silent",
    sources=("https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",),
    related=("MP072", "MP103"),
)
