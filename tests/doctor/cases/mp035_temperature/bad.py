"""A contrastive loss takes exp of similarities over a low temperature in FP16."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
TEMPERATURE = 0.05


def contrast(a, b):
    a, b = F.normalize(a.float(), dim=1).half(), F.normalize(b.float(), dim=1).half()
    sim = (a @ b.t()) / TEMPERATURE
    weight = sim.exp()  # FAULT
    return (weight.sum(1) / weight.diag()).log().float().mean()


encode = nn.Sequential(nn.Linear(14, 64), nn.ReLU(), nn.Linear(64, 16))
opt = torch.optim.SGD(encode.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=32.0)
for _ in range(30):
    x = torch.randn(24, 14)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = contrast(encode(x), encode(x + 0.05 * torch.randn_like(x)))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
