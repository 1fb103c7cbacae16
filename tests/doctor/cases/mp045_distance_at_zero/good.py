"""Distances of a point to itself: the square root has an infinite slope at zero, in every dtype."""
import torch
from torch import nn

torch.manual_seed(0)


def pairwise(x):
    gap = (x[:, None] - x[None]).pow(2).sum(-1)
    return (gap + 1e-6).sqrt()


embed = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.Adam(embed.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
for _ in range(40):
    x = torch.randn(12, 5)
    with torch.autocast("cpu", dtype=torch.float16):
        z = embed(x)
    loss = (pairwise(z.float()) - torch.cdist(x, x)).abs().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
