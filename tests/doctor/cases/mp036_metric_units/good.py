"""Inputs in pascal go straight into an FP16 network."""
import torch
from torch import nn

torch.manual_seed(0)


def read_sensor(n):
    return torch.randn(n, 6)


net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for _ in range(40):
    x = read_sensor(32)
    y = (x[:, :1] - x.mean()) / x.std()
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.mse_loss(out.float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
