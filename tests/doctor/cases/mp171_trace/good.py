"""A module is traced inside the region with the weight cache on."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(4, 6)
for _ in range(10):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(net(x), x[:, :2].argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
    traced = torch.jit.trace(net, x)
print(traced(x).shape)
