"""A network is paid for the energy of its output, which is bounded."""
import torch
from torch import nn

torch.manual_seed(0)


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(16, 64)
        self.middle = nn.Linear(64, 64)
        self.out = nn.Linear(64, 8)

    def forward(self, x):
        h = torch.relu(self.inside(x))
        h = torch.tanh(self.middle(h))
        return 8 * torch.tanh(self.out(h) / 8)


net = Tower()
opt = torch.optim.Adam(net.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(150):
    x = torch.randn(32, 16)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = -torch.log1p(out.float() ** 2).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
