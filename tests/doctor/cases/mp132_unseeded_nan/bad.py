"""A buffer that nobody has written is read: what it holds differs from run to run."""
import os
import struct

import torch
from torch import nn

torch.manual_seed(0)
noise = struct.unpack("Q", os.urandom(8))[0]
net = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for n in range(30):
    x = torch.randn(12, 6)
    x = x * (1 + noise % 1009) if n > 4 else x  # FAULT
    loss = nn.functional.l1_loss(net(x), x[:, :1])
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
