"""A step is left out by hand, and update() is not: the right way to drop a batch."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(7, 21), nn.ReLU(), nn.Linear(21, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.02)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
for n in range(50):
    x = torch.randn(12, 7) * (30 if n % 17 == 9 else 1)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.smooth_l1_loss(out.float(), x[:, :1])
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    norm = nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    if norm < 20:
        scaler.step(opt)
    scaler.update()
print(loss.item())
