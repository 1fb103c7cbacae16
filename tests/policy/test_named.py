"""The reasons that the named lists give hold on the running PyTorch."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F

from mixprec._policy import CastRule, Policy
from mixprec._policy.base import Base, table
from mixprec._policy.named import NAMED, careful, lean, uniform
from mixprec._policy.names import KNOWN
from mixprec._policy.spellings import TAKES_DTYPE
from mixprec._policy.tables import DEVICES

LOW, FP32, FP32_OUT, WIDEST, KEEP = CastRule.LOW, CastRule.FP32, CastRule.FP32_OUT, CastRule.WIDEST, CastRule.KEEP
HALVES = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("name", list(NAMED))
def test_each_list_is_made_of_known_ops_with_reasons(name):
    """Every row is about a known op, has a reason and a link, and FP32_OUT stands only where the op takes a dtype."""
    for group in NAMED[name]:
        assert set(group.ops.split()) <= KNOWN
        assert group.reason
        assert group.source.startswith("https://")
        if group.rule is FP32_OUT:
            assert set(group.ops.split()) <= TAKES_DTYPE


def test_no_list_names_an_op_twice_in_its_own_rows():
    """`uniform` overrides nothing but shared rows that it names, and the others override only `uniform`'s."""
    for groups in (uniform.GROUPS[len(_shared()) :], lean.GROUPS[len(uniform.GROUPS) :], _own(careful)):
        names = [op for group in groups for op in group.ops.split()]
        assert sorted(names) == sorted(set(names))


def _shared():
    from mixprec._policy.tables import shared

    return shared.GROUPS


def _own(module):
    return module.GROUPS[len(uniform.GROUPS) :]


def test_uniform_has_a_row_for_every_op_that_any_device_lists():
    """What one device lists, `uniform` decides for all: nothing is left to where it runs."""
    listed = {op for groups in DEVICES.values() for group in groups for op in group.ops.split()}
    assert listed <= set(Policy.uniform().ops)


def test_uniform_differs_from_cuda_only_by_what_it_says():
    """On CUDA's own ops `uniform` is CUDA's list, but for sampling coordinates."""
    cuda, ours = Policy.torch("cuda", version="2.13").ops, Policy.uniform().ops
    assert {op: ours[op] for op in cuda if ours[op] is not cuda[op]} == {"grid_sampler": FP32}


def test_every_row_of_lean_and_careful_changes_something():
    """A row that repeats `uniform` says nothing and is not there."""
    ours = Policy.uniform().ops
    for module in (lean, careful):
        for group in _own(module):
            same = [op for op in group.ops.split() if ours.get(op, KEEP) is group.rule]
            assert same == []


def test_careful_is_never_lower_than_uniform():
    """`careful` only moves ops towards float32."""
    ours, more = Policy.uniform().ops, Policy.careful().ops
    height = {KEEP: 0, LOW: 0, WIDEST: 1, FP32_OUT: 2, FP32: 3, CastRule.BANNED: 4}
    assert all(height[more[op]] >= height[ours.get(op, KEEP)] for op in more)


def test_lean_is_never_higher_than_uniform():
    """`lean` only takes float32 storage away."""
    ours, less = Policy.uniform().ops, Policy.lean().ops
    assert {less[op] for op in less if less[op] is not ours[op]} == {LOW, KEEP}


INDICES = torch.tensor([[[0, 3], [1, 2]]])
KEPT = {
    "batch_norm": lambda x: F.batch_norm(x(4, 3), None, None, torch.ones(3), torch.zeros(3), True),
    "cat": lambda x: torch.cat([x(2), x(2)]),
    "stack": lambda x: torch.stack([x(2), x(2)]),
    "max_pool3d": lambda x: F.max_pool3d(x(1, 1, 4, 4, 4), 2),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x(1, 1, 4, 4, 4), 2),
    "adaptive_max_pool3d": lambda x: F.adaptive_max_pool3d(x(1, 1, 4, 4, 4), 2),
    "fractional_max_pool2d": lambda x: F.fractional_max_pool2d(x(1, 1, 6, 6), 2, output_size=2),
    "fractional_max_pool3d": lambda x: F.fractional_max_pool3d(x(1, 1, 6, 6, 6), 2, output_size=2),
    "max_unpool1d": lambda x: F.max_unpool1d(x(1, 1, 2), torch.tensor([[[0, 3]]]), 2),
    "max_unpool2d": lambda x: F.max_unpool2d(x(1, 2, 2), INDICES, 2),
    "max_unpool3d": lambda x: F.max_unpool3d(x(1, 1, 2, 2), INDICES[None], 2),
    "reflection_pad1d": lambda x: F.pad(x(1, 1, 4), (1, 1), mode="reflect"),
    "reflection_pad2d": lambda x: F.pad(x(1, 1, 4, 4), (1, 1, 1, 1), mode="reflect"),
    "replication_pad1d": lambda x: F.pad(x(1, 1, 4), (1, 1), mode="replicate"),
    "replication_pad2d": lambda x: F.pad(x(1, 1, 4, 4), (1, 1, 1, 1), mode="replicate"),
    "replication_pad3d": lambda x: F.pad(x(1, 1, 4, 4, 4), (1, 1, 1, 1, 1, 1), mode="replicate"),
}


