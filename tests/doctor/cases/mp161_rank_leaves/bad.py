"""A rank whose own loss is NaN leaves the iteration; the other waits in the collectives of backward."""
import datetime
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def bad_anywhere(loss):
    flag = (~torch.isfinite(loss.detach())).float()
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag)


def job(rank, address):
    limit = datetime.timedelta(seconds=6)
    dist.init_process_group("gloo", init_method="file://" + address, rank=rank, world_size=2, timeout=limit)
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Linear(6, 2))
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(rank)
    for n in range(20):
        x = torch.randn(8, 6, generator=data)
        if rank == 1 and n == 7:
            x[3] = float("inf")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = net(x)  # FAULT
        loss = nn.functional.cross_entropy(out.float(), (x[:, 0] > 0).long())
        if not torch.isfinite(loss):  # FAULT
            continue  # FAULT
        opt.zero_grad()
        loss.backward()  # FAULT
        opt.step()
    print(rank, loss.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(job, args=(os.path.join(tempfile.mkdtemp(), "meet"),), nprocs=2)
