"""FSDP shards the gradients; a plain scaler sees the overflow of its own shard only."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(12, 40)
        self.out = nn.Linear(40, 4)

    def forward(self, x):
        return self.out(torch.relu(self.body(x)))


def job(rank, address):
    dist.init_process_group("gloo", init_method="file://" + address, rank=rank, world_size=2)
    torch.manual_seed(0)
    half = MixedPrecision(param_dtype=torch.float16, reduce_dtype=torch.float32)
    net = FullyShardedDataParallel(Part(), mixed_precision=half, device_id=torch.device("cpu"))  # FAULT
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**13, growth_interval=6)  # FAULT
    data = torch.Generator().manual_seed(40 + rank)
    for n in range(24):
        x = torch.randn(16, 12, generator=data) * (300 if n % 8 == 5 else 1)
        loss = nn.functional.cross_entropy(net(x).float(), x[:, :4].argmax(1))
        opt.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(opt)  # FAULT
        scaler.update()
    print(rank, scaler.get_scale(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(job, args=(os.path.join(tempfile.mkdtemp(), "meet"),), nprocs=2)
