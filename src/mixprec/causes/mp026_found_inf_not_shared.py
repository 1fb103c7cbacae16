"""MP026: ranks decide on their own whether to skip a step."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP026",
    name="found-inf-not-shared",
    title="Ranks decide on their own whether to skip a step.",
    symptom="Ranks drift apart or hang after the first overflow.",
    evidence=(
        "The scale or found_inf differs between ranks; this happens with a plain GradScaler under FSDP1, and with "
        "ShardedGradScaler and a fused optimizer."
    ),
    fix=(
        "Use ShardedGradScaler without a fused optimizer for FSDP1; FSDP2 works with the plain scaler; "
        "mixprec.GradScaler agrees across ranks."
    ),
    where=(Where.LINT, Where.RUN),
    raises="silent",
    sources=(
        "https://github.com/pytorch/pytorch/issues/136009",
        "https://github.com/facebookresearch/fairscale/issues/179",
        "https://github.com/pytorch/pytorch/blob/main/torch/distributed/fsdp/sharded_grad_scaler.py",
    ),
    related=("MP160", "MP161"),
)
