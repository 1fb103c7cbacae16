"""The cast cache finds what a cast would give, keeps nothing alive that nobody needs, and counts what it does."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mixprec import Policy, autocast
from mixprec._autocast import CastCache
from mixprec._autocast._cache import is_weight

SHARING = Policy.torch("cpu").with_sharing("everything")
"""PyTorch's CPU list, with casts of activations shared."""

WEIGHTS = Policy.uniform()


def _weight(*shape: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.linspace(-1, 1, 16).view(4, 4) if not shape else torch.randn(*shape))


def test_a_weight_is_cast_once_per_region() -> None:
    """Ten products with one weight make one cast of it, and what they give is what casting by hand gives."""
    x, w = torch.randn(2, 4), _weight()
    with autocast("cpu", policy=SHARING) as region:
        for _ in range(10):
            y = F.linear(x, w)
        assert region.statistics.casts == 2
        assert region.statistics.hits == 18
        assert region.statistics.bytes == 2 * (x.numel() + w.numel())
    assert torch.equal(y, F.linear(x.bfloat16(), w.detach().bfloat16()))


def test_projections_of_one_activation_share_its_cast() -> None:
    """q, k and v of one float32 activation read one 16-bit copy of it; loss and gradients are those of one cast."""
    x = torch.randn(3, 4, requires_grad=True)
    ws = [_weight() for _ in range(3)]
    with autocast("cpu", policy=SHARING) as region:
        h = x * 2
        loss = sum(F.linear(h, w).float().sum() for w in ws)
    loss.backward()  # type: ignore[union-attr]  # a tensor
    assert region.statistics.casts == 1 + 3
    by_hand = [w.detach().clone().requires_grad_() for w in ws]
    x2 = x.detach().clone().requires_grad_()
    low = (x2 * 2).bfloat16()
    sum(F.linear(low, w.bfloat16()).float().sum() for w in by_hand).backward()  # type: ignore[union-attr]
    assert torch.equal(x.grad, x2.grad)  # type: ignore[arg-type]
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ws, by_hand, strict=True))  # type: ignore[arg-type]


def test_without_sharing_an_activation_is_cast_for_each_consumer() -> None:
    """`Sharing.WEIGHTS` is PyTorch's heuristic: only float32 leaves that require grad are found again."""
    h, w = torch.randn(3, 4) * 2, _weight()
    with autocast(
        "cpu", policy=Policy.torch("cpu").with_op("linear", "low").with_op("erf", "fp32"), cache_enabled=CastCache()
    ) as region:
        for _ in range(3):
            F.linear(h, w)
        assert (region.statistics.casts, region.statistics.hits) == (1 + 3, 2)
    assert is_weight(w)
    assert not any(map(is_weight, (h, w[0], w.detach(), w.double(), w.data, torch.randn(2), w.bfloat16())))


@pytest.mark.parametrize("sharing", [SHARING, WEIGHTS])
def test_an_update_in_place_makes_the_cast_void(sharing: Policy) -> None:
    """A weight changed inside the region is cast again, under PyTorch's cache as under ours."""
    x, w = torch.randn(2, 4), _weight()
    with autocast("cpu", policy=sharing.with_op("linear", "low"), cache_enabled=CastCache()):
        F.linear(x, w)
        with torch.no_grad():
            w.zero_()
        assert F.linear(x, w).count_nonzero() == 0
        h = torch.ones(2, 4)
        F.linear(h, w)
        with torch.no_grad():
            w.fill_(1)
        h.zero_()
        assert F.linear(h, w).count_nonzero() == 0


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.5),
    "SGD foreach": lambda p: torch.optim.SGD(p, lr=0.5, foreach=True),
    "SGD fused": lambda p: torch.optim.SGD(p, lr=0.5, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.5),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, lr=0.5, foreach=True),
    "AdamW fused": lambda p: torch.optim.AdamW(p, lr=0.5, fused=True),
    "Adagrad fused": lambda p: torch.optim.Adagrad(p, lr=0.5, fused=True),
}


