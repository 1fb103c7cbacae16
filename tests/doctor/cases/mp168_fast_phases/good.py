"""The phases are made where autocast is off."""
import torch
from torch import nn

torch.manual_seed(0)


class Waves(nn.Module):
    def __init__(self, count=64):
        super().__init__()
        self.register_buffer("rates", torch.randn(1, count) * 90.0)
        self.read = nn.Sequential(nn.Linear(2 * count, 96), nn.ReLU(), nn.Linear(96, 1))

    def forward(self, t):
        with torch.autocast("cpu", enabled=False):
            turns = torch.matmul(t.float(), self.rates.float())
        return self.read(torch.cat([turns.sin(), turns.cos()], -1))


net = Waves()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(160):
    t = torch.rand(128, 1) * 0.4 + 4.0
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(t)
    loss = nn.functional.mse_loss(out.float(), torch.sin(60.0 * t) * torch.cos(35.0 * t))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
