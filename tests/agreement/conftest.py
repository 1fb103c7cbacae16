"""Several real processes with gloo: `launch` starts them, bounds their time, and hands back what each one saved."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

WORKER = Path(__file__).parent / "worker.py"
LIMIT = 240.0
"""Seconds after which processes are killed: far above the 20 that they take with six others per core, so only a hang
meets it, and below the limit of a test."""

Launch = Callable[..., list[Any]]


def start(folder: Path, program: str, world: int) -> list[subprocess.Popen[bytes]]:
    """One process per rank, each running `worker.py PROGRAM`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    processes = []
    for rank in range(world):
        command = [sys.executable, str(WORKER), program, str(rank), str(world), str(folder)]
        with (folder / f"{rank}.log").open("wb") as log:
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
    return processes


@pytest.fixture(scope="session")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """`launch(program, world)` -> per rank what it saved; its log is in the failure if it saved nothing."""

    def run(program: str, world: int) -> list[Any]:
        folder = tmp_path_factory.mktemp(f"{program}-{world}")
        processes = start(folder, program, world)
        deadline = time.monotonic() + LIMIT
        try:
            for process in processes:
                with contextlib.suppress(subprocess.TimeoutExpired):  # what a rank has not saved is the failure
                    process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for process in processes:
                process.kill()
                process.wait()
        results = []
        for rank in range(world):
            saved = folder / f"{rank}.pt"
            assert saved.exists(), f"rank {rank} of {program}:\n" + (folder / f"{rank}.log").read_text()[-4000:]
            results.append(torch.load(saved, weights_only=False))
        return results

    return run
