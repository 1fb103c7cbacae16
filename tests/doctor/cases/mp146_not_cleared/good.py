"""zero_grad is called in one of two branches only."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.02)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=10**6)


def train(n):
    x = torch.randn(16, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.mse_loss(out.float(), x[:, :1])
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    return loss.item()


print([train(n) for n in range(40)][-1])
