"""What runs again in backward runs under the policy of its forward, whatever the recomputation is called."""

from __future__ import annotations

import functools
import threading
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

from mixprec import Policy, autocast
from mixprec._autocast import CastCache

POLICIES: dict[str, Policy | None] = {
    "none": None,
    "uniform": Policy.uniform(),
    "lean": Policy.lean(),
    "careful": Policy.careful(),
    "torch cuda": Policy.torch("cuda"),
    "fp32 module": Policy.uniform().with_module("inner", "fp32"),
}


class Block(torch.nn.Module):
    """A block whose ops are cast differently by the policies, with the dtypes that its ops ran in recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.shared = torch.nn.Linear(8, 8)
        self.seen: list[tuple[torch.dtype, ...]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.inner(x)
        b = F.softmax(self.norm(a), -1)
        c = self.shared(self.shared(b)).exp()
        self.seen.append((a.dtype, b.dtype, c.dtype, (c**2).dtype))
        return F.dropout(c.float() + x, 0.25)


def _selective() -> tuple[object, object]:
    ops = torch.ops.aten
    keep = {ops.addmm.default, ops.mm.default, ops._to_copy.default}

    def policy(ctx: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op in keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


WAYS = {
    "non-reentrant": functools.partial(checkpoint, use_reentrant=False),
    "no early stop": functools.partial(checkpoint, use_reentrant=False, early_stop=False),
    "reentrant": functools.partial(checkpoint, use_reentrant=True),
    "selective": functools.partial(checkpoint, use_reentrant=False, context_fn=_selective),
}


def _run(
    block: Block, policy: Policy | None, way: object, *, backward_inside: bool = False, warm: bool = False
) -> list[object]:
    block.zero_grad()
    block.seen.clear()
    torch.manual_seed(7)
    x = torch.linspace(-1, 1, 32).view(4, 8).requires_grad_()
    with autocast("cpu", policy=policy):
        if warm:  # casts of the shared weight exist already
            block.shared(x.detach())
        out = block(x) if way is None else way(block, x)  # type: ignore[operator]
        loss = out.square().mean()
        if backward_inside:
            loss.backward()
    if not backward_inside:
        loss.backward()
    return [loss.detach(), x.grad, *[p.grad for p in block.parameters()]]


@pytest.mark.parametrize("backward_inside", [False, True], ids=["backward outside", "backward inside"])
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_checkpoint_recomputes_exactly_what_forward_did(
    policy: str, way: str, warm: bool, backward_inside: bool
) -> None:
    """Loss and every gradient are bit-equal to those without checkpointing, and the recomputed dtypes are forward's."""
    torch.manual_seed(1)
    block = Block()
    expected = _run(block, POLICIES[policy], None, backward_inside=backward_inside, warm=warm)
    got = _run(block, POLICIES[policy], WAYS[way], backward_inside=backward_inside, warm=warm)
    assert len(block.seen) == 2 or way == "non-reentrant"  # early stop may end a recomputation before the record
    assert len(set(block.seen)) == 1
    for a, b in zip(expected, got, strict=True):
        assert torch.equal(a, b)  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_with_a_cache_that_outlives_its_region(way: str) -> None:
    """Over an accumulation window whose weights are cast once, gradients are those of regions with their own caches."""
    torch.manual_seed(1)
    block = Block()
    grads = []
    for cache in (None, CastCache()):
        block.zero_grad()
        torch.manual_seed(7)
        for _ in range(3):
            x = torch.randn(4, 8, requires_grad=True)
            with autocast("cpu", policy="lean", cache_enabled=cache):
                loss = WAYS[way](block, x).square().mean()  # type: ignore[operator]
            loss.backward()
        grads.append([p.grad.clone() for p in block.parameters()])  # type: ignore[union-attr]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_the_dtypes_of_the_test_block_tell_the_policies_apart() -> None:
    """The guard can fail: under PyTorch's own list the block computes in other dtypes than under a policy."""
    block = Block()
    native = _run(block, Policy.torch("cpu"), None) and list(block.seen)
    ours = _run(block, Policy.uniform(), None) and list(block.seen)
    assert native != ours


