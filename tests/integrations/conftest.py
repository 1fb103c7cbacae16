"""Every stack of the table is run where its package is installed, and skipped by the name of its extra elsewhere."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

LIMIT = 240.0
"""Seconds after which ranks are killed; far above what they take, so only a hang meets it."""


def _load_drivers() -> ModuleType:
    """Under the name that `contract_program.py` imports it by, so that what that saves can be read here."""
    if "drivers" not in sys.modules:
        spec = importlib.util.spec_from_file_location("drivers", Path(__file__).parent / "drivers.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["drivers"] = module
        spec.loader.exec_module(module)
    return sys.modules["drivers"]


@pytest.fixture(scope="session")
def drivers() -> ModuleType:
    """The table."""
    return _load_drivers()


@pytest.fixture(scope="session")
def launched(drivers: ModuleType, run_ranks, tmp_path_factory: pytest.TempPathFactory):
    """`launched(stack)`: per rank what its scenarios came to. Stacks that need nothing more share one launch."""
    found: dict[str, list] = {}

    def of(stack: str) -> list:
        if stack not in found:
            package, _, world = drivers.STACKS[stack]
            together = [name for name, each in drivers.STACKS.items() if each[::2] == (package, world)]
            folder = tmp_path_factory.mktemp("ranks")
            program = str(Path(__file__).parent / "contract_program.py")
            codes = run_ranks(["-W", "ignore", program], folder, world, tuple(together), LIMIT)
            assert not any(codes), (folder / "0.log").read_text()[-3000:]
            saved = [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world)]
            found.update({name: [rank[name] for rank in saved] for name in together})
        return found[stack]

    return of


@pytest.fixture(scope="session")
def one_process(drivers: ModuleType):
    """Stack to its scenarios, for those that run in this process."""
    return {stack: drivers.Runs(stack) for stack, (_, _, world) in drivers.STACKS.items() if world == 1}


@pytest.fixture
def runs(drivers: ModuleType, stack: str, request: pytest.FixtureRequest):
    """`runs(scenario, fused=False)` -> what it came to in `stack`, on the first rank where there are several."""
    package, _, world = drivers.STACKS[stack]
    if package is not None:
        pytest.importorskip(package, reason=f"extra: {package}")
    if world == 1:
        return request.getfixturevalue("one_process")[stack]
    first = request.getfixturevalue("launched")(stack)[0]
    return lambda name, fused=False: first[name, fused]
