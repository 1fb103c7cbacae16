"""The shared trunk belongs to both optimizers, so its gradients are unscaled twice."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
trunk, left, right = nn.Linear(6, 24), nn.Linear(24, 2), nn.Linear(24, 3)
a = torch.optim.SGD([*trunk.parameters(), *left.parameters()], lr=0.1)
b = torch.optim.SGD([*trunk.parameters(), *right.parameters()], lr=0.1)  # FAULT
scaler = torch.amp.GradScaler("cpu", init_scale=2048.0)
for _ in range(40):
    x = torch.randn(16, 6)
    with torch.autocast("cpu", dtype=torch.float16):
        h = torch.relu(trunk(x))
        loss = F.cross_entropy(left(h), x[:, :2].argmax(1)) + F.cross_entropy(right(h), x[:, 2:5].argmax(1))
    a.zero_grad()
    b.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(a)
    scaler.step(b)
    scaler.update()
print(loss.item())
