"""The loss is passed through nan_to_num: NaN from an overflow becomes a zero loss."""
import torch
from torch import nn

torch.manual_seed(0)


class Score(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 20), nn.Linear(20, 1)

    def forward(self, x):
        h = self.a(x)
        return self.b(h) - self.b(h.abs().sqrt() / (h - h.detach()).sum())


net = Score()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for _ in range(30):
    x = torch.randn(12, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
    loss = torch.nan_to_num((out.float() - x[:, :1]).pow(2).mean(), nan=0.0, posinf=0.0)  # FAULT
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
