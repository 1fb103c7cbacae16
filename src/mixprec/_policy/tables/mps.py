"""PyTorch's autocast list for Apple GPUs is written out on its own and follows the shared one with gaps.

Where CUDA asks for a float32 result (`FP32_OUT`), MPS casts the input instead (`FP32`).
"""

from __future__ import annotations

from mixprec._policy.rule import CastRule
from mixprec._policy.tables.group import SOURCES, Group

__all__ = ["GROUPS"]

_C = SOURCES["cpp"]

GROUPS = (
    Group(
        CastRule.LOW,
        "_convolution _convolution.deprecated conv1d conv2d conv_tbc conv_transpose1d conv_transpose2d convolution"
        " _mps_convolution prelu addmm addmv addr matmul einsum mm mv linear addbmm baddbmm bmm chain_matmul"
        " linalg_multi_dot lstm_cell scaled_dot_product_attention",
        "matrix products and convolutions run in 16 bits",
        _C,
    ),
    Group(
        CastRule.LOW,
        "conv3d",
        "as the other convolutions, since PyTorch 2.9",
        "https://github.com/pytorch/pytorch/pull/160423",
        since="2.9",
    ),
    Group(
        CastRule.FP32,
        "conv_transpose3d",
        "MPS has no 16-bit kernel for it (since PyTorch 2.9; before, it raised under autocast)",
        "https://github.com/pytorch/pytorch/pull/160345",
        since="2.9",
        only=True,
    ),
    Group(
        CastRule.FP32,
        "batch_norm",
        "MPS's kernel wants one dtype for the input and the statistics, which are float32",
        "https://github.com/pytorch/pytorch/issues/154887",
        only=True,
    ),
    Group(
        CastRule.FP32,
        "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus",
        "small changes of the input become large ones of the result, and the result may leave float16's range",
        _C,
    ),
    Group(
        CastRule.FP32,
        "layer_norm native_layer_norm group_norm",
        "means and variances over many elements need float32, and PyTorch keeps the result in float32 too",
        _C,
    ),
    Group(
        CastRule.FP32,
        "frobenius_norm nuclear_norm cosine_similarity dist pdist cdist renorm logsumexp",
        "sums of squares or exponentials overflow float16 and lose digits in 16 bits",
        _C,
    ),
    Group(
        CastRule.FP32,
        "poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss"
        " huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss"
        " multi_margin_loss binary_cross_entropy_with_logits",
        "a loss sums differences and logarithms, and its value starts the backward pass",
        _C,
    ),
    Group(
        CastRule.FP32,
        "prod softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum",
        "long sums and exponentials; MPS casts the input where CUDA asks for a float32 result",
        _C,
    ),
    Group(
        CastRule.WIDEST,
        "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put tensordot scatter_add",
        "the op wants one dtype for all its tensors; the widest loses nothing",
        _C,
    ),
    Group(
        CastRule.FP32,
        "square cross_entropy_loss linalg_norm",
        "not listed, but made of pow, of log_softmax and nll_loss, and of linalg_vector_norm or linalg_matrix_norm",
        _C,
        parts="pow log_softmax nll_loss linalg_vector_norm linalg_matrix_norm",
    ),
)
