"""The ops that PyTorch lists nowhere but a rule may be given for, and what Python calls the ops, as data.

Ops that only view, compare, index by truth or create are left out: no dtype is at stake in them.
"""

from __future__ import annotations

from types import MappingProxyType

__all__ = ["ALIASES", "NOT_OPS", "PREFIXES", "TAKES_DTYPE", "UNLISTED"]

_POINTWISE = """
    abs acosh add asinh atan atanh clamp copysign cos digamma div erf erfc exp2 float_power floor_divide fmax fmin fmod
    hypot igamma igammac ldexp lerp lgamma logaddexp logaddexp2 logit masked_fill maximum minimum mul mvlgamma
    nan_to_num neg polygamma remainder rsub sigmoid sin sinc sqrt square sub tanh where xlogy
"""
_SPECIAL = """
    i0 special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_entr special_erfcx special_i0e
    special_i1 special_i1e special_log_ndtr special_ndtr special_ndtri special_xlog1py special_zeta
"""
_ACTIVATIONS = """
    alpha_dropout celu dropout elu feature_alpha_dropout feature_dropout gelu glu hardshrink hardsigmoid hardswish
    hardtanh leaky_relu log_sigmoid mish relu relu6 rrelu selu silu softshrink softsign tanhshrink threshold
"""
_REDUCTIONS = """
    amax amin corrcoef cov cummax cummin cumulative_trapezoid diff histc linalg_norm logcumsumexp max mean median min
    nanmean nanmedian nansum pairwise_distance std std_mean trapezoid var var_mean
"""
_LAYERS = """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool1d adaptive_max_pool2d avg_pool1d avg_pool2d gru
    gumbel_softmax instance_norm interpolate local_response_norm lp_pool1d lp_pool2d lp_pool3d lstm max_pool1d
    max_pool2d max_unpool1d multi_head_attention_forward native_batch_norm native_group_norm normalize rnn_relu
    rnn_tanh softmin
"""
_LOSSES = "gaussian_nll_loss linear_cross_entropy multilabel_soft_margin_loss triplet_margin_with_distance_loss"
_MOVES = """
    affine_grid_generator block_diag col2im column_stack constant_pad_nd dstack embedding embedding_bag gather hstack
    im2col index_add index_fill index_reduce index_select masked_scatter pad pixel_shuffle pixel_unshuffle
    reflection_pad3d repeat_interleave scatter scatter_reduce take_along_dim vstack
"""
_MATRICES = """
    fft_hfft2 fft_hfftn fft_ihfft2 fft_ihfftn inner istft kron linalg_cross linalg_det linalg_ldl_factor
    linalg_ldl_solve linalg_lu linalg_lu_factor linalg_lu_solve linalg_matrix_exp linalg_matrix_power linalg_pinv
    linalg_slogdet linalg_solve_ex linalg_solve_triangular linalg_vander logdet outer
"""

UNLISTED = frozenset(
    " ".join((_POINTWISE, _SPECIAL, _ACTIVATIONS, _REDUCTIONS, _LAYERS, _LOSSES, _MOVES, _MATRICES)).split()
)
"""Ops on none of PyTorch's lists that a rule may be given for; some (`normalize`) are Python functions."""

_WITH_DTYPE = """
    cumprod cumsum linalg_matrix_norm linalg_norm linalg_vector_norm log_softmax mean nanmean nansum norm prod softmax
    softmin sum
"""

TAKES_DTYPE = frozenset(_WITH_DTYPE.split())
"""Ops with an optional `dtype=` for their result. `norm` has it in some overloads; PyTorch's list redirects to them."""