@pytest.mark.parametrize("where", ["inside", "outside"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("policy", [None, "lean"])
def test_an_optimizer_step_makes_every_cast_void(policy: str | None, optimizer: str, where: str) -> None:
    """Also of the fused optimizers, which do not raise the version; also in a cache that outlives regions."""
    x, w = torch.randn(2, 4), _weight()
    step = OPTIMIZERS[optimizer]([w])
    cache = CastCache()
    with autocast("cpu", policy=policy, cache_enabled=cache):
        F.linear(x, w).sum().backward()
        if where == "inside":
            step.step()
    if where == "outside":
        step.step()
    with autocast("cpu", policy=policy, cache_enabled=cache):
        got = F.linear(x, w)
    assert torch.equal(got, F.linear(x.bfloat16(), w.detach().bfloat16()))


def test_a_cache_of_ones_own_casts_each_weight_once_per_step() -> None:
    """Over an accumulation window of four regions each weight is cast once; gradients equal those of fresh casts."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batches = torch.randn(4, 2, 4)
    grads = []
    for cache in (CastCache(), None):
        for step in range(2):
            optimizer.zero_grad()
            for batch in batches:
                with autocast("cpu", policy=WEIGHTS, cache_enabled=cache):
                    loss = model(batch).float().square().mean()
                loss.backward()
            if step == 0:
                grads.append([p.grad.clone() for p in model.parameters()])  # type: ignore[union-attr]
            if cache is not None:
                if step == 0:
                    assert cache.statistics.hits == 3 * 4  # three regions find all four parameters
                    state = [p.detach().clone() for p in model.parameters()]
                optimizer.step()
                assert len(cache) == 0
        with torch.no_grad():
            for p, s in zip(model.parameters(), state, strict=True):
                p.copy_(s)
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_an_ordinary_region_drops_its_casts_at_the_end() -> None:
    """After the region nothing of the cache is left, and the copy of a weight is freed."""
    w = _weight()
    with autocast("cpu", policy=SHARING) as region:
        F.linear(torch.randn(2, 4), w)
        interceptor = region._interceptor
        assert interceptor is not None
        assert len(interceptor.cache) == 1  # the activation died in the call
    assert len(interceptor.cache) == 0


@pytest.mark.parametrize("first", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("policy", [None, "lean", "uniform"])
def test_a_cast_made_without_gradients_does_not_lose_them_later(first: Any, policy: str | None) -> None:
    """A pass without gradients and then one with them, in one region: every parameter gets its gradient."""
    layer = torch.nn.Linear(4, 4)
    x = torch.randn(2, 4)
    with autocast("cpu", policy=policy):
        with first():
            layer(x)
        loss = layer(x).float().sum()
    loss.backward()
    assert layer.weight.grad is not None
    assert layer.bias.grad is not None


def test_inference_tensors_are_never_kept() -> None:
    """What was cast in inference mode is not found outside, where it could not be saved for backward."""
    w = _weight()
    with autocast("cpu", policy=SHARING) as region:
        with torch.inference_mode():
            inside = torch.randn(2, 4)
            F.linear(inside, w)
        F.linear(torch.randn(2, 4), w).sum().backward()
        assert region.statistics.hits == 0
    assert w.grad is not None


def test_nested_dtypes_have_casts_of_their_own() -> None:
    """A region of another dtype inside, ours or torch's, finds no cast of the outer one, and the outer one its own."""
    x, w = torch.randn(2, 4), _weight()
    for inner in (autocast("cpu", torch.float16, policy=SHARING), torch.autocast("cpu", torch.float16)):
        with autocast("cpu", torch.bfloat16, policy=SHARING):
            assert F.linear(x, w).dtype is torch.bfloat16
            with inner:
                assert F.linear(x, w).dtype is torch.float16
            assert F.linear(x, w).dtype is torch.bfloat16


def test_a_copy_of_an_activation_lives_no_longer_than_it_is_needed() -> None:
    """With nothing saved for backward only the last copy is held, while its source lives, and none after the region."""
    sources = [torch.randn(64, 4) for _ in range(5)]
    copies: list[weakref.ref[torch.Tensor]] = []
    with autocast("cpu", policy=SHARING) as region, torch.no_grad():
        assert region._interceptor is not None
        for source in sources:
            copies.append(weakref.ref(region._interceptor.cache.cast(source * 1, torch.bfloat16)))
        gc.collect()
        alive = [ref for ref in copies if ref() is not None]
        assert alive == []  # every source was a temporary
        for source in sources:
            copies.append(weakref.ref(region._interceptor.cache.cast(source.view(64, 4), torch.bfloat16)))
    gc.collect()
    assert [ref for ref in copies if ref() is not None] == []


def test_memory_held_by_a_region_does_not_grow_with_its_activations() -> None:
    """A chain of a hundred layers without gradients holds two copies at most, though every activation is alive."""
    held = [torch.randn(8, 8)]
    w = torch.randn(8, 8)
    with autocast("cpu", policy=SHARING) as region, torch.no_grad():
        interceptor = region._interceptor
        assert interceptor is not None
        for _ in range(100):
            held.append(torch.mm(held[-1], w).float() + 0)
        entries = interceptor.cache._copies.entries.values()
        alive = [e for e in entries if e.source() is not w and e.find(torch.bfloat16) is not None]
        assert len(alive) <= 1


def test_what_autograd_saves_is_what_the_cache_finds() -> None:
    """A copy that a first consumer saved for backward is found by the second, however many casts came between."""
    x, w = torch.randn(2, 4) * 1, _weight()
    with autocast("cpu", policy=SHARING) as region:
        first = F.linear(x, w)
        for _ in range(5):
            F.linear(torch.randn(2, 4), w)
        casts = region.statistics.casts
        second = F.linear(x, w)
        assert region.statistics.casts == casts
    (first + second).sum().backward()
    assert w.grad is not None


def test_a_copy_that_somebody_wrote_to_is_not_found() -> None:
    """An op may return a view of the cast it was given (`einsum`); writing to that view spoils the copy for others."""
    x = torch.ones(2, 3)
    with autocast("cpu", policy=Policy.uniform().with_sharing("everything")), torch.no_grad():
        view = torch.einsum("ij->ji", x)
        assert view.dtype is torch.bfloat16
        view.zero_()
        assert torch.einsum("ij->ji", x).count_nonzero() == 6


def test_cache_enabled_false_switches_the_cache_off() -> None:
    """As CUDA graphs demand: each consumer casts for itself."""
    x, w = torch.randn(2, 4), _weight()
    with autocast("cpu", cache_enabled=False, policy=SHARING) as region:
        for _ in range(3):
            F.linear(x, w)
        assert (region.statistics.casts, region.statistics.hits) == (6, 0)


def test_functorch_transforms_find_and_leave_nothing() -> None:
    """Under `vmap` and `grad` the casts are made anew: a wrapped copy would be dead outside."""
    w = _weight()
    x = torch.randn(3, 4)

    def loss(w: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        return F.linear(row, w).float().square().sum()

    with autocast("cpu", policy=SHARING) as region:
        per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(w.detach(), x)
        total = torch.func.grad(lambda w: loss(w, x))(w.detach())
        assert region.statistics.hits == 0
        F.linear(x, w).sum().backward()
    assert per_sample.shape == (3, 4, 4)
    torch.testing.assert_close(per_sample.sum(0), total, rtol=0.05, atol=0.05)


def test_a_tensor_that_takes_anothers_place_in_memory_is_another_tensor() -> None:
    """Entries belong to tensor objects, not to addresses: temporaries of one size never find each other's casts."""
    w = _weight()
    with autocast("cpu", policy=SHARING):
        for i in range(50):
            x = torch.full((2, 4), float(i))
            assert torch.equal(F.linear(x, w), F.linear(x.bfloat16(), w.detach().bfloat16()))
            del x


def test_double_backward_goes_through_a_shared_cast() -> None:
    """Gradients of gradients through a shared copy equal those through one cast made by hand."""
    values = []
    for shared in (True, False):
        x = torch.linspace(-1, 1, 8).view(2, 4).requires_grad_()
        w = _weight()
        if shared:
            with autocast("cpu", policy=SHARING):
                h = x * 1
                y = (F.linear(h, w) * F.linear(h, w)).float().sum()
        else:
            h, low = (x * 1).bfloat16(), w.bfloat16()
            y = (F.linear(h, low) * F.linear(h, low)).float().sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        values.append(torch.autograd.grad(g.square().sum(), w)[0])
    assert torch.equal(*values)
