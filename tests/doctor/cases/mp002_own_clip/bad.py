"""Gradients are shortened to length 1 by hand, before the scaler divides them."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(14, 40), nn.Tanh(), nn.Linear(40, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=15)


def shorten(limit):
    total = sum(p.grad.float().pow(2).sum() for p in net.parameters()).sqrt()
    if total > limit:
        for p in net.parameters():
            p.grad.mul_(limit / total)  # FAULT


for _ in range(50):
    x = torch.randn(32, 14)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.mse_loss(out.float(), x[:, :2] * 4)
    opt.zero_grad()
    scaler.scale(loss).backward()  # FAULT
    shorten(1.0)  # FAULT
    scaler.step(opt)  # FAULT
    scaler.update()
print(loss.item(), scaler.get_scale())
