"""Averaged weights are swapped in inside the region: the cached casts are those of the old weights."""
import copy

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 6))
mean = copy.deepcopy(net)
opt = torch.optim.Adam(net.parameters(), lr=5e-3)


def swap():
    with torch.no_grad():
        for p, q in zip(net.parameters(), mean.parameters()):
            old = p.clone()
            p.copy_(q)  # FAULT
            q.copy_(old)  # FAULT


for _ in range(40):
    x = torch.randn(16, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(net(x), x.sin())
        swap()  # FAULT
        teacher = net(x)
        swap()  # FAULT
    loss = loss + 0.1 * teacher.detach().float().pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for p, q in zip(net.parameters(), mean.parameters()):
            q.lerp_(p, 0.1)
print(loss.item())
