"""The table of cast rules says what PyTorch does, also in what is kept for backward."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from mixprec._policy import CastRule
from mixprec._policy.rule import as_rule
from mixprec.errors import InvalidValueError, UnknownNameError

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64


def _kept(compute, x):
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.dtype) or t, lambda t: t):
        y = compute(x)
    return y.dtype, sorted(map(str, kept)), torch.autograd.grad(y.float().sum(), x)[0].dtype


def test_fp32_out_and_fp32_differ_only_in_what_is_kept():
    """Both give float32 and a gradient in the input's dtype; FP32_OUT keeps the 16-bit input, FP32 a float32 copy."""
    x = torch.randn(8, dtype=BF16, requires_grad=True)
    fp32_out = _kept(lambda t: torch.linalg.vector_norm(t, dtype=F32), x)
    fp32 = _kept(lambda t: torch.linalg.vector_norm(t.float()), x)
    assert fp32_out == (F32, ["torch.bfloat16", "torch.float32"], BF16)
    assert fp32 == (F32, ["torch.float32", "torch.float32"], BF16)


def test_fp32_out_asks_only_if_the_first_argument_is_eligible(region):
    """A float64 or integer first argument is left alone, and so is its result."""
    with FakeTensorMode(), region("cuda"):
        given = [torch.sum(torch.zeros(4, device="cuda", dtype=d)).dtype for d in (F16, F32, F64, torch.int32)]
    assert given == [F32, F32, F64, torch.int64]


def test_widest_takes_the_region_dtype_where_nothing_is_float32(region):
    """Two 16-bit inputs stay, one float32 input lifts all, float64 does not count, the other 16-bit dtype raises."""
    with FakeTensorMode(), region("cuda"):
        low, full, double, other = (torch.zeros(4, device="cuda", dtype=d) for d in (F16, F32, F64, BF16))
        assert torch.atan2(low, low).dtype is F16
        assert torch.atan2(low, full).dtype is F32
        assert torch.atan2(full, full).dtype is F32
        assert torch.atan2(low, double).dtype is F64  # passed as they are; PyTorch's own promotion follows
        with pytest.raises(RuntimeError, match="Unexpected floating ScalarType"):
            torch.atan2(low, other)


def test_only_out_of_place_calls_are_cast(region):
    """`out=` and in-place forms keep the dtypes they are given."""
    with FakeTensorMode(), region("cuda"):
        x = torch.zeros(4, device="cuda", dtype=F16)
        assert torch.exp(x).dtype is F32
        assert x.exp_().dtype is F16
        assert torch.exp(x, out=torch.empty_like(x)).dtype is F16


@pytest.mark.parametrize("text", ["fp32_out", "FP32_OUT", "fp32-out", " Fp32_Out ", CastRule.FP32_OUT])
def test_a_rule_is_read_in_any_case(text):
    """A rule may be given as itself or by name."""
    assert as_rule(text) is CastRule.FP32_OUT


def test_a_wrong_rule_is_refused():
    """A name that is none says which are close; what is no name says what is accepted."""
    with pytest.raises(UnknownNameError, match="did you mean 'fp32_out' or 'fp32'"):
        as_rule("fp32_ou")
    with pytest.raises(InvalidValueError, match="rule is 3; accepted is a CastRule or its name: low, fp32, fp32_out"):
        as_rule(3)
