"""A bad record is seen in the loss before the step; weights and momentum are as they were."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
for n in range(120):
    x = torch.randn(48, 6)
    y = x[:, :1] - 0.5 * x[:, 1:2] ** 2
    if n == 33:
        y[7] = float("inf")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
    loss = (out.float() - y).square().mean()
    if not loss.isfinite():
        continue
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
