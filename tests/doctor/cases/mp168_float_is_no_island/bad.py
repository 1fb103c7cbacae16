"""Time stamps are made FP32 by hand, and autocast casts them to BF16 again in the matmul."""
import torch
from torch import nn

torch.manual_seed(0)


class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rate", torch.linspace(0.01, 0.9, 10)[None])

    def forward(self, t):
        phase = torch.matmul(t.float(), self.rate.float())  # FAULT
        return torch.cat([phase.sin(), phase.cos()], 1)


net = nn.Sequential(Fourier(), nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
stamp = 20000.0 + torch.arange(80.0)[:, None]
goal = (0.3 * torch.arange(80.0)).sin()[:, None]
for _ in range(80):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(stamp)
    loss = nn.functional.mse_loss(out.float(), goal)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
