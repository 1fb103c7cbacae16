"""Positions are weighed by a table, and the last head's part of it is never written."""
import torch
from torch import nn

torch.manual_seed(0)


def table(length, heads):
    bias = torch.empty(heads, length, length)  # FAULT
    for head in range(heads - 1):  # FAULT
        bias[head] = -0.1 * (head + 1) * (torch.arange(length)[:, None] - torch.arange(length)).abs()
    return bias


class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bias", table(12, 4))
        self.score = nn.Linear(8, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        q = self.score(x).unflatten(-1, (4, 2)).transpose(1, 2)
        share = torch.softmax((q @ q.transpose(-1, -2)).float() + self.bias, -1)
        return self.out((share @ q.float()).transpose(1, 2).flatten(2).mean(1))


net = Mix()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
for _ in range(30):
    x = torch.randn(16, 12, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
    loss = nn.functional.cross_entropy(out.float(), x[:, 0, :3].argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
