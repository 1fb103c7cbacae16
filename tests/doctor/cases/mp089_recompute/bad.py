"""The recompute of a checkpointed block runs in another autocast state than its forward."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.calls = 0

    def inner(self, x):
        self.calls += 1
        wide = self.calls % 2 == 0  # FAULT
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not wide):  # FAULT
            return x + self.ff(x).float()

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)  # FAULT


net = nn.Sequential(Block(8), Block(8), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(15):
    x = torch.randn(10, 8)
    loss = (net(x) - x[:, :1]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
