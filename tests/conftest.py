"""What every test has: names that are the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_make_parametrize_id(val: Any) -> str | None:
    """Name a set by its sorted members: its own order differs between processes, which must agree on the tests."""
    return ",".join(sorted(map(str, val))) or "none" if isinstance(val, (set, frozenset)) else None


@pytest.fixture(scope="session")
def run_ranks() -> Callable[..., list[int]]:
    """`run_ranks(command, folder, world, arguments, limit)`: the exit codes of `command RANK WORLD FOLDER ARGUMENTS`.

    Each rank's log is `folder/RANK.log`. After `limit` seconds, far above what they take, ranks are killed.
    """

    def run(command: list[str], folder: Path, world: int, arguments: tuple[str, ...], limit: float) -> list[int]:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if sys.platform == "linux":
            environment["GLOO_SOCKET_IFNAME"] = "lo"
        processes = []
        for rank in range(world):
            line = [sys.executable, *command, str(rank), str(world), str(folder), *arguments]
            with (folder / f"{rank}.log").open("wb") as log:
                processes.append(subprocess.Popen(line, env=environment, stdout=log, stderr=subprocess.STDOUT))
        try:
            for process in processes:
                process.wait(limit)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return [process.returncode for process in processes]

    return run


@pytest.fixture(autouse=True)
def _no_hook_is_left() -> Iterator[None]:
    """A test that leaves a hook or a tap behind changes what every later test sees."""
    hooks, methods = _global_hooks(), _scaler_methods()
    yield
    left = [hook for hook in _global_hooks() if hook not in hooks]
    left += [method for method in _scaler_methods() if methods and method not in methods]  # torch may be new as well
    assert not left, f"left in torch: {left}"


def _global_hooks() -> list[Any]:
    """Hooks on all modules and all optimizers."""
    places = ("torch.nn.modules.module", "torch.optim.optimizer")
    tables = [
        (name, table)
        for place in places
        if place in sys.modules
        for name, table in vars(sys.modules[place]).items()
        if name.startswith("_global_") and isinstance(table, dict)
    ]
    return [(name, hook) for name, table in tables for hook in table.items() if not _is_ours(hook[1])]


def _scaler_methods() -> list[Any]:
    """The scaler's methods as they are; none while torch is not imported."""
    scaler = sys.modules.get("torch.amp.grad_scaler")
    methods = vars(scaler.GradScaler) if scaler is not None else {}
    return [(name, methods[name]) for name in ("scale", "step", "update") if name in methods]


def _is_ours(hook: Any) -> bool:
    """Whether it is a scaler's or autocast's own, which stays as long as one of them does."""
    return str(getattr(hook, "__module__", "")).startswith(("mixprec._autocast", "mixprec._scaler"))