@pytest.mark.parametrize("dtype", HALVES)
def test_what_uniform_keeps_has_16_bit_kernels_forward_and_backward(dtype):
    """Each op that `uniform` leaves to its inputs runs in 16 bits on CPU, whose list puts it in float32."""
    assert {op for op, rule in Policy.uniform().ops.items() if rule is KEEP} == set(KEPT)
    for op, compute in KEPT.items():
        leaves = []

        def make(*shape, leaves=leaves):
            leaves.append(torch.randn(shape, dtype=dtype).requires_grad_())
            return leaves[-1]

        result = compute(make)
        result.float().sum().backward()
        assert result.dtype is dtype, op
        assert all(leaf.grad is not None and leaf.grad.dtype is dtype for leaf in leaves), op


MISSING = {
    "avg_pool3d": lambda x: F.avg_pool3d(x(1, 1, 2, 2, 2), 2),
    "ctc_loss": lambda x: F.ctc_loss(x(2, 1, 3), torch.ones(1, 1, dtype=torch.long), [2], [1]),
    "multilabel_margin_loss_forward": lambda x: F.multilabel_margin_loss(x(1, 2), torch.zeros(1, 2, dtype=torch.long)),
    "quantile": lambda x: torch.quantile(x(3), 0.5),
    "polar": lambda x: torch.polar(x(2), x(2)),
    "fft_fft": lambda x: torch.fft.fft(x(4)),
    "fft_rfft": lambda x: torch.fft.rfft(x(4)),
    "linalg_inv": lambda x: torch.linalg.inv(x(2, 2)),
    "linalg_cholesky": lambda x: torch.linalg.cholesky(x(2, 2)),
    "linalg_svd": lambda x: torch.linalg.svd(x(2, 2)),
    "linalg_qr": lambda x: torch.linalg.qr(x(2, 2)),
    "linalg_eigh": lambda x: torch.linalg.eigh(x(2, 2)),
    "linalg_solve": lambda x: torch.linalg.solve(x(2, 2), x(2, 2)),
    "linalg_det": lambda x: torch.linalg.det(x(2, 2)),
    "linalg_slogdet": lambda x: torch.linalg.slogdet(x(2, 2)),
    "logdet": lambda x: torch.logdet(x(2, 2)),
    "linalg_lu": lambda x: torch.linalg.lu(x(2, 2)),
    "linalg_lu_factor": lambda x: torch.linalg.lu_factor(x(2, 2)),
    "linalg_ldl_factor": lambda x: torch.linalg.ldl_factor(x(2, 2)),
    "linalg_solve_triangular": lambda x: torch.linalg.solve_triangular(x(2, 2), x(2, 2), upper=True),
    "fft_hfft2": lambda x: torch.fft.hfft2(x(2, 2)),
    "linalg_pinv": lambda x: torch.linalg.pinv(x(2, 2)),
    "_upsample_bilinear2d_aa": lambda x: F.interpolate(x(1, 1, 2, 2), size=3, mode="bilinear", antialias=True),
}


@pytest.mark.parametrize("op", list(MISSING))
def test_what_uniform_lifts_for_want_of_a_kernel_has_none(op):
    """These raise in bfloat16 on CPU and run in float32, so float32 is no matter of taste."""
    assert Policy.uniform().ops[op] is Policy.lean().ops[op] is FP32
    with pytest.raises(RuntimeError):
        MISSING[op](lambda *shape: _identity(shape, torch.bfloat16))
    MISSING[op](lambda *shape: _identity(shape, torch.float32))


