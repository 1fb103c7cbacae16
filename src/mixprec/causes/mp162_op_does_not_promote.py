"""MP162: an op that neither casts nor promotes gets an FP32 destination and a half source."""

from __future__ import annotations

from mixprec.causes._cause import Cause, Where

CAUSE = Cause(
    code="MP162",
    name="op-does-not-promote",
    title="An op that neither casts nor promotes gets an FP32 destination and a half source.",
    symptom=(
        "PyTorch raises a dtype mismatch in index_put, scatter_add, index_add, masked_scatter or lerp; CUDA "
        "promotes some of them and CPU does not."
    ),
    evidence="The exception names such an op, its destination is FP32 and its source half; the FP32 run passes.",
    fix="Write src.to(dst.dtype), or allocate the buffer with dtype=src.dtype.",
    where=(Where.LINT, Where.RUN),
    raises="raises",
    sources=(
        "https://github.com/pytorch/pytorch/issues/41036",
        "https://github.com/pytorch/pytorch/issues/51730",
        "https://github.com/pytorch/rl/issues/1703",
        "https://github.com/lucidrains/ema-pytorch/issues/36",
    ),
    related=("MP091", "MP163"),
)
