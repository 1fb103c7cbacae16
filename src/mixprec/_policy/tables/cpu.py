"""PyTorch's autocast list for CPU is a policy of its own: it asks which kernels exist, not which lose digits.

So softmax, layer norm, exp, pow and sum run in 16 bits here and in float32 on CUDA.
"""

from __future__ import annotations

from mixprec._policy.rule import CastRule
from mixprec._policy.tables.group import SOURCES, Group

__all__ = ["FFT", "GROUPS", "LINALG"]

_C = SOURCES["cpp"]

FFT = (
    "fft_fft fft_ifft fft_fft2 fft_ifft2 fft_fftn fft_ifftn fft_rfft fft_irfft fft_rfft2 fft_irfft2 fft_rfftn"
    " fft_irfftn fft_hfft fft_ihfft"
)

LINALG = (
    "cholesky_inverse cholesky_solve inverse lu_solve orgqr ormqr pinverse geqrf _lu_with_info svd triangular_solve"
    " linalg_cond linalg_matrix_rank linalg_solve linalg_cholesky linalg_cholesky_ex linalg_svdvals linalg_eigvals"
    " linalg_eigvalsh linalg_inv linalg_inv_ex linalg_householder_product linalg_tensorinv linalg_tensorsolve"
    " linalg_qr linalg_svd linalg_eig linalg_eigh linalg_lstsq"
)

GROUPS = (
    Group(
        CastRule.LOW,
        "conv1d conv2d conv3d bmm mm linalg_vecdot baddbmm addmm _addmm_activation addbmm linear"
        " _convolution.deprecated matmul conv_tbc mkldnn_rnn_layer conv_transpose1d conv_transpose2d conv_transpose3d"
        " prelu scaled_dot_product_attention _native_multi_head_attention",
        "matrix products and convolutions have 16-bit kernels that accumulate in float32",
        _C,
    ),
    Group(
        CastRule.FP32,
        "mse_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss poisson_nll_loss smooth_l1_loss"
        " cross_entropy_loss l1_loss huber_loss margin_ranking_loss soft_margin_loss triplet_margin_loss"
        " multi_margin_loss ctc_loss kl_div multilabel_margin_loss multilabel_margin_loss_forward"
        " binary_cross_entropy_with_logits",
        "a loss sums differences and logarithms, and its value starts the backward pass",
        _C,
    ),
    Group(
        CastRule.FP32,
        "binary_cross_entropy",
        "a loss; CUDA bans it, CPU runs it in float32 on whatever the 16-bit sigmoid before it left",
        _C,
    ),
    Group(
        CastRule.FP32,
        "avg_pool3d max_pool3d adaptive_avg_pool3d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d"
        " max_unpool2d max_unpool3d reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d"
        " replication_pad3d",
        "pooling and padding whose 16-bit CPU kernels were missing when the list was written",
        _C,
    ),
    Group(
        CastRule.FP32,
        "grid_sampler grid_sampler_2d _grid_sampler_2d_cpu_fallback grid_sampler_3d",
        "sampling coordinates need more digits than 16 bits hold",
        _C,
    ),
    Group(
        CastRule.FP32,
        "prod trace cdist quantile nanquantile",
        "reductions and distances in float32",
        _C,
    ),
    Group(
        CastRule.FP32,
        f"polar view_as_complex stft {FFT}",
        "complex numbers and transforms have no bfloat16 form",
        _C,
    ),
    Group(CastRule.FP32, LINALG, "LAPACK has no 16-bit kernels", _C),
    Group(CastRule.FP32, "cholesky qr", "LAPACK has no 16-bit kernels; gone in PyTorch 2.14", _C, until="2.14"),
    Group(CastRule.FP32, "linalg_matrix_sqrth", "LAPACK has no 16-bit kernels; new in 2.14", _C, since="2.14"),
    Group(
        CastRule.FP32,
        "fake_quantize_per_tensor_affine",
        "the quantisation grid must not depend on the region's dtype",
        _C,
    ),
    Group(
        CastRule.WIDEST,
        "stack cat index_copy",
        "the op wants one dtype for all its tensors; the widest loses nothing",
        _C,
    ),
    Group(
        CastRule.LOW,
        "einsum tensordot linalg_multi_dot chain_matmul",
        "not listed, but made of bmm and mm, which are (einsum: with two operands or more)",
        _C,
        parts="bmm mm",
    ),
    Group(CastRule.FP32, "max_unpool1d", "not listed, but made of max_unpool2d, which is", _C, parts="max_unpool2d"),
)
