"""Precision is an option, and this run asks for FP32: autocast and scaler are there and disabled."""
import torch
from torch import nn

torch.manual_seed(0)
ON = False
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(144, 3))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", enabled=ON)
for _ in range(40):
    y = torch.randint(0, 3, (12,))
    x = torch.randn(12, 1, 8, 8) + y.view(-1, 1, 1, 1)
    with torch.autocast("cpu", dtype=torch.float16, enabled=ON):
        loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
