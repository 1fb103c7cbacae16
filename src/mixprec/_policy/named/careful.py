"""`uniform` with more in float32: wherever an error grows with the number of terms or with the size of the values.

Matrix products and convolutions stay in 16 bits (that is what mixed precision buys; they accumulate in float32), and
so do activations whose kernels round once. An output layer whose logits matter is a module rule:
`Policy.careful().with_module("lm_head", "fp32")`.
"""

from __future__ import annotations

from mixprec._policy.named import uniform
from mixprec._policy.rule import CastRule
from mixprec._policy.tables.group import Group

__all__ = ["GROUPS"]

_NUMERICS = "https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html"

GROUPS = (
    *uniform.GROUPS,
    Group(
        CastRule.FP32,
        "batch_norm instance_norm native_batch_norm native_group_norm local_response_norm normalize",
        "every normalisation, input and result: 16-bit activations lose the digits that a difference from the mean"
        " needs",
        _NUMERICS,
    ),
    Group(
        CastRule.FP32_OUT,
        "mean nansum nanmean softmin",
        "sums and their kin keep the float32 in which they are accumulated",
        _NUMERICS,
    ),
    Group(
        CastRule.FP32,
        "var std var_mean std_mean cov corrcoef pairwise_distance dot vdot linalg_vecdot",
        "long sums of products and of squared differences",
        _NUMERICS,
    ),
    Group(
        CastRule.FP32,
        "logcumsumexp logaddexp logaddexp2 exp2 xlogy log_sigmoid logit gumbel_softmax sqrt lgamma digamma polygamma"
        " float_power",
        "exponentials, logarithms and roots: their values or their gradients leave float16's range",
        _NUMERICS,
    ),
    Group(
        CastRule.FP32,
        "scatter_add index_add index_put scatter_reduce index_reduce embedding_bag bilinear tensordot addcdiv addcmul",
        "many terms may meet in one element, or a small one a large one",
        _NUMERICS,
    ),
    Group(
        CastRule.FP32,
        "gaussian_nll_loss multilabel_soft_margin_loss triplet_margin_with_distance_loss",
        "losses that PyTorch builds from other ops in Python",
        _NUMERICS,
    ),
    Group(
        CastRule.FP32,
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d",
        "a mean over a whole map is usually what the classifier reads",
        _NUMERICS,
    ),
)
