"""What a policy does differently from PyTorch's list is found exactly, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._policy import CastRule, Policy, difference, differs
from mixprec._policy.base import table
from mixprec._policy.names import KNOWN
from mixprec._policy.spellings import TAKES_DTYPE
from mixprec._policy.tables import DEVICES

KEEP = CastRule.KEEP


@pytest.mark.parametrize("device", list(DEVICES))
def test_pytorchs_own_list_differs_in_nothing(device):
    """The policy that equals PyTorch's leaves nothing to intercept."""
    assert difference(Policy.torch(device), Policy.torch(device)) == {}


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.sampled_from(list(DEVICES)),
    st.lists(st.tuples(st.sampled_from(sorted(KNOWN)), st.sampled_from(list(CastRule))), max_size=5),
)
def test_only_what_is_changed_differs(device, changes):
    """An op appears if and only if its rule is not the native one, with its own rule."""
    native = Policy.torch(device)
    policy = native
    for op, rule in changes:
        if rule is not CastRule.FP32_OUT or op in TAKES_DTYPE:
            policy = policy.with_op(op, rule)
    expected = {r.op: r.rule for r in policy.rules if r.rule is not native.ops.get(r.op, KEEP)}
    assert dict(difference(policy, native)) == expected


@pytest.mark.parametrize("name", ["uniform", "lean", "careful"])
@pytest.mark.parametrize("device", list(DEVICES))
def test_the_difference_turns_the_native_list_into_the_policy(name, device):
    """Native rules overlaid with the difference are the policy's, but for ops without a 16-bit kernel there."""
    policy, native = Policy.named(name), Policy.torch(device)
    fixed = {op for op, group in table(native.base).items() if group.only}
    made = {**native.ops, **difference(policy, native)}
    ops = (made.keys() | policy.ops.keys()) - fixed
    assert {op: made.get(op, KEEP) for op in ops} == {op: policy.ops.get(op, KEEP) for op in ops}
    assert {made[op] for op in fixed} <= {CastRule.FP32}


def test_a_device_without_the_kernel_keeps_float32_unless_told():
    """MPS has no mixed batch_norm: a base list leaves it alone, and a rule of the user's own is obeyed."""
    mps = Policy.torch("mps")
    assert "batch_norm" not in difference(Policy.uniform(), mps)
    assert difference(Policy.uniform().with_op("batch_norm", "keep"), mps)["batch_norm"] is KEEP
    assert "batch_norm" not in difference(Policy.uniform(), Policy.torch("cuda"))


def test_a_ban_is_a_difference_where_pytorch_is_silent():
    """CPU runs binary_cross_entropy; a policy that bans it has to intercept it there, and not on CUDA."""
    assert difference(Policy.uniform(), Policy.torch("cpu"))["binary_cross_entropy"] is CastRule.BANNED
    assert "binary_cross_entropy" not in difference(Policy.uniform(), Policy.torch("cuda"))


def test_what_an_old_release_does_not_list_differs():
    """On PyTorch 2.6 rms_norm runs in its input's dtype, so a policy that wants float32 has to say so there."""
    assert difference(Policy.uniform(), Policy.torch("cuda", version="2.6"))["rms_norm"] is CastRule.FP32
    assert "rms_norm" not in difference(Policy.uniform(), Policy.torch("cuda", version="2.12"))


def test_what_a_module_rule_decides_can_differ_too():
    """Inside a float32 module a matrix product differs from PyTorch's list and a logarithm does not."""
    native = Policy.torch("cuda")
    policy = native.with_module("head", "fp32")
    assert differs(policy.explain("linear", "head"), native)
    assert not differs(policy.explain("log", "head"), native)
    assert not differs(policy.explain("linear", "body"), native)


def test_module_rules_are_not_in_the_difference():
    """They need to know where an op runs, which `module_rules` is for."""
    policy = Policy.torch("cpu").with_module("a", "fp32").with_op("exp", "fp32", module="b")
    assert difference(policy, Policy.torch("cpu")) == {}
    assert len(policy.module_rules) == 2