PREFIXES = (
    ("torch.ops.aten.", ""),
    ("aten::", ""),
    ("aten.", ""),
    ("torch._C._nn.", ""),
    ("torch._C._VariableFunctions.", ""),
    ("torch._VF.", ""),
    ("torch.nn.functional.", ""),
    ("torch.functional.", ""),
    ("nn.functional.", ""),
    ("F.", ""),
    ("torch.Tensor.", ""),
    ("Tensor.", ""),
    ("torch.linalg.", "linalg_"),
    ("linalg.", "linalg_"),
    ("torch.fft.", "fft_"),
    ("fft.", "fft_"),
    ("torch.special.", "special_"),
    ("special.", "special_"),
    ("torch.", ""),
)
"""What stands before an op's name in Python, and what it becomes. The first that fits is taken."""

ALIASES = MappingProxyType(
    {
        # Functions whose C++ op has another name.
        "adaptive_max_pool1d_with_indices": "adaptive_max_pool1d",
        "adaptive_max_pool2d_with_indices": "adaptive_max_pool2d",
        "adaptive_max_pool3d_with_indices": "adaptive_max_pool3d",
        "affine_grid": "affine_grid_generator",
        "cross_entropy": "cross_entropy_loss",
        "dropout1d": "feature_dropout",
        "dropout2d": "feature_dropout",
        "dropout3d": "feature_dropout",
        "fold": "col2im",
        "fractional_max_pool2d_with_indices": "fractional_max_pool2d",
        "fractional_max_pool3d_with_indices": "fractional_max_pool3d",
        "grid_sample": "grid_sampler",
        "logsigmoid": "log_sigmoid",
        "nll_loss_nd": "nll_loss",
        "unfold": "im2col",
        "upsample": "interpolate",
        # The same op under a second name.
        "absolute": "abs",
        "arccos": "acos",
        "arccosh": "acosh",
        "arcsin": "asin",
        "arcsinh": "asinh",
        "arctan": "atan",
        "arctan2": "atan2",
        "arctanh": "atanh",
        "clamp_max": "clamp",
        "clamp_min": "clamp",
        "clip": "clamp",
        "concat": "cat",
        "concatenate": "cat",
        "det": "linalg_det",
        "divide": "div",
        "ger": "outer",
        "linalg_matmul": "matmul",
        "matrix_exp": "linalg_matrix_exp",
        "matrix_power": "linalg_matrix_power",
        "multiply": "mul",
        "negative": "neg",
        "row_stack": "vstack",
        "slogdet": "linalg_slogdet",
        "special_digamma": "digamma",
        "special_erf": "erf",
        "special_erfc": "erfc",
        "special_erfinv": "erfinv",
        "special_exp2": "exp2",
        "special_expit": "sigmoid",
        "special_expm1": "expm1",
        "special_gammainc": "igamma",
        "special_gammaincc": "igammac",
        "special_gammaln": "lgamma",
        "special_i0": "i0",
        "special_log1p": "log1p",
        "special_log_softmax": "log_softmax",
        "special_logit": "logit",
        "special_logsumexp": "logsumexp",
        "special_multigammaln": "mvlgamma",
        "special_polygamma": "polygamma",
        "special_psi": "digamma",
        "special_sinc": "sinc",
        "special_softmax": "softmax",
        "special_xlogy": "xlogy",
        "subtract": "sub",
        "trapz": "trapezoid",
        "true_divide": "div",
        # Operators.
        "__abs__": "abs",
        "__add__": "add",
        "__div__": "div",
        "__floordiv__": "floor_divide",
        "__matmul__": "matmul",
        "__mod__": "remainder",
        "__mul__": "mul",
        "__neg__": "neg",
        "__pow__": "pow",
        "__radd__": "add",
        "__rdiv__": "reciprocal",
        "__rmatmul__": "matmul",
        "__rmul__": "mul",
        "__rpow__": "pow",
        "__rsub__": "rsub",
        "__rtruediv__": "reciprocal",
        "__sub__": "sub",
        "__truediv__": "div",
    }
)
"""Another spelling (without its prefix) -> the op. `1 / x` is `x.reciprocal() * 1` in PyTorch."""

NOT_OPS = frozenset({"Tensor.unfold", "torch.Tensor.unfold"})
"""Spellings that look like another's but are views: `Tensor.unfold` is not `F.unfold`."""
