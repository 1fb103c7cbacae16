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
    tables = {name: table for name, table in vars(module).items() if name.startswith("_global_")} if module else {}
    return [(name, hook) for name, table in tables.items() if isinstance(table, dict) for hook in table.items()]
