"""Under PyTorch's own list its own cache serves, and a region empties it where it would give a stale cast."""

from __future__ import annotations

import gc
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.optim import Optimizer

from mixprec import autocast
from mixprec._autocast import CastCache
from mixprec._autocast._stale import watched

optimizer_module = sys.modules[Optimizer.__module__]


def _hooks() -> int:
    return len(optimizer_module._global_optimizer_post_hooks)


@pytest.mark.parametrize("enabled", [True, False], ids=["directly", "through a disabled region"])
def test_a_region_of_another_dtype_inside_finds_no_cast_of_the_outer_one(enabled: bool) -> None:
    """Where `torch.autocast` raises for mixed 16-bit types, ours computes, and the outer region goes on."""
    x, w = torch.randn(2, 4), torch.nn.Parameter(torch.randn(4, 4))
    with autocast("cpu", torch.bfloat16):
        F.linear(x, w)
        with (
            autocast("cpu", torch.float16, enabled=enabled),
            autocast("cpu", torch.float16),
        ):
            assert F.linear(x, w).dtype is torch.float16
        assert F.linear(x, w).dtype is torch.bfloat16


def test_torch_itself_still_gives_the_stale_cast() -> None:
    """The guard is needed: the same nesting of `torch.autocast` fails (PyTorch 2.13). When this fails, drop it."""
    x, w = torch.randn(2, 4), torch.nn.Parameter(torch.randn(4, 4))
    with torch.autocast("cpu", torch.bfloat16):
        F.linear(x, w)
        with torch.autocast("cpu", torch.float16), pytest.raises(RuntimeError, match="dtype"):
            F.linear(x, w)


@pytest.mark.parametrize("fused", [True, False])
def test_an_optimizer_step_inside_a_region_is_seen(fused: bool) -> None:
    """The product after the step is made with the new weights; under `torch.autocast` it is made with the old ones."""
    for kind, new in ((autocast, True), (torch.autocast, False)):
        x, w = torch.ones(2, 4), torch.nn.Parameter(torch.ones(4, 4))
        optimizer = torch.optim.SGD([w], lr=1.0, fused=fused)
        with kind("cpu"):
            F.linear(x, w).sum().backward()
            optimizer.step()
            after = F.linear(x, w)
        assert torch.equal(after, F.linear(x.bfloat16(), w.detach().bfloat16())) is new


def test_the_step_hook_is_registered_only_while_somebody_needs_it() -> None:
    """One hook for any number of regions, none without; a cache of the user's keeps it as long as the cache lives."""
    before = _hooks()
    with autocast("cpu"):
        assert _hooks() == before + 1
        with autocast("cpu", policy="uniform"):
            assert _hooks() == before + 1
        assert _hooks() == before + 1
    assert _hooks() == before
    cache = watched(CastCache())
    watched(cache)
    assert _hooks() == before + 1
    del cache
    gc.collect()
    assert _hooks() == before


def test_a_region_inside_an_error_gives_its_hook_back() -> None:
    """Leaving through an error counts as leaving."""
    before = _hooks()
    with pytest.raises(ZeroDivisionError), autocast("cpu"):
        1 / 0  # noqa: B018 - the error is the point
    assert _hooks() == before
