"""A scaler is quick to double and slow to come down again."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(12, 64), nn.GELU(), nn.Linear(64, 2))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
options = {"growth_interval": 6, "backoff_factor": 0.85}  # FAULT
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15, **options)  # FAULT
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
