"""`uniform` with less memory: fewer float32 copies of activations live until backward, and consumers share casts.

A row is here only where the kernel accumulates in float32 whatever its storage, so that what is lost is one rounding
of the result. Sums, losses, exponentials and logarithms stay as in `uniform`.
"""

from __future__ import annotations

from mixprec._policy.named import uniform
from mixprec._policy.rule import CastRule
from mixprec._policy.tables.group import Group

__all__ = ["GROUPS"]

_KERNELS = "https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/cuda"

GROUPS = (
    *uniform.GROUPS,
    Group(
        CastRule.LOW,
        "layer_norm native_layer_norm group_norm rms_norm",
        "16-bit input, weight and result; mean and variance are accumulated in float32 by the kernel. What backward"
        " keeps is 16-bit, and shared with other consumers of the same activation",
        f"{_KERNELS}/layer_norm_kernel.cu",
    ),
    Group(
        CastRule.KEEP,
        "softmax",
        "16-bit scores give 16-bit probabilities, float32 scores float32 ones; the kernel accumulates in float32."
        " log_softmax stays a float32 result, as its values feed the loss",
        f"{_KERNELS}/SoftMax.cu",
    ),
    Group(
        CastRule.KEEP,
        "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d"
        " _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d",
        "copies or averages of a few neighbours, accumulated in float32 and rounded once. The anti-aliased forms stay"
        " in float32: CPU has no 16-bit kernel for them",
        f"{_KERNELS}/UpSampleBilinear2d.cu",
    ),
)
