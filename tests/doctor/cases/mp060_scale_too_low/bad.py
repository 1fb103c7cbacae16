"""A scaler is there, but it starts at 1 and its interval keeps it there: gradients vanish in FP16."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 1, 3, padding=1))
opt = torch.optim.SGD(net.parameters(), lr=2e3)
scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=100000)  # FAULT
for _ in range(30):
    image = torch.randn(2, 1, 160, 160)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(image)
    loss = 1e-4 * torch.nn.functional.smooth_l1_loss(out.float(), image.tanh())
    opt.zero_grad()
    scaler.scale(loss).backward()  # FAULT
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
