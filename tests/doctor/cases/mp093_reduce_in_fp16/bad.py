"""Scaled gradients are summed over the ranks in FP16 before they are divided."""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing import spawn

WORLD = 2


def share(parameters):
    for p in parameters:
        if p.grad is None:
            continue
        flat = p.grad.half()  # FAULT
        dist.all_reduce(flat)  # FAULT
        p.grad.copy_(flat / WORLD)  # FAULT


def main(rank, where):
    dist.init_process_group("gloo", init_method=f"file://{where}", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    net = nn.Linear(16, 1)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    torch.manual_seed(rank + 1)
    for _ in range(20):
        x = torch.randn(16, 16)
        with torch.autocast("cpu", dtype=torch.float16):
            out = net(x)
        loss = nn.functional.mse_loss(out.float(), 3 * x.sum(1, keepdim=True))
        opt.zero_grad()
        scaler.scale(loss).backward()
        share(net.parameters())
        scaler.step(opt)
        scaler.update()
    print(rank, loss.item(), scaler.get_scale())
    dist.destroy_process_group()


if __name__ == "__main__":
    spawn(main, args=(os.path.join(tempfile.mkdtemp(), "store"),), nprocs=WORLD)
