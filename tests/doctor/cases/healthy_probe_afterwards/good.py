"""A second training follows while the first optimizer is still there, its last gradients in place."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 8))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
for _ in range(60):
    x = torch.randn(16, 8)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.mse_loss(net(x).float(), x.flip(1))
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()


def probe():
    head = nn.Linear(8, 2)
    opt = torch.optim.Adam(head.parameters(), 0.02)
    for _ in range(80):
        x = torch.randn(32, 8)
        with torch.no_grad():
            features = net(x)
        opt.zero_grad()
        loss = nn.functional.cross_entropy(head(features), (x[:, 0] > 0).long())
        loss.backward()
        opt.step()
    return loss.item()


print(loss.item(), probe())
