"""The optimizer was built over a copy; in BF16 without a scaler the weights just never move."""
import copy

import torch
from torch import nn

torch.manual_seed(0)
plan = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
net = copy.deepcopy(plan)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(40):
    x = torch.randn(16, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(net(x), x.prod(1, keepdim=True))
    opt.zero_grad()
    net.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
