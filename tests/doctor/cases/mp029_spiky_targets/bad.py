"""One batch in forty has targets thousands of times larger, and its step is skipped."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 2))
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**13)
for step in range(160):
    x = torch.randn(32, 16)
    y = x[:, :2] * 3
    if step % 40 == 25:
        y = y * 5000
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.mse_loss(out.float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()  # FAULT
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
