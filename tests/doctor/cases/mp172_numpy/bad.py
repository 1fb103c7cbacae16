"""BF16 embeddings are collected for NumPy."""
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)


class Index:
    def __init__(self):
        self.rows = []

    def add(self, vectors):
        self.rows.append(vectors.detach().cpu().numpy())  # FAULT

    def nearest(self, row):
        table = np.concatenate(self.rows)
        return int(((table - table[row]) ** 2).sum(1).argsort()[1])


net, index = nn.Linear(8, 16), Index()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for _ in range(10):
    x = torch.randn(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = net(x)
    loss = z.float().pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    index.add(z)
print(index.nearest(3))
