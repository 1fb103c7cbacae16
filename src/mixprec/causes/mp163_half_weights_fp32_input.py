"""MP163: half parameters meet FP32 activations while autocast is off."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP163",
    name="half-weights-fp32-input",
    title="Half parameters meet FP32 activations while autocast is off.",
    symptom="PyTorch raises that input and bias, or the two matrices, should have the same dtype.",
    evidence="In the first op with mixed dtypes the parameter is half, the input is FP32 and autocast is not active.",
    fix="Cast the input to the parameter's dtype, or keep FP32 parameters and use autocast.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://github.com/DepthAnything/Depth-Anything-V2/issues/264",
        "https://github.com/dpfried/incoder/issues/5",
    ),
    related=("MP084", "MP162"),
)
