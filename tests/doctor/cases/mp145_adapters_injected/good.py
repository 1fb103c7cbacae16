"""The optimizer of the adapters is built when they are there."""
import torch
from torch import nn

torch.manual_seed(0)


class Adapted(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.up = nn.Parameter(torch.randn(base.out_features, rank) * 0.1)

    def forward(self, x):
        return self.base(x) + x @ self.down.t() @ self.up.t()


def train(net, opt, target):
    for _ in range(50):
        x = torch.randn(20, 5)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(net(x).float(), target(x))
        net.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())


net = nn.Sequential(nn.Linear(5, 30), nn.Tanh(), nn.Linear(30, 1))
train(net, torch.optim.Adam(net.parameters(), lr=1e-2), lambda x: x[:, :1].sin())
for place in (0, 2):
    net[place] = Adapted(net[place])
opt = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=1e-2)
train(net, opt, lambda x: x[:, 1:2].sin())
