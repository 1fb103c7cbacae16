"""Targets are log-transformed without a guard: a zero becomes minus infinity, in BF16 as in FP32."""
import torch
from torch import nn

torch.manual_seed(0)


def batches(n):
    for k in range(n):
        counts = torch.poisson(torch.full((16, 1), 6.0))
        if k == 20:
            counts[3] = 0
        yield torch.cat([counts, torch.randn(16, 4)], 1), counts.log()  # FAULT


net = nn.Sequential(nn.Linear(5, 20), nn.Softplus(), nn.Linear(20, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for x, y in batches(40):  # FAULT
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
    loss = (out.float() - y).pow(2).mean()  # FAULT
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
