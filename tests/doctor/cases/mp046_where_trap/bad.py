"""The forbidden branch of where() is evaluated as well: 0 times infinity in its gradient."""
import torch
from torch import nn

torch.manual_seed(0)


def log_ratio(p):
    ok = p > 0
    return torch.where(ok, p.log(), torch.zeros_like(p))  # FAULT


net = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 6))
opt = torch.optim.SGD(net.parameters(), lr=0.02)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for _ in range(40):
    x = torch.randn(18, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        gate = torch.sigmoid(net(x)) * (x > 0)
    loss = (log_ratio(gate.float()) - x).pow(2).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
