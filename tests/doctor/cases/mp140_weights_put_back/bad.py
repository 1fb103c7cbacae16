"""After a bad record the weights go back to the last good ones; the momentum of the optimizer stays NaN."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
good = [p.detach().clone() for p in net.parameters()]
for n in range(120):
    x = torch.randn(48, 6)
    y = x[:, :1] - 0.5 * x[:, 1:2] ** 2
    if n == 33:
        y[7] = float("inf")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
    loss = (out.float() - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # FAULT
    broken = any(not p.isfinite().all() for p in net.parameters())
    with torch.no_grad():
        for p, kept in zip(net.parameters(), good):
            p.copy_(kept) if broken else kept.copy_(p)  # FAULT
print(loss.item())
