"""Every stack of the table is run where its package is installed, and skipped by the name of its extra elsewhere."""

from __future__ import annotations

import importlib.util
import os
import subprocess
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
def launched(drivers: ModuleType, tmp_path_factory: pytest.TempPathFactory):
    """`launched(stack)`: per rank what its scenarios came to. Stacks that need nothing more share one launch."""
    found: dict[str, list] = {}

    def of(stack: str) -> list:
        if stack not in found:
            package, _, world = drivers.STACKS[stack]
            together = [name for name, each in drivers.STACKS.items() if each[::2] == (package, world)]
            saved = _launch(tmp_path_factory.mktemp("ranks"), world, together)
            found.update({name: [rank[name] for rank in saved] for name in together})
        return found[stack]

    return of


def _launch(folder: Path, world: int, stacks: list[str]) -> list[dict]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    processes = []
    for rank in range(world):
        program = [str(Path(__file__).parent / "contract_program.py"), str(rank), str(world), str(folder), *stacks]
        with (folder / f"{rank}.log").open("wb") as log:
            command = [sys.executable, "-W", "ignore", *program]
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
    try:
        for process in processes:
            process.wait(LIMIT)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not any(process.returncode for process in processes), (folder / "0.log").read_text()[-3000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(world)]


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
