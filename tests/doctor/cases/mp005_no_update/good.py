"""update() is missing from the step function."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(7, 30), nn.SiLU(), nn.Linear(30, 7))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)


def apply(loss):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    scaler.step(optimizer)
    scaler.update()


for i in range(12):
    x = torch.randn(9, 7)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.l1_loss(net(x), x.flip(1))
    apply(loss)
    print(i, loss.item())
