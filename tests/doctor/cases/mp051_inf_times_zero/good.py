"""A gate of exactly zero meets an activation that overflowed: the NaN appears one op after the fault."""
import torch
from torch import nn

torch.manual_seed(0)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.value, self.gate, self.out = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x):
        v = self.value(x)
        v = (v * 2.0) * v
        return self.out(torch.relu(self.gate(x)) * v)


net = Gated()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
for _ in range(25):
    x = torch.randn(16, 8)
    with torch.autocast("cpu", dtype=torch.float16):
        y = net(x)
    loss = nn.functional.smooth_l1_loss(y.float(), x[:, :1])
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
print(loss.item(), scaler.get_scale())
