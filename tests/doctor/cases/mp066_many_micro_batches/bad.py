"""Gradients of 160 small batches are added up in BF16 before each step."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.Linear(64, 3)).bfloat16()  # FAULT
opt = torch.optim.SGD(net.parameters(), lr=0.5)
for _ in range(12):
    opt.zero_grad()
    for _ in range(160):
        x = torch.randn(4, 24).bfloat16()
        loss = nn.functional.cross_entropy(net(x).float(), x[:, :3].argmax(1)) / 160
        loss.backward()  # FAULT
    opt.step()
print(loss.item() * 160)
