"""A matmul with out= is not autocast, and its buffer is FP32."""
import torch
from torch import nn

torch.manual_seed(0)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 6, bias=False)
        self.mix = nn.Parameter(torch.eye(6))

    def forward(self, x):
        h = self.body(x)
        h.baddbmm_(h, self.mix.expand(x.size(0), 6, 6))  # FAULT
        return h


net = Head()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
for _ in range(15):
    x = torch.randn(3, 4, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = net(x).float().pow(2).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item())
