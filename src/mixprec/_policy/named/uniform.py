"""One list for CPU, CUDA, MPS and XPU: what runs in which dtype on a GPU runs so on a CPU, and the other way round.

It follows PyTorch's CUDA list, because that is where training happens and what differs there has to be intercepted
there; a CPU run pays for the rehearsal. From PyTorch's CPU list it takes what has no 16-bit kernel on some device,
and it adds the ops that refuse mixed dtypes. Where an op's 16-bit kernels exist on every device and only move or
select values, it has no row and follows its inputs.
"""

from __future__ import annotations

from mixprec._policy.rule import CastRule
from mixprec._policy.tables import cpu, shared
from mixprec._policy.tables.group import SOURCES, Group

__all__ = ["GROUPS"]

_H = SOURCES["header"]
_C = SOURCES["cpp"]

GROUPS = (
    *shared.GROUPS,
    Group(
        CastRule.LOW,
        "cudnn_convolution cudnn_convolution_transpose _cudnn_rnn _mps_convolution mkldnn_rnn_layer _addmm_activation"
        " _native_multi_head_attention",
        "what one device calls its matrix products, convolutions and recurrent layers",
        _C,
    ),
    Group(
        CastRule.FP32,
        "rms_norm",
        "as layer_norm; PyTorch's CUDA list has it since 2.12 only, this list on every release",
        _H,
    ),
    Group(
        CastRule.FP32,
        "ctc_loss multilabel_margin_loss_forward",
        "a loss that CPU has no 16-bit kernel for",
        _C,
    ),
    Group(
        CastRule.FP32,
        f"{cpu.LINALG} cholesky qr linalg_matrix_sqrth linalg_det linalg_slogdet logdet linalg_lu linalg_lu_factor"
        " linalg_lu_solve linalg_ldl_factor linalg_ldl_solve linalg_solve_ex linalg_solve_triangular",
        "no device's solver has 16-bit kernels, and inverses amplify rounding; PyTorch lists some of them, on CPU",
        _C,
    ),
    Group(
        CastRule.FP32,
        f"polar view_as_complex stft {cpu.FFT} fft_hfft2 fft_ihfft2 fft_hfftn fft_ihfftn",
        "complex numbers have no bfloat16 form, and half-precision transforms exist for powers of two only",
        "https://docs.pytorch.org/docs/stable/generated/torch.fft.fft.html",
    ),
    Group(
        CastRule.FP32,
        "linalg_matrix_exp",
        "a long series of matrix products, each of which would round",
        "https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_exp.html",
    ),
    Group(
        CastRule.FP32,
        "quantile nanquantile",
        "the op itself refuses 16-bit inputs on every device",
        "https://docs.pytorch.org/docs/stable/generated/torch.quantile.html",
    ),
    Group(
        CastRule.FP32, "linalg_pinv", "CUDA's list lowers the products inside it, and then raises (PyTorch 2.13)", _C
    ),
    Group(CastRule.FP32, "avg_pool3d", "CPU has no 16-bit kernel for it (PyTorch 2.13)", _C),
    Group(CastRule.FP32, "trace", "a sum that takes no dtype; one number, so float32 costs nothing", _C),
    Group(
        CastRule.FP32,
        "grid_sampler grid_sampler_2d _grid_sampler_2d_cpu_fallback grid_sampler_3d",
        "sampling coordinates are positions: bfloat16 tells 256 of them apart between 0.5 and 1. CUDA's list takes the"
        " widest input, CPU's float32",
        _C,
    ),
    Group(
        CastRule.FP32,
        "fake_quantize_per_tensor_affine",
        "the quantisation grid must not depend on the region's dtype",
        _C,
    ),
    Group(
        CastRule.WIDEST,
        "index_copy index_add scatter scatter_reduce masked_scatter",
        "the op refuses a source of another dtype than its target; the widest loses nothing. CPU lists index_copy,"
        " CUDA only the kindred index_put and scatter_add",
        _C,
    ),
    Group(
        CastRule.KEEP,
        "batch_norm",
        "the kernels of CPU, CUDA and XPU take 16-bit activations with float32 statistics and accumulate in float32;"
        " MPS's cannot, and keeps its own float32",
        "https://github.com/pytorch/pytorch/issues/154887",
    ),
    Group(
        CastRule.KEEP,
        "cat stack max_pool3d adaptive_avg_pool3d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d"
        " max_unpool1d max_unpool2d max_unpool3d reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d"
        " replication_pad3d",
        "moves, selects or averages values in kernels that have 16 bits on every device; cat and stack promote by"
        " themselves",
        _C,
    ),
)
