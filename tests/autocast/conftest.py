"""What every test of autocast leaves behind: nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch
from torch.nn.modules import module as nn_module
from torch.optim import Optimizer

optimizer = sys.modules[Optimizer.__module__]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Each test ends with no mode on the stack, autocast off, no global hook, and a fixed seed at its start."""
    torch.manual_seed(0)
    optimizer_hooks = len(optimizer._global_optimizer_post_hooks)
    module_hooks = len(nn_module._global_forward_pre_hooks)
    yield
    assert torch._C._len_torch_function_stack() == 0
    assert not torch.is_autocast_enabled("cpu")
    assert torch.is_autocast_cache_enabled()
    assert torch.get_autocast_dtype("cpu") is torch.bfloat16
    assert len(optimizer._global_optimizer_post_hooks) == optimizer_hooks
    assert len(nn_module._global_forward_pre_hooks) == module_hooks
