"""MP072: the FP32 run that serves for comparison uses TF32."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP072",
    name="tf32-in-baseline",
    title="The FP32 run that serves for comparison uses TF32.",
    symptom="Results differ by about 1e-3 from a true FP32 run.",
    evidence="TF32 is allowed for matrix products or convolutions in the control run.",
    fix='Call torch.set_float32_matmul_precision("highest") in the control run.',
    where=(Where.RUN, Where.CONTROL),
    raises="silent",
    sources=(
        "https://docs.pytorch.org/docs/stable/notes/cuda.html",
        "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html",
    ),
    related=("MP103", "MP208"),
)
