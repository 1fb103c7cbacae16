"""A layer in the middle overflows FP16; it is as wide as there are classes, and the head comes after it."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
CLASSES = 24


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(12, 64)
        self.middle = nn.Parameter(torch.randn(CLASSES, 64) * 30.0)
        self.last = nn.Parameter(torch.randn(CLASSES, CLASSES) * 0.03)

    def forward(self, x):
        h = F.gelu(self.first(x))
        h = F.linear(h * 900.0, self.middle)  # FAULT
        return F.linear(h.float() / 27000.0, self.last).float()


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(30):
    x = torch.randn(32, 12)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(net(x), x.argmax(1))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
