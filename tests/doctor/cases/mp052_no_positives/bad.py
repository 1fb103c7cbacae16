"""The loss is a mean over the positive samples, and some batches have none."""
import torch
from torch import nn

torch.manual_seed(0)


def positive_loss(out, y):
    chosen = (out - 1.0).pow(2)[y > 1.6]  # FAULT
    return chosen.mean()  # FAULT


net = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for _ in range(50):
    x = torch.randn(12, 5)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = positive_loss(out.float(), x[:, :1])
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
