"""Every step overflows in the forward pass, so the scale falls for ever; the scaler is innocent."""
import torch
from torch import nn

torch.manual_seed(0)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 16)
        self.b = nn.Linear(16, 1)

    def forward(self, x):
        h = self.a(x)
        h = h / (1e-2 + h.abs().mean())
        return self.b(h)


net = Gate()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for _ in range(60):
    x = torch.randn(12, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = net(x).float().pow(2).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(scaler.get_scale())
