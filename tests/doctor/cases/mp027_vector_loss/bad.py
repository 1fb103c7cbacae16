"""A per-sample FP16 loss is multiplied by the scale before it is reduced."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for _ in range(30):
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
        each = (out - 4 * x[:, :1].half()).abs()
    opt.zero_grad()
    scaler.scale(each).float().sum().backward()  # FAULT
    scaler.step(opt)
    scaler.update()
print(each.mean().item(), scaler.get_scale())
