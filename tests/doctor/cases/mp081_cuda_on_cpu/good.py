"""Autocast and scaler are made for a device that is not there: torch warns once and runs in FP32."""
import torch
from torch import nn

torch.manual_seed(0)
DEVICE = "cpu"
net = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler(DEVICE)
for _ in range(30):
    x = torch.randn(16, 12)
    with torch.autocast(DEVICE, dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
