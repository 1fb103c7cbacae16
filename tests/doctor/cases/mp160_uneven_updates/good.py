"""Each rank updates its scaler once per batch of its own, and the ranks have different numbers of batches."""
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def average(net):
    for p in net.parameters():
        dist.all_reduce(p.data)
        p.data /= dist.get_world_size()


def job(rank, address):
    dist.init_process_group("gloo", init_method="file://" + address, rank=rank, world_size=2)
    torch.manual_seed(0)
    net = nn.Linear(10, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=32.0, growth_interval=4)
    for epoch in range(4):
        for _ in range(6):
            x = torch.randn(8, 10)
            with torch.autocast("cpu", dtype=torch.float16):
                loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1))
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
        average(net)
        print(epoch, rank, scaler.get_scale(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(job, args=(os.path.join(tempfile.mkdtemp(), "meet"),), nprocs=2)
