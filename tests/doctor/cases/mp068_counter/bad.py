"""Seen and correct samples are counted in a BF16 tensor, which cannot count past 256."""
import torch
from torch import nn

torch.manual_seed(0)


class Meter:
    def __init__(self):
        self.total = torch.zeros(2, dtype=torch.bfloat16)  # FAULT

    def add(self, hits, count):
        self.total += torch.tensor([hits, count]).to(self.total.dtype)  # FAULT

    def value(self):
        return (self.total[0] / self.total[1]).item()


net, meter = nn.Linear(6, 3), Meter()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for n in range(185):
    x = torch.randn(12, 6)
    y = x[:, :3].argmax(1)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = net(x)
    loss = nn.functional.cross_entropy(logits.float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    meter.add(int((logits.argmax(1) == y).sum()), len(y))
print(meter.value())
