"""A learning rate of 30: the loss explodes in every precision."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
opt = torch.optim.SGD(net.parameters(), lr=30.0)  # FAULT
for _ in range(60):
    x = torch.randn(32, 10)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
    loss = (out.float() - x[:, :1]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
