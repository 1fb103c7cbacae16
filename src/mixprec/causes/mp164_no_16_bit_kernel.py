"""MP164: an op that autocast casts down has no 16-bit kernel on this device."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP164",
    name="no-16-bit-kernel",
    title="An op that autocast casts down has no 16-bit kernel on this device.",
    symptom='PyTorch raises "could not create a primitive descriptor", for example from nn.LSTM under CPU autocast.',
    evidence="The exception arises in a module that runs in FP32, and the CPU has neither AVX512_BF16 nor AMX.",
    fix="Run that module under autocast(enabled=False) with x.float().",
    where=(Where.RUN,),
    raises="raises",
    sources=(
        "https://github.com/pytorch/pytorch/issues/88136",
        "https://github.com/intel/torch-xpu-ops/issues/4066",
    ),
    related=("MP053", "MP100"),
)
