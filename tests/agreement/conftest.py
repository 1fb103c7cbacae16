"""Several real processes with gloo: `launch` starts them, bounds their time, and hands back what each one saved."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

WORKER = Path(__file__).parent / "worker.py"
LIMIT = 90.0
"""Seconds after which processes are killed; far above what they take, so only a hang meets it."""

Launch = Callable[..., list[Any]]


def start(folder: Path, program: str, world: int) -> list[subprocess.Popen[bytes]]:
    """One process per rank, each running `worker.py PROGRAM`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
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
        try:
            for process in processes:
                process.wait(LIMIT)
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
