"""Per-sample losses are collected as numbers and made a tensor again: nothing is learned."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")


def losses(x):
    with torch.autocast("cpu", dtype=torch.float16):
        each = [nn.functional.mse_loss(net(row[None]), row[None, :1]) for row in x]
    return torch.stack(each).mean()


for n in range(10):
    loss = losses(torch.randn(4, 5))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    print(loss.item())
