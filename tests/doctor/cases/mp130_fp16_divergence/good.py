"""An exploding momentum: scaler and FP16 look guilty, but FP32 diverges as well."""
import torch
from torch import nn

torch.manual_seed(0)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(12, 8)
        self.read = nn.Linear(8, 1)

    def forward(self, x):
        h = x.new_zeros(x.size(0), 8)
        for t in range(x.size(1)):
            h = torch.nn.functional.leaky_relu(self.cell(torch.cat([x[:, t], h.to(x.dtype)], 1)))
        return self.read(h)


net = Recurrent()
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(50):
    x = torch.randn(16, 6, 4)
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
    loss = (out.float() - x.sum((1, 2))[:, None] / 4).pow(2).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
