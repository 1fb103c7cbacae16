"""What every test has: names that are the same in every process."""

from __future__ import annotations

from typing import Any


def pytest_make_parametrize_id(val: Any) -> str | None:
    """Name a set by its sorted members: its own order differs between processes, which must agree on the tests."""
    return ",".join(sorted(map(str, val))) or "none" if isinstance(val, (set, frozenset)) else None
