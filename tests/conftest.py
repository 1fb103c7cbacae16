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
    """A test that leaves a hook or a tap behind changes what every later test sees."""
    before = _global_hooks()
    yield
    left = [hook for hook in _global_hooks() if hook not in before]
    assert not left, f"left in torch: {left}"


def _global_hooks() -> list[Any]:
    """Hooks on all modules and all optimizers, and the scaler's methods as they are."""
    places = ("torch.nn.modules.module", "torch.optim.optimizer")
    tables = [
        (name, table)
        for place in places
        if place in sys.modules
        for name, table in vars(sys.modules[place]).items()
        if name.startswith("_global_") and isinstance(table, dict)
    ]
    scaler = sys.modules.get("torch.amp.grad_scaler")
    methods = vars(scaler.GradScaler) if scaler is not None else {}
    return [
        *((name, hook) for name, table in tables for hook in table.items() if not _is_ours(hook[1])),
        *((name, methods[name]) for name in ("scale", "step", "update") if name in methods),
    ]


def _is_ours(hook: Any) -> bool:
    """Whether it is a scaler's or autocast's own, which stays as long as one of them does."""
    return str(getattr(hook, "__module__", "")).startswith(("mixprec._autocast", "mixprec._scaler"))
