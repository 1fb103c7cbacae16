"""A task loss and a penalty on the weights are differentiated one after the other; the scaler sees the first only."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 32), nn.SiLU(), nn.Linear(32, 3))
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**11)
for _ in range(40):
    x = torch.randn(32, 10)
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    task = nn.functional.cross_entropy(out.float(), x[:, :3].argmax(1))
    scaler.scale(task).backward()
    penalty = 0.1 * sum(p.square().sum() for p in net.parameters())
    penalty.backward()  # FAULT
    scaler.step(opt)  # FAULT
    scaler.update()
print(task.item(), scaler.get_scale())
