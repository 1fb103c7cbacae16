"""The lists that PyTorch's CUDA and XPU autocast share: `AT_FORALL_*` of its autocast header."""

from __future__ import annotations

from mixprec._policy.rule import CastRule
from mixprec._policy.tables.group import SOURCES, Group

__all__ = ["GROUPS", "LOSS_ADVICE", "MATRIX", "UPSAMPLE"]

_H = SOURCES["header"]

MATRIX = (
    "_convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d"
    " conv_transpose3d convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm"
    " chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell"
    " rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention"
)
"""Names without an overload stand for all registered overloads of the op."""

UPSAMPLE = (
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d"
    " _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d"
    " upsample_bicubic2d _upsample_bicubic2d_aa"
)

LOSS_ADVICE = (
    "torch.nn.functional.binary_cross_entropy_with_logits, or torch.nn.BCEWithLogitsLoss, on the values before the"
    " sigmoid"
)

GROUPS = (
    Group(
        CastRule.LOW,
        MATRIX,
        "matrix products and convolutions run on the matrix units in 16 bits and accumulate in float32",
        _H,
    ),
    Group(
        CastRule.FP32,
        "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus",
        "small changes of the input become large ones of the result, and the result may leave float16's range",
        _H,
    ),
    Group(
        CastRule.FP32,
        "layer_norm native_layer_norm group_norm",
        "means and variances over many elements need float32, and PyTorch keeps the result in float32 too",
        _H,
    ),
    Group(
        CastRule.FP32,
        "rms_norm",
        "as layer_norm, since PyTorch 2.12; before it ran in its input's dtype",
        _H,
        since="2.12",
    ),
    Group(
        CastRule.FP32,
        "frobenius_norm nuclear_norm cosine_similarity dist pdist cdist renorm logsumexp",
        "sums of squares or exponentials overflow float16 and lose digits in 16 bits",
        _H,
    ),
    Group(
        CastRule.FP32,
        "poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss"
        " huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss"
        " multi_margin_loss binary_cross_entropy_with_logits",
        "a loss sums differences and logarithms, and its value starts the backward pass",
        _H,
    ),
    Group(
        CastRule.FP32,
        UPSAMPLE,
        "the backward pass of interpolation adds many gradients into one element",
        _H,
    ),
    Group(
        CastRule.FP32_OUT,
        "prod softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum",
        "the kernel accumulates in float32 and is asked to keep that result (dtype=float32) instead of rounding it",
        _H,
    ),
    Group(
        CastRule.FP32_OUT,
        "norm",
        "as linalg_vector_norm; PyTorch appends dtype=float32 to the overloads that have none",
        _H,
    ),
    Group(
        CastRule.WIDEST,
        "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add",
        "the op wants one dtype for all its tensors; the widest loses nothing",
        _H,
    ),
    Group(
        CastRule.BANNED,
        "binary_cross_entropy",
        "a sigmoid in 16 bits reaches exactly 0 and 1, where the logarithm and its gradient are infinite.",
        SOURCES["cpp"],
        replacement=LOSS_ADVICE,
    ),
    Group(CastRule.FP32, "square", "not listed, but computed as pow(x, 2), which is", _H, parts="pow"),
    Group(
        CastRule.FP32,
        "cross_entropy_loss",
        "not listed, but made of log_softmax, whose result is float32, and nll_loss",
        _H,
        parts="log_softmax nll_loss",
    ),
    Group(
        CastRule.FP32_OUT,
        "linalg_norm",
        "not listed, but made of linalg_vector_norm or linalg_matrix_norm, which are",
        _H,
        parts="linalg_vector_norm linalg_matrix_norm",
    ),
)