def test_a_recomputation_sees_no_policy_that_forward_did_not_see() -> None:
    """A forward outside of regions is recomputed without a policy, though backward runs in a region."""
    block = Block()
    x = torch.randn(4, 8, requires_grad=True)
    with torch.autocast("cpu"):
        loss = checkpoint(block, x, use_reentrant=False, early_stop=False).sum()
    with autocast("cpu", policy="uniform"):
        loss.backward()
    assert len(block.seen) == 2
    assert len(set(block.seen)) == 1


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # torch's own, for reentrant in reentrant
@pytest.mark.parametrize("reentrant", [False, True])
def test_nested_checkpoints_and_sequences_recompute_their_policy(reentrant: bool) -> None:
    """Checkpoints inside checkpoints, and `checkpoint_sequential`, give the plain run's gradients."""
    blocks = torch.nn.Sequential(*[Block() for _ in range(3)])

    def outer(x: torch.Tensor) -> torch.Tensor:
        return checkpoint_sequential(blocks, 3, x, use_reentrant=reentrant)

    grads = []
    for run in (blocks, outer, lambda x: checkpoint(outer, x, use_reentrant=reentrant)):
        blocks.zero_grad()
        torch.manual_seed(3)
        x = torch.randn(4, 8, requires_grad=True)
        with autocast("cpu", policy="uniform"):
            run(x).sum().backward()
        grads.append([x.grad, *[p.grad for p in blocks.parameters()]])
    for other in grads[1:]:
        assert all(torch.equal(a, b) for a, b in zip(grads[0], other, strict=True))  # type: ignore[arg-type]


def test_backward_may_run_in_another_thread() -> None:
    """A backward pass started from a thread without any region recomputes under forward's policy."""
    block = Block()
    x = torch.randn(4, 8, requires_grad=True)
    with autocast("cpu", policy="uniform"):
        loss = checkpoint(block, x, use_reentrant=False, early_stop=False).sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert x.grad is not None
    assert len(set(block.seen)) == 1


class _Product(torch.autograd.Function):
    """`x @ w`, with the dtypes of an exponential in forward and backward recorded."""

    seen: ClassVar[list[torch.dtype]] = []

    @staticmethod
    @functools.partial(torch.amp.custom_fwd, device_type="cpu")
    def forward(ctx: object, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)  # type: ignore[attr-defined]
        out = x @ w
        _Product.seen.append(out.exp().dtype)
        return out

    @staticmethod
    @functools.partial(torch.amp.custom_bwd, device_type="cpu")
    def backward(ctx: object, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, w = ctx.saved_tensors  # type: ignore[attr-defined]
        out = grad @ w.t()
        _Product.seen.append(out.exp().dtype)
        return out, x.t() @ grad


@pytest.mark.parametrize("policy", [None, "uniform"])
def test_custom_bwd_brings_back_the_policy_of_custom_fwd(policy: str | None) -> None:
    """A custom function's backward, run outside of the region, casts as its forward did."""
    _Product.seen.clear()
    x, w = torch.randn(2, 2, requires_grad=True), torch.randn(2, 2, requires_grad=True)
    with autocast("cpu", policy=policy):
        y = _Product.apply(x, w)
    y.float().sum().backward()
    expected = torch.float32 if policy else torch.bfloat16
    assert _Product.seen == [expected, expected]


def test_a_custom_function_outside_of_regions_stays_outside() -> None:
    """A function that ran without autocast runs its backward without, also if backward is called in a region."""
    _Product.seen.clear()
    x, w = torch.randn(2, 2, requires_grad=True), torch.randn(2, 2, requires_grad=True)
    y = _Product.apply(x, w)
    with autocast("cpu", policy="uniform"):
        y.sum().backward()
    assert _Product.seen == [torch.float32, torch.float32]
    assert x.grad is not None
    assert x.grad.dtype is torch.float32


class _Cast(torch.autograd.Function):
    @staticmethod
    @functools.partial(torch.amp.custom_fwd, device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        assert not torch.is_autocast_enabled("cpu")
        assert x.dtype is torch.float32
        return (x @ x).exp()

    @staticmethod
    @functools.partial(torch.amp.custom_bwd, device_type="cpu")
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        assert not torch.is_autocast_enabled("cpu")
        return (grad @ grad).to(torch.float32)


@pytest.mark.parametrize("policy", [None, "uniform"])
def test_cast_inputs_runs_without_autocast(policy: str | None) -> None:
    """`custom_fwd(cast_inputs=float32)` gets float32 inputs and no casts inside, under every policy."""
    x = torch.randn(2, 2, dtype=torch.bfloat16, requires_grad=True)
    with autocast("cpu", policy=policy):
        y = _Cast.apply(x)
    assert y.dtype is torch.float32
    y.sum().backward()
    assert x.grad is not None
