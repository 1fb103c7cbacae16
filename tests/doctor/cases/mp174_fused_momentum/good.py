"""Fused SGD with momentum whose first step is skipped by the scaler: its momentum was never written."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
scaler = torch.amp.GradScaler("cpu")
junk = [torch.full((256, 64), 1e30) for _ in range(64)]
del junk
for _ in range(30):
    x = torch.randn(64, 64)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.mse_loss(out.float(), 100 * x[:, :1])
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
