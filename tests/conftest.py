"""What every test has: names that are the same in every process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_make_parametrize_id(val: Any) -> str | None:
    """Name a set by its sorted members: its own order differs between processes, which must agree on the tests."""
    return ",".join(sorted(map(str, val))) or "none" if isinstance(val, (set, frozenset)) else None


@pytest.fixture(autouse=True)
def _no_hook_is_left() -> Iterator[None]:
    """A test that leaves a hook on all modules behind changes what every later test sees."""
    before = _global_hooks()
    yield
    left = [hook for hook in _global_hooks() if hook not in before]
    assert not left, f"left on all modules: {left}"


def _global_hooks() -> list[Any]:
    module = sys.modules.get("torch.nn.modules.module")
    kinds = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
    return [hook for kind in kinds for hook in getattr(module, kind, {}).values()]
