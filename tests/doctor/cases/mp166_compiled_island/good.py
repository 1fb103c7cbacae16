"""A compiled network with an FP32 island: its backward runs in the caller's FP16 all the same."""
import torch
from torch import nn

torch.manual_seed(0)


class Sums(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 12).requires_grad_(False), nn.Linear(12, 1)

    def forward(self, x):
        h = self.body(x).relu()
        with torch.autocast("cpu", enabled=False):
            return self.head(h.float())


net = Sums()
opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=1e-6)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(20):
    x = torch.randn(64, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        y = net(x)
    loss = 64.0 * (y - x[:, :1]).abs().sum()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
