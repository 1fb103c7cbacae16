"""A scaler is slow to double and comes down at once."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 64), nn.GELU(), nn.Linear(64, 2))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
options = {"growth_interval": 40, "backoff_factor": 0.5}
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15, **options)
for _ in range(90):
    x = torch.randn(48, 12)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.mse_loss(out.float(), x[:, :2] * 6)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
