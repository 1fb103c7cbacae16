"""One rank of the distributed tests of the front door: `ranks_worker.py RANK WORLD FOLDER` saves what it found."""

import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mixprec import Precision
from mixprec.errors import MixprecError

LENGTHS = ((3, 5, 2), (4, 1, 9))
"""Samples per micro-batch, for rank 0 and rank 1: unequal within a rank and between ranks."""


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(24, 8, generator=generator), torch.randn(24, 4, generator=generator)


def pieces(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The micro-batches of one rank."""
    x, y = data()
    cut = [n for lengths in LENGTHS for n in lengths]
    chosen = slice(3 * rank, 3 * rank + 3)
    return list(zip(x.split(cut)[chosen], y.split(cut)[chosen], strict=True))


class Exchanges:
    """Counts how often gradients are exchanged."""

    def __init__(self, model: DistributedDataParallel) -> None:
        self.count = 0
        model.register_comm_hook(None, self.hook)

    def hook(self, state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # DDP checks these two types
        self.count += 1
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True).get_future()
        return work.then(lambda done: done.value()[0])


def window(rank: int, mode: str, *, windows: int = 1, synced: bool = False, last: bool = True, early: bool = False):
    """Windows of three micro-batches, or of four that end early; the weights, how often ranks exchanged, the error."""
    model = network()
    if mode.endswith("master"):
        model.to(torch.bfloat16)
    ddp = DistributedDataParallel(model)
    exchanges = Exchanges(ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), 0.5)
    precision = Precision(mode, optimizer, model=ddp, accumulate=4 if early else 3)
    error = ""
    for _ in range(windows):
        for index, (x, y) in enumerate(pieces(rank)):
            ends = index == 2 and last
            with torch.enable_grad() if synced else precision.no_sync(last=ends), precision.autocast():
                loss = F.mse_loss(ddp(x).float(), y)
                precision.backward(loss, weight=len(x), total=12.0)
            precision.step()
        try:
            precision.finish()
        except MixprecError as caught:
            error = str(caught)
    return [p.detach().clone() for p in model.parameters()], exchanges.count, error


def whole() -> list[torch.Tensor]:
    """One process, one batch of all samples."""
    model = network()
    x, y = data()
    F.mse_loss(model(x), y).backward()
    return [p.detach() - 0.5 * p.grad for p in model.parameters() if p.grad is not None]


def refusal() -> str:
    """What is said to a rank that wants to drop micro-batches by itself."""
    try:
        Precision("fp32", torch.optim.SGD(network().parameters(), 0.1), drop_nonfinite=True)
    except MixprecError as caught:
        return str(caught)
    return ""


def main() -> None:
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    store = f"file://{folder / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    found = {
        "whole": whole(),
        "refusal": refusal(),
        "fp32": window(rank, "fp32"),
        "fp16": window(rank, "fp16-mixed"),
        "master": window(rank, "bf16-master", windows=5),
        "synced": window(rank, "fp32", synced=True),
        "early": window(rank, "fp32", early=True),
        "forgotten": window(rank, "fp32", early=True, last=False),
    }
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
