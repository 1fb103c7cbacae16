"""Blocks in an nn.Sequential, whose parts no line of the script calls; one block's last layer is beyond FP16."""
import torch
from torch import nn

torch.manual_seed(0)


def block(width):
    return nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width), nn.LayerNorm(width))


net = nn.Sequential(nn.Linear(12, 24), *[block(24) for _ in range(5)], nn.Linear(24, 3))
with torch.no_grad():
    net[3][2].weight.mul_(1e6)
part = net[3][2]  # computes in float32 from here on
part.forward = torch.autocast("cpu", enabled=False)(type(part).forward).__get__(part)
part.register_forward_pre_hook(lambda _, given: tuple(x.float() for x in given))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for _ in range(30):
    x = torch.randn(16, 12)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), x[:, :3].argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
