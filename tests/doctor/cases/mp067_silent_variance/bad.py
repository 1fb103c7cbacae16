"""A normalisation takes the mean of squares minus the squared mean of BF16 numbers around 30."""
import torch
from torch import nn

torch.manual_seed(0)


class Whiten(nn.Module):
    def forward(self, x):
        square = (x * x).mean(-1, keepdim=True)
        var = square - x.mean(-1, keepdim=True) ** 2  # FAULT
        return (x - x.mean(-1, keepdim=True)) / (var.clamp(min=0) + 1e-2).sqrt()


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(16, 32)
        self.whiten = Whiten()
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        return self.out(self.whiten(self.lift(x) + 30))


net = Reader()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(50):
    x = torch.randn(48, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
    loss = nn.functional.cross_entropy(out.float(), x[:, :4].argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
