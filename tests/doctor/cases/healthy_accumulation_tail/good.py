"""Accumulation with an unfinished last window that is stepped too."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(9, 27), nn.SiLU(), nn.Linear(27, 3))
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
batches = [torch.randn(8, 9) for _ in range(22)]
for _ in range(3):
    for n, x in enumerate(batches, 1):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1)) / 4
        scaler.scale(loss).backward()
        if n % 4 == 0 or n == len(batches):
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(net.parameters(), 2.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
print(loss.item())
