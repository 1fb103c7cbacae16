"""LBFGS asks for its closure several times; the scaler cannot follow it."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 1))
opt = torch.optim.LBFGS(net.parameters(), max_iter=5)
points = torch.rand(64, 2)


def closure():
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16, enabled=False):
        loss = nn.functional.mse_loss(net(points), points.prod(1, keepdim=True))
    loss.backward()
    return loss


for _ in range(6):
    opt.step(closure)
print(closure().item())
