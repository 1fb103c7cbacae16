"""unscale_ stands inside the accumulation, not before the step."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
PARTS = 3
net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)


def accumulate(part):
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(part), part[:, :4].argmax(1)) / PARTS
    scaler.scale(loss).backward()
    return loss.item()


for _ in range(10):
    opt.zero_grad()
    total = sum(accumulate(part) for part in torch.randn(24, 12).chunk(PARTS))
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    print(total)
