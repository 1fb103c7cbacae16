"""Digits on several ranks: torchrun --nproc-per-node 2 examples/with_fsdp.py. Needs mixprec[examples].

For DDP put `DistributedDataParallel(model)` in the place of `fully_shard`; nothing else changes.
"""

import os

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from mixprec import Precision

os.environ.update(  # without a launcher: one process
    {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", **os.environ}
)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).flatten(1) / 16
labels = torch.tensor(digits.target)

model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
precision = Precision("fp16-mixed", optimizer, model=model, max_norm=1.0)  # clips by the norm of all shards

skipped = 0
for _ in range(5):
    for chosen in torch.randperm(len(images)).split(64)[:-1]:
        mine = chosen.chunk(world)[rank]
        with precision.autocast():
            loss = nn.functional.cross_entropy(model(images[mine]), labels[mine])
        precision.backward(loss)
        report = precision.step()
        skipped += not report.applied

if rank == 0:
    print(f"loss {loss.item():.3f}, {report.step + 1} steps, {skipped} skipped, loss scale {report.scale_after:g}")
dist.destroy_process_group()
