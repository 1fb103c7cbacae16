"""PyTorch's autocast list for CUDA, kernel by kernel."""

from __future__ import annotations

from mixprec._policy.rule import CastRule
from mixprec._policy.tables import shared
from mixprec._policy.tables.group import SOURCES, Group

__all__ = ["GROUPS"]

GROUPS = (
    *shared.GROUPS,
    Group(
        CastRule.LOW,
        "cudnn_convolution cudnn_convolution_transpose",
        "cuDNN's convolutions, called by name, as convolutions",
        SOURCES["cpp"],
    ),
    Group(
        CastRule.LOW,
        "_cudnn_rnn",
        "cuDNN's recurrent layers; the weights are cast into one flat buffer. Registered in builds with CUDA only",
        SOURCES["cudnn"],
    ),
    Group(
        CastRule.FP32,
        "linalg_matrix_sqrth",
        "a matrix decomposition, since PyTorch 2.14; there is no 16-bit kernel",
        SOURCES["cpp"],
        since="2.14",
        only=True,
    ),
)
