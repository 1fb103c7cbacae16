"""One skip after each growth: the scaler looks for the highest scale that fits."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15, growth_interval=20)
for _ in range(120):
    x = torch.randn(24, 16)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = nn.functional.cross_entropy(out.float(), x[:, :4].argmax(1)) * 4
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
