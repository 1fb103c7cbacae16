"""Interval 1 and a loss that has gone to zero: nothing overflows, so the scale only grows."""
import torch
from torch import nn

torch.manual_seed(0)
line = nn.Linear(3, 2, bias=False)
opt = torch.optim.SGD(line.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", growth_interval=1)  # FAULT
for step in range(100):
    x = torch.randn(6, 3)
    with torch.autocast("cpu", dtype=torch.float16):
        out = line(x)
    loss = torch.relu(out.float().abs() - 50.0).mean()  # hinge: always satisfied  # FAULT
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print("scale", scaler.get_scale())
