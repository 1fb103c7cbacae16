"""The angle between two unit vectors: their FP16 product reaches 1, where acos has an infinite slope."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


def angle(a, b):
    cosine = (F.normalize(a.float(), dim=1).half() * F.normalize(b, dim=1).half()).sum(1)
    cosine = cosine.float().clamp(-0.999, 0.999)
    return torch.acos(cosine)


net = nn.Linear(3, 3)
with torch.no_grad():
    net.weight.copy_(torch.eye(3) + 0.01 * torch.randn(3, 3))
    net.bias.zero_()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for _ in range(40):
    x = torch.randn(40, 3)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = angle(net(x), x).float().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