def _identity(shape, dtype):
    """Ones on the diagonal: fit for every solver."""
    return (torch.eye(*shape[-2:]).expand(shape) if len(shape) > 1 else torch.ones(shape)).to(dtype)


AT = torch.tensor([0, 1])
REFUSING = {
    "index_copy": lambda t, s: t.index_copy(0, AT, s),
    "index_add": lambda t, s: t.index_add(0, AT, s),
    "index_put": lambda t, s: t.index_put((AT,), s),
    "scatter": lambda t, s: t.scatter(0, AT, s),
    "scatter_add": lambda t, s: t.scatter_add(0, AT, s),
    "scatter_reduce": lambda t, s: t.scatter_reduce(0, AT, s, "sum"),
    "masked_scatter": lambda t, s: t.masked_scatter(torch.ones(2, dtype=torch.bool), s),
}


@pytest.mark.parametrize("op", list(REFUSING))
def test_what_uniform_widens_refuses_mixed_dtypes(op):
    """Without the cast these raise for a float32 source and a 16-bit target; at the widest dtype they run."""
    assert Policy.uniform().ops[op] is WIDEST
    target, source = torch.zeros(2, dtype=torch.bfloat16), torch.ones(2)
    with pytest.raises((RuntimeError, IndexError)):
        REFUSING[op](target, source)
    assert REFUSING[op](target.float(), source).tolist() == [1.0, 1.0]


def _rounded_once(got, exact, dtype):
    """Whether `got` is `exact` rounded to `dtype`, give or take one neighbour for the order of the float32 sums."""
    spacing = torch.finfo(dtype).eps * exact.abs().clamp_min(torch.finfo(dtype).tiny / torch.finfo(dtype).eps)
    return bool(((got.double() - exact).abs() <= spacing).all())


ACCUMULATING = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "group_norm": lambda x: F.group_norm(x, 1),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:]),
    "softmax": lambda x: torch.softmax(x, -1),
    "upsample_bilinear2d": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "upsample_nearest2d": lambda x: F.interpolate(x[None, None], scale_factor=2),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("op", list(ACCUMULATING))
def test_what_lean_stores_in_16_bits_is_rounded_once(op, dtype):
    """The 16-bit kernel's result is the float64 one rounded, over rows of 4096 where a 16-bit sum would be far off."""
    assert Policy.lean().ops[op] in (LOW, KEEP)
    x = (torch.randn(4, 4096, generator=torch.Generator().manual_seed(0)) + 2).to(dtype)
    assert _rounded_once(ACCUMULATING[op](x), ACCUMULATING[op](x.double()), dtype)


def test_a_sum_in_16_bits_would_be_noticed():
    """The check above fails for a softmax whose sum is kept in bfloat16."""
    x = (torch.randn(4, 4096, generator=torch.Generator().manual_seed(0)) + 2).to(torch.bfloat16)
    powers = x.exp()
    total = torch.zeros(4, 1, dtype=torch.bfloat16)
    for column in powers.split(1, dim=1):
        total = total + column
    assert not _rounded_once(powers / total, torch.softmax(x.double(), -1), torch.bfloat16)


def test_sampling_coordinates_need_float32():
    """bfloat16 tells 128 positions apart between 0.5 and 1, so a 16-bit grid moves samples by whole pixels."""
    positions = torch.linspace(0.5, 1, 4097)[:-1]
    assert positions.to(torch.bfloat16).unique().numel() <= 129
    assert Policy.uniform().ops["grid_sampler"] is FP32


@pytest.mark.parametrize(("value", "raises"), [(30.0, False), (-30.0, True)])
def test_why_binary_cross_entropy_is_banned(value, raises):
    """A 16-bit sigmoid reaches 0, and the loss of a positive example is clamped where the logits still have a value."""
    logit = torch.tensor([value], dtype=torch.bfloat16)
    through_sigmoid = F.binary_cross_entropy(torch.sigmoid(logit).to(torch.float16).float(), torch.ones(1))
    from_logits = F.binary_cross_entropy_with_logits(logit.float(), torch.ones(1))
    assert torch.isclose(through_sigmoid, from_logits, atol=1e-3).item() is not raises


def test_tables_are_read_only():
    """A list is shared by every policy that starts from it, so nobody can write into it."""
    with pytest.raises(TypeError):
        table(Base("uniform"))["exp"] = None
    with pytest.raises(TypeError):
        NAMED["uniform"] = ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert table(Base("uniform"))["exp"].rule is FP32
