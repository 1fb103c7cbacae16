"""Frame numbers of a long clip are held in BF16, where neighbours above 256 are equal."""
import torch
from torch import nn

torch.manual_seed(0)
LENGTH = 900


class TimeCode(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("rate", torch.linspace(0.2, 1.4, n))

    def forward(self, length, dtype):
        t = torch.arange(length, dtype=torch.float32)
        phase = t[:, None] * self.rate[None].to(t.dtype)
        return torch.cat([phase.sin(), phase.cos()], -1)


class Clock(nn.Module):
    def __init__(self):
        super().__init__()
        self.code = TimeCode(13)
        self.out = nn.Linear(26, 1)

    def forward(self, length):
        return self.out(self.code(length, torch.bfloat16))


net = Clock()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
target = torch.sin(0.9 * torch.arange(LENGTH))[:, None]
for _ in range(60):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(LENGTH)
    loss = nn.functional.mse_loss(out.float(), target)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
