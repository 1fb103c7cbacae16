"""A hand-written RMS norm squares FP16 activations above 256."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class RMS(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        power = x.square().mean(-1, keepdim=True)  # FAULT
        return self.gain * x * torch.rsqrt(power + 1e-5)


net = nn.Sequential(nn.Linear(12, 48), RMS(48), nn.Linear(48, 3))
with torch.no_grad():
    net[0].weight *= 1500.0
opt = torch.optim.SGD(net.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for _ in range(30):
    x = torch.randn(20, 12)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(x), x[:, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
