"""One rank that runs and saves every scenario of some stacks: `contract_program.py RANK WORLD FOLDER STACK...`."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

os.environ.update(
    RANK=sys.argv[1],
    LOCAL_RANK=sys.argv[1],
    WORLD_SIZE=sys.argv[2],
    LOCAL_WORLD_SIZE=sys.argv[2],
    MASTER_ADDR="127.0.0.1",
    DS_ACCELERATOR="cpu",
)

import drivers
import torch
import torch.distributed as dist


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world, timeout=timedelta(seconds=120))
    torch.save({stack: drivers.Runs(stack).all() for stack in sys.argv[4:]}, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
