"""The tables are what the running PyTorch does, op by op, on every device."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mixprec._policy import CastRule, Policy
from mixprec._policy.base import Base, table
from mixprec._policy.tables import DEVICES, release

LOW, F32, F64 = torch.float16, torch.float32, torch.float64
NORM = {"norm.Scalar", "norm.ScalarOpt_dim"}  # their dtype is appended by redirecting to another overload
BANNED = {"binary_cross_entropy"}


def _native(device):
    return Policy.torch(device, version=torch.__version__)


def _op(name):
    return name if name == "_convolution.deprecated" else name.partition(".")[0]


def _rule(watch, name):
    """The rule that the kernel behind `name` follows, from what it passes on."""
    low, full = watch(name, [LOW]), watch(name, [F32])
    if low.asked is not None:
        assert low.asked is full.asked is F32
        assert (low.dtypes[0], full.dtypes[0]) == (LOW, F32)
        return CastRule.FP32_OUT
    passed = (set(low.dtypes), set(full.dtypes))
    if passed == ({LOW}, {LOW}):
        return CastRule.LOW
    if passed == ({F32}, {F32}):
        return CastRule.FP32
    assert passed == ({LOW}, {F32})
    assert set(watch(name, [LOW, F32]).dtypes) == {F32}
    return CastRule.WIDEST


def test_every_registered_kernel_follows_its_row(watch):
    """Each kernel that PyTorch registers for the device's autocast casts as the table's row says."""
    rows = _native(watch.device).ops
    plain = [n for n in watch.names if n not in NORM | BANNED]
    assert {n: _rule(watch, n) for n in plain} == {n: rows.get(_op(n)) for n in plain}


def test_a_wrong_row_is_noticed(watch):
    """The comparison above fails for a planted error."""
    name = "prelu"
    assert _rule(watch, name) is _native(watch.device).ops[name]
    assert _rule(watch, name) is not _native(watch.device).with_op(name, "fp32").ops[name]


def test_every_row_has_a_kernel(watch):
    """No row speaks of an op that PyTorch has no kernel for, except what it builds from listed parts."""
    rows = table(Base("torch", watch.device, torch.__version__))
    with_kernel = {_op(n) for n in watch.names}
    if watch.device == "cuda" and not torch.backends.cudnn.is_available():
        with_kernel.add("_cudnn_rnn")  # registered in builds with cuDNN only
    assert {op for op, group in rows.items() if not group.parts} == with_kernel
    parts = {part for group in rows.values() for part in group.parts.split()}
    assert parts <= with_kernel


def test_float64_and_integers_are_never_cast(watch):
    """float64 passes every kernel as it is, whatever the rule."""
    plain = [n for n in watch.names if n not in NORM | BANNED]
    assert {n: set(watch(n, [F64]).dtypes) for n in plain} == {n: {F64} for n in plain}


def test_a_named_dtype_is_kept_by_fp32_out(watch):
    """FP32_OUT asks for float32 only where the caller named no dtype; FP32 leaves the named dtype alone too."""
    wanted = {CastRule.FP32_OUT: ((LOW,), F64), CastRule.FP32: ((F32,), F64)}
    softmax = _native(watch.device).ops.get("softmax")
    if softmax is None:
        assert watch.device == "cpu"
        return
    seen = watch("softmax.int", [LOW], dtype=F64)
    assert (seen.dtypes, seen.asked) == wanted[softmax]


@pytest.mark.parametrize("device", ["cuda", "xpu"])
def test_norm_is_redirected_to_a_float32_result(device, region):
    """`norm` without dtype gives float32 from 16 bits, as FP32_OUT says, and leaves its input alone."""
    assert _native(device).ops["norm"] is CastRule.FP32_OUT
    with FakeTensorMode(), region(device):
        x = torch.empty(4, device=device, dtype=LOW)
        assert torch.ops.aten.norm.Scalar(x, 2).dtype is F32
        assert torch.ops.aten.norm.ScalarOpt_dim(x, 2, [0]).dtype is F32


@pytest.mark.parametrize("device", list(DEVICES))
def test_the_ban_is_where_the_table_says(device, region):
    """binary_cross_entropy raises under CUDA's and XPU's autocast and nowhere else."""
    banned = _native(device).ops.get("binary_cross_entropy") is CastRule.BANNED
    with FakeTensorMode(), region(device):
        p = torch.empty(4, device=device)
        if banned:
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                torch.nn.functional.binary_cross_entropy(p, p)
        else:
            assert torch.nn.functional.binary_cross_entropy(p, p).dtype is F32


PARTS = {
    "square": lambda x: torch.square(x),
    "cross_entropy_loss": lambda x: torch.nn.functional.cross_entropy(x, x),
    "linalg_norm": lambda x: torch.linalg.norm(x),
    "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
    "tensordot": lambda x: torch.tensordot(x, x, dims=1),
    "linalg_multi_dot": lambda x: torch.linalg.multi_dot([x, x, x]),
    "chain_matmul": lambda x: torch.ops.aten.chain_matmul([x, x, x]),
    "max_unpool1d": lambda x: torch.nn.functional.max_unpool1d(
        x[None], torch.zeros(1, 4, 4, dtype=torch.int64, device=x.device), 2
    ),
}
RESULT = {CastRule.LOW: (LOW, LOW), CastRule.FP32: (F32, F32), CastRule.FP32_OUT: (F32, F32)}


@pytest.mark.parametrize("device", list(DEVICES))
def test_ops_listed_through_their_parts_behave_as_their_row(device, region):
    """An op that PyTorch lists only through its C++ parts gives the dtypes of its row, for 16-bit and 32-bit input."""
    rows = table(Base("torch", device, torch.__version__))
    through_parts = {op: group.rule for op, group in rows.items() if group.parts}
    with FakeTensorMode(), region(device):
        x = torch.empty(4, 4, device=device)
        given = {op: (PARTS[op](x.to(LOW)).dtype, PARTS[op](x).dtype) for op in through_parts}
    assert given == {op: RESULT[rule] for op, rule in through_parts.items()}
    assert through_parts


def test_watching_leaves_pytorch_as_it_was(watch):
    """Once a watch is closed the ops compute again; otherwise these tests would poison their process."""
    linear = torch.nn.functional.linear
    watch.close()
    assert torch.equal(linear(torch.eye(2), torch.eye(2)), torch.eye(2))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(torch.eye(2), torch.eye(2)).dtype is torch.bfloat16


def test_releases_choose_rows():
    """A row holds from `since` on and until `until`, exclusive; the newest release is the default."""
    assert "rms_norm" not in Policy.torch("cuda", version="2.11").ops
    assert Policy.torch("cuda", version="2.12").ops["rms_norm"] is CastRule.FP32
    assert "conv3d" not in Policy.torch("mps", version="2.8.0").ops
    assert Policy.torch("mps", version="2.9.1+x").ops["conv_transpose3d"] is CastRule.FP32
    assert "qr" in Policy.torch("cpu", version="2.13").ops
    assert "qr" not in Policy.torch("cpu", version="2.14").ops
    assert release("2.13.0+cpu") == (2, 13)
    assert release("nonsense") == (0, 0)


def test_each_op_stands_in_one_group_of_a_device_and_release():
    """PyTorch's tables name each op once per release, so no order among groups can matter."""
    for device, groups in DEVICES.items():
        for version in ("2.6", "2.9", "2.12", "2.13", "2.14"):
            at = release(version)
            current = [g for g in groups if release(g.since) <= at < (release(g.until) if g.until else (9999, 0))]
            names = [op for g in current for op in g.ops.split()]
            assert sorted(names) == sorted(set(names)), (device, version)


def test_every_group_has_a_reason_and_a_link():
    """A row without a receipt is not a row."""
    for groups in DEVICES.values():
        for group in groups:
            assert group.reason
            assert group.source.startswith("https://")
            assert (group.rule is CastRule.BANNED) == bool(group.replacement)
