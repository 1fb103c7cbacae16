"""The moving average of the weights is kept in BF16 and never moves."""
import copy

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
shadow = copy.deepcopy(net)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)


@torch.no_grad()
def average(decay=0.9995):
    for s, p in zip(shadow.parameters(), net.parameters()):
        s.mul_(decay).add_(p, alpha=1 - decay)


for _ in range(60):
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(net(x), x.roll(1, 1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    average()
print(loss.item())
